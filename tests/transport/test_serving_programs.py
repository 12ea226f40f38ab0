"""Servers that labctl runs, shared and private ones, with a stand-in for the program `hdc`."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from fake_hdc import PID_FILE, FakeHdc, install
from jobs import is_alive

from labctl.errors import HostError, InfraError, LinkError, LinkRefused
from labctl.hdc.host.link import shell
from labctl.hdc.keys import HostKey
from labctl.hdc.server_client.server import HdcServer, Target
from labctl.hdc.server_client.session import ServerSession
from labctl.retry import wait_until
from labctl.transport.hdc_server import private as private_servers
from labctl.transport.hdc_server import shared as serving
from labctl.transport.hdc_server.private import PrivateServer
from labctl.transport.hdc_server.process import start_server
from labctl.transport.hdc_server.shared import attached_boards, running_server
from labctl.virtual.board import VirtualBoard
from labctl.virtual.board import serving as serving_boards

pytestmark = pytest.mark.usefixtures("private_state")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving_boards(VirtualBoard("b", tmp_path / "board")) as (board,):
        yield board.address


@pytest.fixture
def hdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdc]:
    monkeypatch.setattr(serving, "_shared", {})
    hdc = install(tmp_path, monkeypatch)
    hdc.does(boards={"cable": "127.0.0.1:1"})  # a board is found at once
    yield hdc
    for restarting in serving._shared.values():
        restarting.stop()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def ends(pid: int) -> bool:
    return wait_until(lambda: not is_alive(pid), timeout=30, interval=0.05)


def servers_at(port: int) -> list[int]:
    """The processes that were told to serve at a port."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f":{port}\0" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def echo(server: HdcServer, key: str) -> bytes:
    session = ServerSession.connect(server, key, timeout=30)
    return b"".join(shell(session, "echo here", timeout=30))


# A shared server


def test_a_server_is_run_when_none_listens(hdc: FakeHdc, address: str, free_port: int) -> None:
    hdc.does(boards={"key1": address})
    assert attached_boards("127.0.0.1", free_port, timeout=30) == [
        Target("key1", "USB", "Connected", "localhost")
    ]
    pid = hdc.server_pid()
    assert echo(running_server("localhost", free_port, timeout=30), "key1") == b"here\n"
    assert hdc.server_pid() == pid  # the same one
    assert os.getsid(pid) == pid  # Ctrl-C here is not for it


def test_a_server_that_died_is_run_again(hdc: FakeHdc, address: str, free_port: int) -> None:
    server = running_server("127.0.0.1", free_port, timeout=30)
    assert echo(server, address) == b"here\n"
    first = hdc.server_pid()
    os.kill(first, signal.SIGKILL)  # its pid file stays
    assert ends(first)
    with pytest.raises(LinkError):
        echo(server, address)
    server = running_server("127.0.0.1", free_port, timeout=30)
    assert hdc.server_pid() != first
    assert echo(server, address) == b"here\n"  # it has forgotten the board, and is told again


def test_it_is_not_run_again_without_an_end(hdc: FakeHdc, free_port: int) -> None:
    hdc.does(dies=True)
    for _ in range(4):
        with pytest.raises(HostError, match="has ended at once") as caught:
            running_server("127.0.0.1", free_port, timeout=30)
        assert "cannot open the bus" in (caught.value.details or "")
    with pytest.raises(HostError, match="ended 4 times within"):
        running_server("127.0.0.1", free_port, timeout=30)


def test_a_server_that_does_not_come_up(hdc: FakeHdc, free_port: int) -> None:
    hdc.does(silent=True)
    log = hdc.tmpdir / "log"
    with pytest.raises(HostError, match="does not answer"):
        start_server(free_port, tmpdir=hdc.tmpdir, log=log, extra_env={}, timeout=1.0)
    assert servers_at(free_port) == []


def test_several_that_start_at_once_start_one(hdc: FakeHdc, free_port: int) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda _: running_server("127.0.0.1", free_port, timeout=30), range(8))
        )
    assert {server.version(timeout=30) for server in found} == {"Ver: 3.2.0c"}
    assert len(serving._shared) == 1
    assert is_alive(hdc.server_pid())


def test_several_processes_start_one(hdc: FakeHdc, free_port: int, tmp_path: Path) -> None:
    """And it outlives them: others may use it."""
    code = (
        "from labctl.transport.hdc_server.shared import running_server\n"
        f"print(running_server('127.0.0.1', {free_port}, timeout=30).version(timeout=30))\n"
    )
    starters = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)
    ]
    said = [starter.communicate(timeout=60)[0] for starter in starters]
    assert said == [b"Ver: 3.2.0c\n"] * 3
    pid = hdc.server_pid()
    try:
        assert HdcServer("127.0.0.1", free_port).version(timeout=30) == "Ver: 3.2.0c"
    finally:
        os.kill(pid, signal.SIGTERM)
        assert ends(pid)


@pytest.mark.parametrize("left", ["", "999999999", "1", "no number"])
def test_a_stale_pid_file_is_removed(hdc: FakeHdc, free_port: int, left: str) -> None:
    (hdc.tmpdir / PID_FILE).write_text(left)
    running_server("127.0.0.1", free_port, timeout=30)
    assert is_alive(hdc.server_pid())


def test_a_server_of_the_same_tmpdir_at_another_port(hdc: FakeHdc, free_port: int) -> None:
    running_server("127.0.0.1", free_port, timeout=30)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        other = taken.getsockname()[1]
    with pytest.raises(HostError, match=f"process {hdc.server_pid()}") as caught:
        running_server("127.0.0.1", other, timeout=30)
    assert "private: true" in (caught.value.hint or "")


def test_descriptors_for_all_its_boards(hdc: FakeHdc, free_port: int) -> None:
    running_server("127.0.0.1", free_port, timeout=30)
    limits = Path(f"/proc/{hdc.server_pid()}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert int(soft) >= min(2048, int(hard))


def test_no_server_is_run_on_another_host(hdc: FakeHdc) -> None:
    with pytest.raises(LinkRefused):
        running_server("127.1.2.3", 9, timeout=30)
    assert not serving._shared


def test_without_hdc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_port: int) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert attached_boards("127.0.0.1", free_port, timeout=30) == []
    with pytest.raises(LinkRefused) as caught:
        running_server("127.0.0.1", free_port, timeout=30)
    assert "link: tcp" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "program",
    [
        b"\x7fELF\x02\x01\x01" + bytes(57),  # no program of this machine
        b"#!/no/such/loader\n",
    ],
)
def test_hdc_of_another_machine(hdc: FakeHdc, free_port: int, program: bytes) -> None:
    path = hdc.tmpdir.parent / "bin" / "hdc"
    path.write_bytes(program)
    with pytest.raises(HostError, match="is not for this machine") as caught:
        running_server("127.0.0.1", free_port, timeout=30)
    assert "link: tcp" in (caught.value.hint or "")


# Private servers


@pytest.fixture
def private(free_port: int) -> Iterator[PrivateServer]:
    private = PrivateServer(users_port=free_port)
    yield private
    private.close()


def environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def pids(state: Path) -> list[int]:
    files = sorted((state / "hdc" / "private").glob(f"*/{PID_FILE}"))
    return [int(file.read_text()) for file in files]


def test_a_private_server_touches_nothing_of_the_users(
    hdc: FakeHdc, private: PrivateServer, address: str, private_state: Path
) -> None:
    server = private.running(address, timeout=30)
    assert echo(server, address) == b"here\n"
    (pid,) = pids(private_state)
    its = environment(pid)
    assert Path(its["TMPDIR"]).is_relative_to(private_state)
    assert Path(its["HOME"]).is_relative_to(private_state)
    assert int(its["OHOS_HDC_SERVER_PORT"]) == server.port != 8710
    assert list(hdc.tmpdir.iterdir()) == []
    keys = Path(its["HOME"]) / ".harmony"
    assert HostKey.load(keys / "hdckey").public_pem == (keys / "hdckey.pub").read_text()
    assert stat.S_IMODE((keys / "hdckey").stat().st_mode) == 0o600
    private.close()
    assert ends(pid)
    assert not Path(its["TMPDIR"]).exists()
    assert Path(its["HOME"]).exists()  # boards have allowed its key


def test_boards_share_one_server(hdc: FakeHdc, private: PrivateServer, private_state: Path) -> None:
    keys = [f"10.0.0.{number}:5555" for number in range(5)]
    with ThreadPoolExecutor(5) as threads:
        ports = set(threads.map(lambda key: private.running(key, timeout=30).port, keys))
    assert len(ports) == len(pids(private_state)) == 1


def test_threads_share_one_private_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would each have a server that takes the boards on cables."""
    made: list[object] = []

    class Server:
        def __init__(self) -> None:
            time.sleep(0.1)  # the others come meanwhile
            made.append(self)

        def running(self, key: str, *, timeout: float) -> HdcServer:
            return HdcServer("127.0.0.1", len(made))

        def close(self) -> None:
            pass

    monkeypatch.setattr(private_servers, "PrivateServer", Server)
    monkeypatch.setattr(serving.atexit, "register", lambda _: None)
    serving._private.cache_clear()
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda n: serving.private_server(f"k{n}", timeout=1), range(4)))
        assert len(made) == 1
    finally:
        serving._private.cache_clear()


def test_a_full_server_says_so(hdc: FakeHdc, address: str) -> None:
    hdc.does(dial=address, boards={f"cable{n}": address for n in range(128)})
    private = PrivateServer()
    try:
        with pytest.raises(LinkRefused, match="knows no board") as caught:
            echo(private.running("10.0.0.1:1", timeout=30), "10.0.0.1:1")
        assert "at most 128" in (caught.value.hint or "")
    finally:
        private.close()


def test_a_private_server_is_run_again(
    hdc: FakeHdc, private: PrivateServer, address: str, private_state: Path
) -> None:
    assert echo(private.running(address, timeout=30), address) == b"here\n"
    (first,) = pids(private_state)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    assert echo(private.running(address, timeout=30), address) == b"here\n"
    (second,) = pids(private_state)
    os.kill(second, signal.SIGSTOP)  # it hangs: ours, so it is replaced
    assert echo(private.running(address, timeout=0.5), address) == b"here\n"
    assert ends(second)


def test_the_users_server_keeps_the_cables(
    hdc: FakeHdc, private: PrivateServer, free_port: int
) -> None:
    running_server("127.0.0.1", free_port, timeout=30)
    with pytest.raises(HostError, match="two servers would compete") as caught:
        private.running("cable1", timeout=30)
    assert "private" in (caught.value.hint or "")


def test_what_a_killed_labctl_left_is_ended(
    hdc: FakeHdc, private: PrivateServer, private_state: Path, address: str
) -> None:
    code = (
        "import os, signal\n"
        "from labctl.transport.hdc_server.shared import private_server\n"
        f"private_server({address!r}, timeout=30)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    (left,) = pids(private_state)
    assert is_alive(left)
    private.running("10.0.0.1:1", timeout=30)
    assert ends(left)
    (ours,) = pids(private_state)
    assert is_alive(ours)
    PrivateServer().close()
    other = PrivateServer()
    other.running("10.0.0.1:1", timeout=30)
    assert is_alive(ours)  # its owner lives
    other.close()


def test_private_servers_end_with_labctl(hdc: FakeHdc, private_state: Path, address: str) -> None:
    code = (
        "from labctl.transport.hdc import HdcServerConfig\n"
        f"with HdcServerConfig(key={address!r}, private=True).open() as board:\n"
        "    print(board.run('echo here', timeout=30).text, end='')\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], timeout=60, check=True, capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"here\n", b"")
    assert pids(private_state) == []
    assert list((private_state / "hdc" / "private").glob("*/owner")) == []


def test_the_message_without_hdc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    private = PrivateServer()
    try:
        with pytest.raises(InfraError, match="no program hdc") as caught:
            private.running("10.0.0.1:5555", timeout=30)
        assert "link: tcp" in (caught.value.hint or "")
    finally:
        private.close()
