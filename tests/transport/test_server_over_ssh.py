"""A board behind an hdc server of another host, through an ssh tunnel that labctl makes."""

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from hdc_server import USB_KEY, Board, StandInServer, stand_in_server
from paramiko.ssh_exception import SSHException
from sshd_host import SshHost, make_key, ssh_host

from labctl.errors import DeviceLost, LinkError, LinkRefused, NotAuthorised, speaks_against_board
from labctl.retry import wait_until
from labctl.transport.base import TransferOptions
from labctl.transport.hdc import HdcServerConfig, HdcTransport
from labctl.virtual.board import VirtualBoard, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("ssh") / "host") as host:
        yield host


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandInServer]:
    with (
        serving(VirtualBoard("b", tmp_path / "board")) as (board,),
        stand_in_server({USB_KEY: Board(board.address)}, dial=board.address) as server,
    ):
        yield server


def way_to(server: StandInServer, host: SshHost, key: str = USB_KEY) -> HdcServerConfig:
    return HdcServerConfig(key=key, server=f"127.0.0.1:{server.port}", ssh=host.board())


@pytest.fixture
def board(server: StandInServer, host: SshHost) -> Iterator[HdcTransport]:
    with way_to(server, host).open() as board:
        yield board


def test_commands_files_and_ports(board: HdcTransport, tmp_path: Path) -> None:
    assert board.run("echo here; exit 3", timeout=60).exit_status == 3
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    there = tmp_path / "there"
    board.push(tmp_path / "file", str(there), TransferOptions(timeout=60))
    assert there.read_bytes() == content
    board.pull(str(there), tmp_path / "back", TransferOptions(timeout=60))
    assert (tmp_path / "back").read_bytes() == content
    with socket.create_server(("127.0.0.1", 0)) as echoing:

        def echo() -> None:
            client, _ = echoing.accept()
            with client:
                client.sendall(client.recv(100).upper())

        player = threading.Thread(target=echo)
        player.start()
        with board.connect(echoing.getsockname()[1], timeout=60) as stream:
            stream.send(b"word")
            assert stream.receive(100) == b"WORD"
        player.join()
    with board.interact(timeout=60) as shell:
        shell.send(b"echo $((6*7)); exit\n")
        said = b""
        while piece := shell.receive(timeout=60):
            said += piece
        assert b"42" in said


def test_nothing_listens_on_this_host(board: HdcTransport) -> None:
    before = listening()
    board.run(":", timeout=60)
    assert listening() <= before


def test_a_lost_tunnel_is_an_error_and_made_again(board: HdcTransport, host: SshHost) -> None:
    began = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            board.stream("echo begun; sleep 600", timeout=600, write=lambda _piece: began.set())
        except BaseException as error:
            failures.append(error)

    running = threading.Thread(target=run)
    running.start()
    assert began.wait(60)
    host.hang_up()
    running.join(60)
    assert [type(error) for error in failures] == [DeviceLost]
    assert not speaks_against_board(failures[0])
    assert board.run("echo again", timeout=60).text == "again\n"


def test_a_key_exchange_that_hangs_is_a_lost_link(
    board: HdcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert board.run("true", timeout=60).exit_status == 0

    def hang(*_args: object) -> None:
        raise SSHException("Key-exchange timed out waiting for key negotiation")

    with monkeypatch.context() as patch:
        patch.setattr(paramiko.Channel, "send", hang)
        with pytest.raises(LinkError):
            board.run("true", timeout=5)


def test_a_host_that_is_not_proven_gets_nothing(
    server: StandInServer, host: SshHost, tmp_path: Path
) -> None:
    (tmp_path / "none").touch()
    make_key(tmp_path / "other")
    kind, key = (tmp_path / "other.pub").read_text().split()[:2]
    (tmp_path / "changed").write_text(f"[127.0.0.1]:{host.port} {kind} {key}\n")
    way = way_to(server, host)
    assert way.ssh is not None
    for known, words in (("none", "not in known_hosts"), ("changed", "not the host it was")):
        wrong = replace(way, ssh=replace(way.ssh, known_hosts=str(tmp_path / known)))
        with wrong.open() as board, pytest.raises(NotAuthorised, match=words) as error:
            board.run(":", timeout=60)
        assert not speaks_against_board(error.value)
    assert not server.commands


def test_no_server_there(host: SshHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    way = HdcServerConfig(key=USB_KEY, server=f"127.0.0.1:{port}", ssh=host.board())
    with way.open() as board, pytest.raises(LinkRefused, match="no hdc server answers") as error:
        board.run(":", timeout=60)
    assert "hdc start" in (error.value.hint or "")
    assert not speaks_against_board(error.value)
    assert wait_until(lambda: not host.sessions(), timeout=60, interval=0.05)


def test_a_host_that_is_down_speaks_against_no_board_of_it(
    server: StandInServer, host: SshHost
) -> None:
    way = way_to(server, host)
    assert way.ssh is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        replace(way, ssh=replace(way.ssh, port=port)).open() as board,
        pytest.raises(LinkRefused) as error,
    ):
        board.run(":", timeout=60)
    for one in (error.value, error.value.again(), error.value.during("pushing")):
        assert not speaks_against_board(one)
    with way_to(server, host, "unknown").open() as board, pytest.raises(LinkRefused) as error:
        board.run(":", timeout=60)
    assert speaks_against_board(error.value)  # its host is well


def test_a_dead_connection_of_the_server_is_replaced(server: StandInServer, host: SshHost) -> None:
    """The board's own address is asked from the server's host: here it may be another one's."""
    address = server.dial
    assert address is not None
    with way_to(server, host, address).open() as board:
        assert board.run("echo 1", timeout=60).text == "1\n"
    server.boards[address].is_dead = True
    with way_to(server, host, address).open() as board:
        assert board.run("echo 2", timeout=60).text == "2\n"
    assert server.said(f"tconn {address} -remove") == 1


def listening() -> set[str]:
    """The TCP ports that this process listens at."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(str(entry.readlink()))
        except OSError:
            continue
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}
