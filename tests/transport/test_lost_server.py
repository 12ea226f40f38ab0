"""Boards whose hdc server is lost, as a process of its own: its host is to blame, and no board."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hdc import FakeHdc, install
from hdc_server import USB_KEY, Board, stand_in_server

from labctl.errors import CommandTimeout, DeviceLost, InfraError, LinkError, speaks_against_board
from labctl.retry import wait_until
from labctl.transport.base import OpenOptions, TransferOptions
from labctl.transport.hdc import HdcServerConfig, HdcTransport
from labctl.transport.hdc_server import shared
from labctl.virtual.board import VirtualBoard, serving

pytestmark = pytest.mark.usefixtures("private_state")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        yield board.address


@pytest.fixture
def hdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> Iterator[FakeHdc]:
    monkeypatch.setattr(shared, "_shared", {})
    hdc = install(tmp_path, monkeypatch)
    hdc.does(boards={USB_KEY: address})
    yield hdc
    for restarting in shared._shared.values():
        restarting.stop()


def behind(port: int, timeout: float = 30) -> HdcTransport:
    return HdcServerConfig(key=USB_KEY, server=f"127.0.0.1:{port}").open(
        OpenOptions(timeout=timeout)
    )


@pytest.fixture
def board(hdc: FakeHdc) -> Iterator[HdcTransport]:
    """A board whose server runs as a process."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with behind(port) as board:
        assert board.run("echo here", timeout=30).text == "here\n"
        yield board


def failure_of(board: HdcTransport, hdc: FakeHdc, number: int, folder: Path) -> InfraError:
    """Return the error of a command whose server gets a signal meanwhile."""
    begun = folder / "begun"

    def hit() -> None:
        if wait_until(begun.exists, timeout=60, interval=0.02):
            os.kill(hdc.server_pid(), number)

    hitting = threading.Thread(target=hit)
    hitting.start()
    with pytest.raises(InfraError) as caught:
        # Long enough for the command to begin beside others: only then is the server hit.
        board.run(f"echo begun; touch {begun}; sleep 100", timeout=10)
    hitting.join()
    return caught.value


def test_a_server_that_is_killed_in_a_command_is_its_hosts_fault(
    board: HdcTransport, hdc: FakeHdc, tmp_path: Path
) -> None:
    error = failure_of(board, hdc, signal.SIGKILL, tmp_path)
    assert isinstance(error, DeviceLost)
    assert not speaks_against_board(error)


def test_a_server_that_was_killed_is_run_again_for_the_next_command(
    board: HdcTransport, hdc: FakeHdc, tmp_path: Path
) -> None:
    first = hdc.server_pid()
    failure_of(board, hdc, signal.SIGKILL, tmp_path)
    assert board.run("echo again", timeout=30).text == "again\n"
    assert hdc.server_pid() != first


def test_a_server_that_stands_still_in_a_command_is_its_hosts_fault(
    board: HdcTransport, hdc: FakeHdc, tmp_path: Path
) -> None:
    error = failure_of(board, hdc, signal.SIGSTOP, tmp_path)
    os.kill(hdc.server_pid(), signal.SIGCONT)
    assert isinstance(error, CommandTimeout)
    assert not speaks_against_board(error)


def test_a_server_that_is_killed_in_a_transfer_is_its_hosts_fault(
    board: HdcTransport, hdc: FakeHdc, tmp_path: Path
) -> None:
    with (tmp_path / "big").open("wb") as big:
        big.truncate(2_000_000_000)
    there = tmp_path / "there"
    there.mkdir()

    def hit() -> None:
        if wait_until(lambda: any(there.iterdir()), timeout=60, interval=0.02):
            os.kill(hdc.server_pid(), signal.SIGKILL)

    hitting = threading.Thread(target=hit)
    hitting.start()
    with pytest.raises(LinkError) as caught:
        board.push(tmp_path / "big", f"{there}/big", TransferOptions(timeout=60))
    hitting.join()
    assert not speaks_against_board(caught.value)


@pytest.mark.parametrize("how", ["down", "silent", "leaving", "another program"])
def test_a_server_that_is_not_there_is_its_hosts_fault(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no hdc: none is started
    over = threading.Event()

    def accept(listener: socket.socket) -> None:
        while not over.is_set():
            client, _ = listener.accept()
            with client:
                client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n" * (how == "another program"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        accepting = threading.Thread(target=accept, args=(listener,))
        if how == "down":
            listener.close()
        elif how != "silent":
            accepting.start()
        with behind(port, timeout=0.5) as board, pytest.raises(LinkError) as caught:
            board.run("true", timeout=30)
        over.set()
        if accepting.is_alive():
            socket.create_connection(("127.0.0.1", port)).close()
            accepting.join()
    for error in (caught.value, caught.value.again(), caught.value.during("pushing")):
        assert not speaks_against_board(error)


@pytest.mark.parametrize("state", ["Offline", "Unauthorized", "Unknown", "dead", "lost"])
def test_a_server_that_is_well_leaves_its_boards_to_blame(state: str, address: str) -> None:
    board = Board(address, state=state if state[0].isupper() else None)
    with stand_in_server({USB_KEY: board}) as server, behind(server.port, timeout=2) as link:
        if state in ("dead", "lost"):
            assert link.run("true", timeout=30).exit_status == 0
        board.is_dead = state == "dead"
        if state == "lost":
            board.drop()
        with pytest.raises(LinkError) as caught:
            link.run("true", timeout=1)
        assert speaks_against_board(caught.value)
