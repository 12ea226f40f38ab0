"""Who connects while a server stops: each connection ends, and none stays open in this process."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest
from daemons import daemon
from scripted_endpoint import scripted_endpoint

from labctl.hdc.host.nodes import Listener
from labctl.hdc.server_client.holding import forward_connections
from labctl.virtual.board import VirtualBoard, serving

Server = Callable[[Path], AbstractContextManager[str]]


@contextmanager
def endpoint(_folder: Path) -> Iterator[str]:
    with scripted_endpoint({}) as server:
        yield server.address.removeprefix("http://")


@contextmanager
def holding(_folder: Path) -> Iterator[str]:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=1000) as there,
        closing(Listener("tcp:0")) as listener,
        forward_connections(listener, there.getsockname()[1]),
    ):
        yield f"127.0.0.1:{listener.node.removeprefix('tcp:')}"


@contextmanager
def control(folder: Path) -> Iterator[str]:
    with serving(VirtualBoard("b", folder / "board")) as (board,):
        yield str(board.directory / ".labctl-control")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def connect(address: str) -> socket.socket:
    if address.startswith("/"):
        sock = socket.socket(socket.AF_UNIX)
        where: str | tuple[str, int] = address
    else:
        sock = socket.socket()
        where = ("127.0.0.1", int(address.rpartition(":")[2]))
    sock.settimeout(30)
    try:
        sock.connect(where)
    except OSError:
        sock.close()
        raise
    return sock


@pytest.mark.parametrize("server", [daemon, control, holding, endpoint])
def test_who_connects_while_a_server_stops(tmp_path: Path, server: Server) -> None:
    for number in range(15):
        folder = tmp_path / str(number)
        folder.mkdir()
        users: list[socket.socket] = []
        before = descriptors()

        def come(address: str, users: list[socket.socket] = users) -> None:
            with suppress(OSError):
                while len(users) < 100:
                    users.append(connect(address))

        with server(folder) as address:
            users.append(connect(address))
            coming = threading.Thread(target=come, args=(address,))
            coming.start()
        coming.join()
        for user in users:
            # Linux may close a port between its own SYN-ACK and the user's ACK without a reset: the
            # user's end stays, with no other end anywhere. Only who speaks hears of it.
            with user, suppress(ConnectionError):
                user.send(b"?")
                assert user.recv(1) == b""
        assert descriptors() <= before
