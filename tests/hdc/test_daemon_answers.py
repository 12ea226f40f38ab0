"""Commands that are answered with a text, and what parameters of the board change about them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon
from raw_files import CLOSE, chunk, offer, summary
from raw_hdc import RawPeer, raw_host

from labctl.hdc.daemon.parameters import Parameters
from labctl.hdc.wire import Command

REFUSED = [(Command.ECHO, b"\0debugging is not allowed"), CLOSE]
DONE = b"\2Set device run mode successful."
TCP = {"persist.hdc.mode": "tcp", "persist.hdc.mode.tcp": "enable"}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RawPeer]:
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.shake_hands()
        yield peer


@pytest.mark.parametrize("version", ["3.1.0e", "3.2.0c", "3.2.0f"])
@pytest.mark.parametrize(
    ("mode", "answer", "set_to"),
    [
        ("usb", b"\0[E001000]For USB debugging, please set it on the device's Settings UI", {}),
        ("port close", None, {"persist.hdc.port": "0", "persist.hdc.mode.tcp": "disable"}),
        ("port", DONE, TCP),
        ("port 11111", DONE, TCP | {"persist.hdc.port": "11111"}),
        ("port x", b"\0[E001100]Invalid port", {}),
        ("cable", b"\0[E001001]Unknown command", {}),
    ],
)
def test_the_way_hosts_connect_is_set(
    tmp_path: Path, version: str, mode: str, answer: bytes | None, set_to: dict[str, str]
) -> None:
    with daemon(tmp_path, version=version) as address, raw_host(address) as host:
        host.shake_hands()
        host.send(3, Command.UNITY_RUNMODE, mode.encode())
        said = [] if answer is None else [(Command.ECHO, answer)]
        assert host.until_close(3) == [*said, CLOSE]
    parameters = Parameters(tmp_path)
    names = ("persist.hdc.port", "persist.hdc.mode", "persist.hdc.mode.tcp")
    assert {name: value for name in names if (value := parameters.get(name))} == set_to


def test_files_are_refused_while_a_parameter_says_so(host: RawPeer, tmp_path: Path) -> None:
    parameters = Parameters(tmp_path)
    parameters.set("persist.hdc.control.file", "false")
    host.send(3, Command.FILE_INIT, b"-cwd / file")
    assert host.until_close(3) == REFUSED
    offer(host, 1, "file")
    assert host.until_close(3) == REFUSED
    host.send(4, Command.UNITY_EXECUTE, b"echo alive")
    assert host.until_close(4)[0] == (Command.ECHO_RAW, b"alive\n")
    parameters.set("persist.hdc.control.file", "true")
    offer(host, 1, "file")
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"x")
    assert summary(host).startswith(b"\2FileTransfer finish")


@pytest.mark.parametrize(
    ("control", "command", "data"),
    [
        ("shell", Command.UNITY_EXECUTE, b"echo hi"),
        ("shell", Command.UNITY_REBOOT, b""),
        ("fport", Command.FORWARD_INIT, b"tcp:1 tcp:2"),
        ("file", Command.APP_UNINSTALL, b"com.x"),
    ],
)
def test_other_work_has_parameters_of_its_own(
    host: RawPeer, tmp_path: Path, control: str, command: Command, data: bytes
) -> None:
    Parameters(tmp_path).set(f"persist.hdc.control.{control}", "false")
    host.send(3, command, data)
    assert host.until_close(3) == REFUSED
