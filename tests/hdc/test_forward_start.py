"""Connections that meet the start of a forwarding: none is cut, whichever way the link goes."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hdc_server import USB_KEY, Board, stand_in_server

from labctl.hdc.host.link import HostLink
from labctl.hdc.host.session import Session
from labctl.hdc.server_client.server import HdcServer
from labctl.hdc.server_client.session import ServerSession
from labctl.retry import wait_until
from labctl.virtual.board import VirtualBoard, serving

USERS = 64


class _Upper(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line.upper())


class _Service(socketserver.ThreadingTCPServer):
    request_queue_size = 2 * USERS


@pytest.fixture
def upper() -> Iterator[int]:
    """Says each line again in capitals, to many at once; its port."""
    with _Service(("127.0.0.1", 0), _Upper) as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        yield service.server_address[1]
        service.shutdown()
        thread.join()


@contextmanager
def linked(tmp_path: Path, kind: str) -> Iterator[HostLink]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        if kind == "tcp":
            host, _, port = board.address.rpartition(":")
            with Session.connect(host, int(port), timeout=30) as session:
                yield session
            return
        with stand_in_server({USB_KEY: Board(board.address)}) as server:
            hdc = HdcServer("127.0.0.1", server.port)
            behind = ServerSession.connect(hdc, USB_KEY, timeout=30)
            yield behind
            behind.close()


def use(port: int, number: int) -> bytes:
    """Connect as soon as somebody listens there, and have something answered."""
    sock = socket.socket()

    def connected() -> bool:
        nonlocal sock
        if sock.connect_ex(("127.0.0.1", port)) == 0:
            return True
        sock.close()
        sock = socket.socket()
        return False

    assert wait_until(connected, timeout=30, interval=0.02)
    with sock:
        sock.settimeout(30)
        sock.sendall(b"user %d\n" % number)
        return sock.makefile("rb").readline()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize("kind", ["tcp", "server"])
@pytest.mark.parametrize("reverse", [False, True])
def test_early_connections_are_held_and_forwarded(
    tmp_path: Path, upper: int, kind: str, reverse: bool
) -> None:
    port = free_port()
    with linked(tmp_path, kind) as link, ThreadPoolExecutor(USERS) as users:
        answers = [users.submit(use, port, number) for number in range(USERS)]
        start = link.reverse if reverse else link.forward
        with start(f"tcp:{port}", f"tcp:{upper}", timeout=30) as rule:
            assert rule.listen == f"tcp:{port}"
            wanted = [b"USER %d\n" % number for number in range(USERS)]
            assert [answer.result(20) for answer in answers] == wanted
            assert use(port, 100) == b"USER 100\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_what_a_server_carries_for_a_listener_of_labctl(tmp_path: Path, upper: int) -> None:
    """Much both ways, the end from the board, and a reset when the rule is ended under it."""
    port = free_port()
    much = b"x" * (4 << 20) + b"\n"
    with linked(tmp_path, "server") as link, ExitStack() as stack:
        stack.enter_context(link.forward(f"tcp:{port}", f"tcp:{upper}", timeout=30))
        address = ("127.0.0.1", port)
        with (
            socket.create_connection(address, timeout=20) as first,
            socket.create_connection(address, timeout=20) as second,
        ):
            sending = threading.Thread(target=first.sendall, args=(much,))
            sending.start()
            assert first.makefile("rb").readline() == much.upper()
            sending.join()
            first.shutdown(socket.SHUT_WR)
            assert first.recv(1) == b""
            second.sendall(b"half a line")
            stack.close()
            with pytest.raises(ConnectionResetError):
                second.recv(1)
