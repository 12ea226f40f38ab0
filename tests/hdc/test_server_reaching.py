"""A board behind a server is used only when it answers: what a server says of it is no proof."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hdc_server import UART_KEY, USB_KEY, Board, StandInServer, stand_in_server

from labctl.errors import (
    AccessDenied,
    CommandTimeout,
    ConfigError,
    InfraError,
    LinkRefused,
    NotAuthorised,
    speaks_against_board,
)
from labctl.hdc.host.link import shell
from labctl.hdc.server_client import reaching
from labctl.hdc.server_client.connect_key import address_of, check_key
from labctl.hdc.server_client.reaching import Timeouts
from labctl.hdc.server_client.server import HdcServer
from labctl.hdc.server_client.session import ServerSession
from labctl.transport import readiness
from labctl.transport.hdc import HdcServerConfig
from labctl.transport.readiness import wait_until_ready
from labctl.virtual.board import VirtualBoard, serving

QUICK = Timeouts(probe=0.5, settle=1.0)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        yield board.address


def reach(
    server: StandInServer, key: str, timeout: float = 30, timeouts: Timeouts = QUICK
) -> ServerSession:
    there = HdcServer("127.0.0.1", server.port)
    reaching.reach(there, key, timeout=timeout, timeouts=timeouts)
    return ServerSession(there, key)


def echo(session: ServerSession) -> bytes:
    return b"".join(shell(session, "echo here", timeout=30))


@contextmanager
def connected(address: str) -> Iterator[tuple[StandInServer, Board]]:
    """A server that has the board on TCP."""
    board = Board(address, "TCP")
    board.connect()
    with stand_in_server({address: board}) as server:
        yield server, board


def test_a_board_that_answers_is_left_as_it_is(address: str) -> None:
    with connected(address) as (server, board):
        before = board.session
        assert echo(reach(server, address)) == b"here\n"
        assert board.session is before
        assert server.said(f"tconn {address}") == 0


def test_a_sign_of_life_is_heard_to_its_end_before_a_command_is_sent(address: str) -> None:
    """Whoever leaves a command early and sends the next at once may never see that one's end."""
    with connected(address) as (server, board):
        board.loses_ends = True
        for _ in range(5):
            assert echo(reach(server, address)) == b"here\n"
        link = HdcServerConfig(key=address, server=f"127.0.0.1:{server.port}").open()
        with link:
            for number in range(5):
                said = link.run(f"echo {number}; exit 3", timeout=30)
                assert (said.exit_status, said.text) == (3, f"{number}\n")
        assert not board.was_left


def test_a_sign_of_life_without_an_end_is_one(address: str) -> None:
    with connected(address) as (server, board):
        board.loses_ends = board.was_left = True
        assert reach(server, address, timeouts=replace(QUICK, end=0.2))


def test_the_end_of_a_sign_of_life_is_not_waited_for_beyond_the_time(address: str) -> None:
    with connected(address) as (server, board):
        board.loses_ends = board.was_left = True
        began = time.monotonic()
        assert reach(server, address, timeout=1, timeouts=replace(QUICK, end=60.0))
        assert time.monotonic() - began < 30


def test_a_dead_connection_is_replaced(address: str) -> None:
    with connected(address) as (server, board):
        board.is_dead = True
        assert echo(reach(server, address)) == b"here\n"
        said = [command for _, command in server.commands if command.startswith("tconn")]
        assert said == [f"tconn {address} -remove", f"tconn {address}"]


def test_a_board_that_is_off_behind_a_dead_connection(tmp_path: Path) -> None:
    """Nothing shows that it would answer another one: what others do over this one may go on."""
    with serving(VirtualBoard("b", tmp_path / "board")) as (served,):
        board = Board(served.address, "TCP")
        board.connect()
    board.is_dead, board.state = True, "Connected"
    with stand_in_server({served.address: board}) as server:
        with pytest.raises(CommandTimeout, match="but it does not answer") as caught:
            reach(server, served.address)
        assert f"tconn {served.address} -remove" in (caught.value.hint or "")
        assert server.said(f"tconn {served.address} -remove") == 0


def test_a_slow_board_keeps_its_connection(address: str) -> None:
    with connected(address) as (server, board):
        before = board.session
        board.delay = 1.2
        with pytest.raises(CommandTimeout, match="does not answer"):
            reach(server, address)
        board.delay = 0
        assert board.session is before
        assert echo(reach(server, address)) == b"here\n"


def test_a_connection_that_the_server_finds_lost_when_asked(address: str) -> None:
    with connected(address) as (server, board):
        board.delay = 0.2
        timer = threading.Timer(0.1, board.drop)
        timer.start()
        assert echo(reach(server, address)) == b"here\n"
        timer.join()
        assert server.said(f"tconn {address}") == 1


def test_a_server_that_was_started_again_has_forgotten_the_board(address: str) -> None:
    with stand_in_server({}) as server:
        assert echo(reach(server, address)) == b"here\n"
        server.restart()
        assert echo(reach(server, address)) == b"here\n"


def test_connect_ok_is_no_permission(address: str) -> None:
    with stand_in_server({address: Board(address, "TCP", state="Unauthorized")}) as server:
        with pytest.raises(NotAuthorised, match="does not accept the key of") as caught:
            reach(server, address)
        assert "dialog on the board's screen" in (caught.value.hint or "")


def test_a_permission_given_since_is_noticed(address: str) -> None:
    """The server itself would never ask the board again."""
    board = Board(address, "TCP", state="Unauthorized", is_allowed=True)
    with stand_in_server({address: board}) as server:
        assert echo(reach(server, address)) == b"here\n"


def test_a_dialog_is_shown_once_and_its_denial_is_the_end(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new connection would ask the board's user again."""
    board = Board(address, "TCP", state="Unauthorized")
    with (
        stand_in_server({address: board}) as server,
        HdcServerConfig(key=address, server=f"127.0.0.1:{server.port}").open() as transport,
    ):
        asked: list[InfraError] = []

        def asked_again(error: InfraError) -> None:
            asked.append(error)
            board.is_denied = len(asked) == 3

        monkeypatch.setattr(readiness._LOG, "info", lambda *words: asked_again(words[-1]))
        with pytest.raises(AccessDenied, match="somebody denied it"):
            wait_until_ready(transport, timeout=60)
        assert len(asked) == 3
        assert server.said(f"tconn {address}") == 1
        with pytest.raises(AccessDenied):  # the next command may ask again
            transport.run("true", timeout=30)
        assert server.said(f"tconn {address}") == 2


def test_a_board_that_accepts_and_stays_silent(address: str) -> None:
    board = Board(address, "TCP", hangs=True)
    with stand_in_server({address: board}) as server:
        began = time.monotonic()
        with pytest.raises(CommandTimeout, match="gets no answer from the board") as caught:
            reach(server, address, timeout=1)
        assert speaks_against_board(caught.value)  # the server says nothing while it waits
        assert time.monotonic() - began < 20
        assert server.said(f"tconn {address} -remove") == 1  # not left waiting
        assert board.state == "Offline"


def test_a_connection_that_never_gets_ready_is_begun_anew(address: str) -> None:
    with stand_in_server({address: Board(address, "TCP", state="Unknown")}) as server:
        assert echo(reach(server, address)) == b"here\n"
        assert server.said(f"tconn {address} -remove") == 1


def test_what_the_server_said_is_told(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        key = f"127.0.0.1:{taken.getsockname()[1]}"
    with stand_in_server({}) as server:
        with pytest.raises(LinkRefused, match="is offline") as caught:
            reach(server, key)
        assert caught.value.details == "[Fail]Connect failed"


def test_two_at_once_share_a_connection(address: str) -> None:
    with stand_in_server({}) as server:
        said: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: said.append(echo(reach(server, address))))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(said) > 0
        assert set(said) == {b"here\n"}


@pytest.mark.parametrize(
    "key", ["", "a b", "any", "x" * 33, "board.lan:5555", "::1:5555", "1.2.3:5", "1.2.3.4:0"]
)
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ConfigError, match="not the key of a board"):
        check_key(key)


def test_keys() -> None:
    for key in (USB_KEY, UART_KEY, "COM3"):
        assert check_key(key) == key
    assert len(USB_KEY) == 32
    assert address_of(check_key("192.168.1.20:5555")) == ("192.168.1.20", 5555)
    with pytest.raises(ConfigError):
        address_of(USB_KEY)
