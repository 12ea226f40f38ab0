"""A port of this host that leads to a port of a board, over every kind of link."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from labctl.transport.base import Transport
from labctl.transport.port_forwarding import forwarded_port as usual_forwarded_port

forwarded_port = partial(usual_forwarded_port, wait_seconds=0.5)


@contextmanager
def service(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port that gives each of its connections to ``answer``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def echo(connection: socket.socket) -> None:
    with connection:
        while piece := connection.recv(1 << 16):
            connection.sendall(piece)


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (piece := connection.recv(1 << 16)):
        got += piece
    return got


def test_connections_are_carried_side_by_side(transport: Transport) -> None:
    sent = [os.urandom(200_000) for _ in range(4)]
    with service(echo) as there, forwarded_port(transport, there) as here:
        connections = [dial(here) for _ in sent]
        threads = [
            threading.Thread(target=connection.sendall, args=(data,))
            for connection, data in zip(connections, sent, strict=True)
        ]
        for thread in threads:
            thread.start()
        for connection, data in zip(connections, sent, strict=True):
            assert read(connection, len(data)) == data
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()


def test_an_answer_may_be_long_in_coming(transport: Transport) -> None:
    may_answer = threading.Event()

    def think(connection: socket.socket) -> None:
        with connection:
            connection.recv(100)
            may_answer.wait(30)
            connection.sendall(b"at last")

    with service(think) as there, forwarded_port(transport, there) as here, dial(here) as client:
        client.sendall(b"well?")
        threading.Timer(1.5, may_answer.set).start()
        assert read(client, 100) == b"at last"


def test_who_leaves_is_gone_for_the_other_side_too(transport: Transport) -> None:
    has_gone = threading.Event()

    def notice(connection: socket.socket) -> None:
        with connection:
            while connection.recv(100):
                pass
            has_gone.set()

    with service(notice) as there, forwarded_port(transport, there) as here:
        dial(here).close()
        assert has_gone.wait(30)


def test_what_cannot_be_carried_is_closed_and_the_port_stays(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[1]
    with forwarded_port(transport, nobody) as here:
        for _ in range(2):
            with dial(here) as client:
                assert client.recv(1) == b""


@pytest.mark.parametrize(
    "transport",
    ["hdc tcp", "ssh", "ssh of a small server"],  # those whose link is labctl's own
    indirect=True,
)
def test_a_lost_link_ends_its_connections_and_the_next_opens_it_again(
    transport: Transport,
) -> None:
    with service(echo) as there, forwarded_port(transport, there) as here:
        with dial(here) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            transport.close()
            assert read(client, 1) == b""
        with dial(here) as client:
            client.sendall(b"y")
            assert client.recv(1) == b"y"
