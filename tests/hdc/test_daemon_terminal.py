"""``hdc shell`` without a command."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon
from jobs import is_alive
from raw_hdc import RawPeer, raw_host

from labctl.hdc.wire import Command
from labctl.retry import wait_until

SHELLS = [found for name in ("dash", "mksh", "bash") if (found := shutil.which(name))]


@pytest.fixture(params=SHELLS, ids=[Path(shell).name for shell in SHELLS])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RawPeer]:
    with (
        daemon(tmp_path, shell=(request.param, "-c")) as address,
        raw_host(address) as peer,
    ):
        peer.shake_hands()
        peer.send(3, Command.SHELL_INIT)
        until(peer, b"# ")
        yield peer


def until(host: RawPeer, text: bytes) -> bytes:
    """What the terminal shows up to ``text``."""
    shown = b""
    while text not in shown:
        channel, command, data = host.receive()
        assert (channel, command) == (3, Command.ECHO_RAW)
        shown += data
    return shown


def type_in(host: RawPeer, keys: bytes) -> None:
    host.send(3, Command.SHELL_DATA, keys)


def test_what_is_typed_is_shown_and_run(host: RawPeer) -> None:
    type_in(host, b"echo $((40 + 2)); tty -s && echo a term''inal\n")
    assert b"42\r\n" in until(host, b"a terminal\r\n")


def test_control_c_ends_a_command_and_not_the_shell(host: RawPeer) -> None:
    type_in(host, b"echo beg''un; cat\n")
    until(host, b"begun\r\n")
    type_in(host, b"a line\n")
    until(host, b"a line\r\na line\r\n")  # shown by the terminal, and by cat
    type_in(host, b"\x03")
    assert b"^C" not in until(host, b"# ")  # hdcd sends a signal, and types nothing
    type_in(host, b"echo still $((1 + 1)) here\n")
    until(host, b"still 2 here\r\n")


def test_the_end_of_input_ends_the_shell(host: RawPeer) -> None:
    type_in(host, b"\x04")
    assert host.until_close(3)[-1] == (Command.CHANNEL_CLOSE, b"\x01")


def test_a_close_hangs_up(host: RawPeer) -> None:
    type_in(host, b"echo pid:$$:; sleep 1000\n")
    shown = b""
    while (found := re.search(rb"pid:(\d+):", shown)) is None:
        shown += until(host, b"\n")
    shell = int(found[1])
    assert is_alive(shell)
    host.send(3, Command.CHANNEL_CLOSE, b"\x01")
    assert wait_until(lambda: not is_alive(shell), timeout=30, interval=0.02)


def test_much_input_is_held_back_and_not_lost(host: RawPeer) -> None:
    type_in(host, b"stty raw -echo; echo r''eady; head -c 3000000 | wc -c; stty sane\n")
    until(host, b"ready")
    for _ in range(100):
        type_in(host, b"x" * 30_000)
    until(host, b"3000000")
