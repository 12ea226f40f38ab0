"""Boards behind an hdc server: their states, their loss, and the server's start."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hdc_server import USB_KEY, Board, StandInServer, stand_in_server

from labctl.errors import (
    CommandTimeout,
    DeviceLost,
    LinkRefused,
    NotAuthorised,
    ProtocolError,
)
from labctl.retry import wait_until
from labctl.transport.base import OpenOptions, TransferOptions, Transport
from labctl.transport.hdc import HdcServerConfig
from labctl.transport.hdc_server.shared import running_server
from labctl.virtual.board import VirtualBoard, serving


def behind(server: StandInServer, key: str = USB_KEY, timeout: float = 30) -> Transport:
    return HdcServerConfig(key=key, server=f"127.0.0.1:{server.port}").open(
        OpenOptions(timeout=timeout)
    )


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        yield board.address


@contextmanager
def served(address: str, **keys: str) -> Iterator[tuple[StandInServer, Transport]]:
    with stand_in_server({USB_KEY: Board(address, **keys)}) as server, behind(server) as link:
        yield server, link


# States


def test_a_key_that_the_server_does_not_know(address: str) -> None:
    with served(address) as (server, _), behind(server, "nosuch") as link:
        with pytest.raises(LinkRefused, match="knows no board nosuch") as caught:
            link.run("true", timeout=30)
        assert caught.value.hint == f"it knows {USB_KEY}"
        assert not link.is_alive()


def test_a_server_without_boards() -> None:
    with stand_in_server({}) as server, behind(server) as link:
        with pytest.raises(LinkRefused) as caught:
            link.run("true", timeout=30)
        assert "plugged in" in (caught.value.hint or "")


def test_a_board_that_is_offline(address: str) -> None:
    with (
        served(address, state="Offline") as (_, link),
        pytest.raises(LinkRefused, match=f"the board {USB_KEY} is offline, says the hdc server"),
    ):
        link.run("true", timeout=30)


def test_a_board_that_does_not_authorise_the_server(address: str) -> None:
    with served(address, state="Unauthorized") as (_, link):
        with pytest.raises(NotAuthorised, match="does not accept the key") as caught:
            link.run("true", timeout=30)
        assert "screen" in (caught.value.hint or "")


def test_a_board_that_is_being_connected_is_waited_for(address: str) -> None:
    with served(address) as (server, link):
        server.boards[USB_KEY].state = "Unknown"
        timer = threading.Timer(0.3, lambda: setattr(server.boards[USB_KEY], "state", None))
        timer.start()
        assert link.run("echo here", timeout=30).output == b"here\n"
        timer.join()


def test_a_board_that_stays_in_between(address: str) -> None:
    with (
        stand_in_server({USB_KEY: Board(address, state="Unknown")}) as server,
        behind(server, timeout=2) as link,
        pytest.raises(LinkRefused, match="is unknown"),
    ):
        link.run("true", timeout=30)


def test_a_board_on_tcp_is_connected_by_the_server(address: str) -> None:
    """Not known at first; then lost by the server, which never looks for it again by itself."""
    with stand_in_server({}) as server, behind(server, address) as link:
        assert link.run("echo 1", timeout=30).output == b"1\n"
        session = server.boards[address].session
        assert session is not None
        session.close()
        with pytest.raises(LinkRefused, match="E001005"):
            link.run("echo 2", timeout=30)
        assert link.run("echo 3", timeout=30).output == b"3\n"
        assert [command for _, command in server.commands].count(f"tconn {address}") == 2


def test_a_board_on_tcp_that_is_not_there(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        key = f"127.0.0.1:{taken.getsockname()[1]}"
    with (
        stand_in_server({}) as server,
        behind(server, key, timeout=1) as link,
        pytest.raises(LinkRefused, match=f"the board {key} is offline"),
    ):
        link.run("true", timeout=30)


def test_servers_that_compare_versions(address: str) -> None:
    """They keep the last byte of the key for a NUL: the key of a DAYU200 on USB is too long."""
    short = USB_KEY[:31]
    boards = {short: Board(address), USB_KEY: Board(address)}
    with stand_in_server(boards, hello_bytes=108) as server:
        with behind(server, short) as link:
            assert link.run("echo here", timeout=30).output == b"here\n"
        assert all(hello.endswith(b"Ver: 3.2.0f".ljust(64, b"\0")) for hello in server.hellos)
        with behind(server) as link, pytest.raises(LinkRefused, match="at most 31") as caught:
            link.run("echo here", timeout=30)
    assert f"has 32: {USB_KEY}" in caught.value.message
    assert "hdc_version_check" in str(caught.value.hint)
    assert caught.value.is_of_host


# Loss


def lose(server: StandInServer) -> None:
    session = server.boards[USB_KEY].session
    assert session is not None
    session.close()


@pytest.mark.parametrize("how", ["board", "server"])
def test_what_is_lost_in_a_command_is_no_success(address: str, how: str) -> None:
    """For the client both look like a command that ended."""
    with served(address) as (server, link):
        said = bytearray()

        def fail(piece: bytes) -> None:
            said.extend(piece)
            if b"begun\n" in said:
                _ = lose(server) if how == "board" else server.drop_clients()

        began = time.monotonic()
        with pytest.raises(DeviceLost) as caught:
            link.stream("echo begun; sleep 100", timeout=100, write=fail)
        assert "begun" in (caught.value.details or "")
        assert time.monotonic() - began < 30
        if how == "board":
            with pytest.raises(LinkRefused):
                link.run("true", timeout=30)
            with pytest.raises(LinkRefused, match="is offline"):
                link.run("true", timeout=30)
            server.boards[USB_KEY].connect()  # the cable is back
        assert link.run("echo again", timeout=30).output == b"again\n"


@pytest.mark.parametrize("how", ["board", "server"])
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_what_is_lost_in_a_transfer_is_no_success(
    address: str, how: str, direction: str, tmp_path: Path
) -> None:
    big, there, back = tmp_path / "big", f"{tmp_path}/there", tmp_path / "back"
    with big.open("wb") as file:
        file.truncate(200_000_000)
    with served(address) as (server, link):
        if direction == "pull":
            Path(there).write_bytes(b"")
            os.truncate(there, 200_000_000)

        done: list[int] = []

        def fail(count: int) -> None:
            done.append(count)
            if count and not any(done[:-1]):
                _ = lose(server) if how == "board" else server.drop_clients()

        push, pull = partial(link.push, big, there), partial(link.pull, there, back)
        options = TransferOptions(timeout=30, progress=fail)
        with pytest.raises(DeviceLost):
            (push if direction == "push" else pull)(options)
        assert not back.exists()
        assert 0 < max(done) < 200_000_000


def test_a_frozen_board_ends_in_time(address: str) -> None:
    with served(address) as (_, link):
        began = time.monotonic()
        with pytest.raises(CommandTimeout):
            link.run("sleep 100", timeout=0.5)
        assert time.monotonic() - began < 30
        assert link.is_alive()


def test_a_gone_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        HdcServerConfig(key=USB_KEY, server=f"127.0.0.1:{port}").open() as link,
        pytest.raises(LinkRefused, match="no hdc server answers"),
    ):
        link.run("true", timeout=30)


def test_nothing_is_left_open(address: str) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with served(address) as (_, link):
        link.run("true", timeout=30)
        before = descriptors()
        for _ in range(20):
            link.run("true", timeout=30)
            with pytest.raises(CommandTimeout):
                link.run("sleep 5", timeout=0.05)
        assert wait_until(lambda: descriptors() <= before + 4, timeout=30, interval=0.05)


def test_commands_in_parallel(address: str) -> None:
    with served(address) as (_, link):
        said: dict[int, bytes] = {}

        def ask(number: int) -> None:
            said[number] = link.run(f"echo {number}; seq 1 2000", timeout=20).output

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rest = b"".join(b"%d\n" % n for n in range(1, 2001))
        assert said == {n: b"%d\n" % n + rest for n in range(16)}


def test_something_else_on_the_servers_port(address: str) -> None:
    """A board's own hdcd waits for its host to speak first."""
    host, _, port = address.rpartition(":")
    with pytest.raises((CommandTimeout, ProtocolError)):
        running_server(host, int(port), timeout=0.5)
