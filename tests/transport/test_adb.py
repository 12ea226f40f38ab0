"""Phones over adb: virtual ones behind official servers, and servers that lie."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from official_adb import RELEASES, official_adb, phone_served

from labctl.adb.daemon.phone import Phone
from labctl.adb.server_client.device import AdbDevice as Client
from labctl.adb.server_client.server import AdbServer, usual_address
from labctl.adb.server_client.states import read_device, state_error
from labctl.adb.shell_frames import FrameId, encode_frame
from labctl.errors import (
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LinkError,
    LinkRefused,
    NotAuthorised,
    ProtocolError,
)
from labctl.transport.adb import AdbConfig
from labctl.transport.base import OpenOptions, TransferOptions
from labctl.transport.readiness import boot_id, reboot
from labctl.virtual.board import Served, VirtualBoard, serving
from labctl.virtual.fault_script import Drop, HalfFrame

OPTIONS = TransferOptions(timeout=20)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("p", tmp_path / "p", protocol="adb")) as (board,):
        yield board


@pytest.fixture(scope="module", params=RELEASES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with official_adb(request.param, tmp_path_factory.mktemp("adb")) as adb:
        yield adb.address


def test_version_1_of_the_file_service_is_enough(server: str, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"x" * 200_000)
    old = Phone("p", tmp_path, features=("shell_v2", "cmd"))
    with (
        phone_served(old) as port,
        AdbConfig(serial=f"127.0.0.1:{port}", server=server).open() as link,
    ):
        link.push(tmp_path / "here", str(tmp_path / "there"), OPTIONS)
        link.pull(str(tmp_path / "there"), tmp_path / "back", OPTIONS)
    assert (tmp_path / "back").read_bytes() == b"x" * 200_000


def test_a_shell_without_statuses_is_refused_by_name(server: str, tmp_path: Path) -> None:
    old = Phone("p", tmp_path, features=("cmd", "stat_v2"))
    with (
        phone_served(old) as port,
        AdbConfig(serial=f"127.0.0.1:{port}", server=server).open() as link,
        pytest.raises(ConfigError, match=f"the device 127.0.0.1:{port} .* has no shell_v2"),
    ):
        link.run("true", timeout=20)


def test_the_link_is_opened_again_after_the_cable_was_pulled(board: Served, server: str) -> None:
    board.faults.add(Drop(on="shell", matching="sleep 30"))
    with AdbConfig(serial=board.address, server=server).open() as link:
        with pytest.raises(DeviceLost, match=r"was (disconnected|lost)"):
            link.run("sleep 30", timeout=20)
        assert link.run("echo again", timeout=20).text == "again\n"


def test_a_device_that_a_half_packet_hung_is_connected_anew(board: Served, server: str) -> None:
    board.faults.add(HalfFrame(on="shell", matching="seq"))
    with AdbConfig(serial=board.address, server=server).open() as link:
        with pytest.raises(LinkError):
            link.run("seq 9", timeout=2)
        board.faults.clear()
        with suppress(DeviceLost):  # of the link that still hangs
            link.run("true", timeout=2)
        assert link.run("echo again", timeout=20).text == "again\n"


def test_a_killed_server_is_the_hosts_failure_and_its_successor_is_used(
    board: Served, tmp_path: Path
) -> None:
    with official_adb("29", tmp_path) as adb:
        link = AdbConfig(serial=board.address, server=adb.address).open()
        link.run("true", timeout=20)
        adb.server.kill()
        adb.server.wait(10)
        with pytest.raises(LinkError) as caught:
            link.run("true", timeout=20)
        assert caught.value.is_of_host
        assert "adb start-server" in (caught.value.hint or "")
        adb.server = adb.start_server()
        with link:
            assert link.run("echo again", timeout=20).text == "again\n"


def test_a_restart_is_proven_by_the_boot_id(board: Served, server: str) -> None:
    with AdbConfig(serial=board.address, server=server).open() as link:
        before = boot_id(link, timeout=20)
        assert reboot(link, timeout=20) not in (before, None)
        with pytest.raises(ConfigError, match="flashd"):
            link.request_reboot("flashd", timeout=20)


@contextmanager
def scripted(*answers: bytes) -> Iterator[AdbServer]:
    """A server that gives each connection the next answer, whatever it asks, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for text in answers:
                sock, _ = listener.accept()
                with sock:
                    sock.sendall(text)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(1 << 16):
                        pass

        answering = threading.Thread(target=answer)
        answering.start()
        yield AdbServer("127.0.0.1", listener.getsockname()[1])
        answering.join(20)
        assert not answering.is_alive()


def text(of: bytes) -> bytes:
    return b"OKAY%04x" % len(of) + of


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (b"FAIL0009no \x1b[31m!", LinkRefused, r"adb answers: no"),
        (b"OKA", DeviceLost, "in the middle of an answer"),
        (b"OKAYzzzz", ProtocolError, "does not allow here"),
        (b"OKAYffffx", DeviceLost, "in the middle of an answer"),
        (b"HTTP/1.1 400", ProtocolError, "is this the port of an adb server"),
        (text(b"latest"), LinkRefused, "as its version"),
    ],
)
def test_odd_answers_are_the_hosts_errors(answer: bytes, error: type[LinkError], says: str) -> None:
    with scripted(answer) as server, pytest.raises(error) as caught:
        server.version(timeout=20)
    assert caught.value.is_of_host
    whole = f"{caught.value.message} {caught.value.hint}"
    assert says in whole
    assert "\x1b" not in whole


LISTED = text(b"ABC\tdevice product:p model:Tiny device:d transport_id:4\n")
FEATURES = text(b"shell_v2,cmd")


@pytest.mark.parametrize(
    ("frames", "error", "says"),
    [
        (encode_frame(FrameId.STDOUT, b"all"), DeviceLost, "without an exit status"),
        (encode_frame(FrameId.EXIT, b"\0")[:-1], DeviceLost, "without an exit status"),
        (b"\1\xff\xff\xff\xff", ProtocolError, "a shell frame of 4,294,967,295 bytes"),
    ],
)
def test_a_shell_that_is_cut_off_has_no_status(
    frames: bytes, error: type[Exception], says: str
) -> None:
    with scripted(LISTED, FEATURES, b"OKAYOKAY" + frames, LISTED) as server:
        link = Client.connect(server, "ABC", timeout=20)
        with pytest.raises(error, match=says):
            list(link.shell("true", timeout=20))
        if error is ProtocolError:  # nothing was lost, so nobody asked for the reason
            server.devices(timeout=20)


def test_a_silent_server_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = AdbServer("127.0.0.1", listener.getsockname()[1])
        began = time.monotonic()
        with pytest.raises(CommandTimeout, match=r"gave no answer within 0\.2 s"):
            server.version(timeout=0.2)
        assert time.monotonic() - began < 10


def test_nothing_listening_says_how_to_start_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(LinkRefused, match="no adb server answers") as caught:
        AdbConfig(serial="A", server=f"127.0.0.1:{port}").open().run("true", timeout=5)
    assert "adb start-server" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("line", "error", "of_host", "says"),
    [
        ("A offline transport_id:1", LinkRefused, False, "adb reconnect offline"),
        ("A unauthorized usb:1-1 transport_id:1", NotAuthorised, False, "allow USB debugging"),
        ("A authorizing transport_id:1", NotAuthorised, False, "wait some seconds"),
        ("A connecting transport_id:1", LinkRefused, False, "wait some seconds"),
        (
            "A no permissions (are your udev rules wrong?); see [http://x] usb:1-1 transport_id:1",
            LinkRefused,
            True,
            "install udev rules",
        ),
        ("A recovery transport_id:1", LinkRefused, False, "adb reboot"),
        ("A sideload transport_id:1", LinkRefused, False, "sideload"),
        ("A bootloader transport_id:1", LinkRefused, False, "fastboot reboot"),
        ("A novelty transport_id:1", LinkRefused, False, "adb devices -l"),
    ],
)
def test_each_state_has_its_cause_and_cure(
    line: str, error: type[LinkError], of_host: bool, says: str
) -> None:
    device = read_device(line)
    assert device is not None
    found = state_error(device, "the device A")
    assert type(found) is error
    assert found.is_of_host == of_host
    assert says in f"{found.message} {found.hint}"


def test_serials_that_stand_twice_are_told_apart_by_their_place() -> None:
    twice = text(
        b"0123 device usb:1-1 model:A transport_id:1\n0123 device usb:1-2 model:A transport_id:2\n"
    )
    with scripted(twice) as server, pytest.raises(ConfigError, match="2 devices") as caught:
        Client.connect(server, "0123", timeout=20)
    assert caught.value.hint is not None
    assert "usb:1-1, usb:1-2" in caught.value.hint
    with scripted(twice, FEATURES) as server:
        assert Client.connect(server, "usb:1-2", timeout=20).device.transport_id == 2


def test_a_hidden_line_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(text(b"A device transport_id:x\nB device transport_id:2\n")) as server:
        assert [one.serial for one in server.devices(timeout=20)] == ["B"]
    assert "left out" in caplog.text


def test_the_same_phone_of_the_same_server_is_refused_twice() -> None:
    one = AdbConfig(serial="127.0.0.1:6001")
    assert one.clash(AdbConfig(serial="localhost:6001"), "b") == (
        "serial",
        "board 'b' has this serial too",
    )
    assert one.clash(AdbConfig(serial="localhost:6001", server="localhost:5037"), "b")
    assert one.clash(AdbConfig(serial="127.0.0.1:6001", server="127.0.0.1:5038"), "b") is None
    assert AdbConfig(serial="A").clash(AdbConfig(serial="a"), "b") is None


def test_a_server_on_another_host_must_be_trusted() -> None:
    problem = AdbConfig(serial="A", server="lab:5037").problem()
    assert problem is not None
    assert "ssh -L 5037:127.0.0.1:5037 lab" in problem[1]
    assert AdbConfig(serial="A", server="lab:5037", trust_network=True).problem() is None
    assert AdbConfig(serial="A", server="[::1]:5037").problem() is None


def test_the_usual_server_is_adbs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "5099")
    assert usual_address() == "127.0.0.1:5099"
    monkeypatch.setenv("ADB_SERVER_SOCKET", "localfilesystem:/tmp/x")
    with pytest.raises(ConfigError, match="over TCP only"):
        usual_address()


def test_a_phone_that_the_server_lacks_is_named(server: str) -> None:
    with (
        AdbConfig(serial="no-such", server=server).open(OpenOptions(timeout=5)) as link,
        pytest.raises(LinkRefused, match="has no device no-such"),
    ):
        link.run("true", timeout=5)
