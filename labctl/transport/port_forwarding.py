"""A port of this host that leads to a port on a board's loopback, over any link.

The port stays open when the link is lost: a connection that cannot be forwarded is closed, and the
next connection opens the link again.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from labctl.errors import CommandTimeout, HostError, InfraError, LinkError
from labctl.transport.base import Transport

if TYPE_CHECKING:
    from labctl.transport.linked import Stream

_LOOPBACK = "127.0.0.1"
_PIECE_BYTES = 65_536
_START_SECONDS = 15.0
#: Time (s) for room to send, and between two checks for a client that has gone.
_WAIT_SECONDS = 5.0


@contextmanager
def forwarded_port(
    transport: Transport, port: int, *, wait_seconds: float = _WAIT_SECONDS
) -> Iterator[int]:
    """Within the context, forward connections to the yielded port to ``port`` on the board.

    A lost client is noticed within ``wait_seconds``. Raises HostError if this host has no free
    port.
    """
    try:
        listener = socket.create_server((_LOOPBACK, 0))
    except OSError as error:
        raise HostError(f"this host has no free port: {error.strerror}") from error
    forwarder = _Forwarder(transport, port, wait_seconds)
    accepting = threading.Thread(target=forwarder.accept, args=(listener,), daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        # A blocked accept does not notice that its socket is closed.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        forwarder.close()


class _Forwarder:
    """Open connections, each with two threads."""

    def __init__(self, transport: Transport, port: int, wait_seconds: float):
        self._transport = transport
        self._port = port
        self._wait_seconds = wait_seconds
        self._clients: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def accept(self, listener: socket.socket) -> None:
        """Forward every incoming connection, until the listener is shut down."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._clients.add(client)
                self._threads.add(thread)
            thread.start()

    def close(self) -> None:
        """End all connections, and wait for their threads."""
        with self._lock:
            threads = tuple(self._threads)
            for client in self._clients:
                _shut(client)
        for thread in threads:
            thread.join()

    def _serve(self, client: socket.socket) -> None:
        try:
            with (
                closing(client),
                suppress(InfraError, OSError),  # the client sees a closed connection
                self._transport.connect(self._port, timeout=_START_SECONDS) as stream,
            ):
                stream.timeout = self._wait_seconds
                _forward(client, stream)
        finally:
            with self._lock:
                self._clients.discard(client)
                self._threads.discard(threading.current_thread())


def _forward(client: socket.socket, stream: "Stream") -> None:
    """Copy bytes both ways until one side ends."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    has_gone = threading.Event()

    def upwards() -> None:
        with suppress(LinkError, OSError):
            while piece := client.recv(_PIECE_BYTES):
                stream.send(piece)
        has_gone.set()
        _shut(client)

    sender = threading.Thread(target=upwards, daemon=True)
    sender.start()
    try:
        while not has_gone.is_set():
            try:
                piece = stream.receive(_PIECE_BYTES)
            except CommandTimeout:
                continue  # a server may need a long time to answer
            if not piece:
                break
            client.sendall(piece)
    finally:
        _shut(client)
        sender.join()


def _shut(client: socket.socket) -> None:
    with suppress(OSError):  # it has already ended
        client.shutdown(socket.SHUT_RDWR)
