"""The connections of one forwarding rule.

The protocol multiplexes connections over one channel and has no flow control, so labctl must take
all that the board sends. Each connection has a bounded queue and two threads, one for each
direction. A full queue blocks the rule, and at last the whole link; a connection whose user takes
nothing for some seconds is cut. The threads that send to the board receive nothing from it, so
neither direction can block the other.
"""

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from labctl.errors import InfraError, LinkError
from labctl.hdc.host.channel import Channel
from labctl.hdc.host.forwarded import Connection
from labctl.hdc.messages import ID_BYTES, naming
from labctl.hdc.wire import Command

_DIAL_SECONDS = 10.0

_log = logging.getLogger("labctl.hdc")


class Mux:
    """Forwards connections over a channel until closed.

    ``node`` is the board's end of each connection given to :meth:`attach`. ``dial`` makes this
    host's end of each connection that the board opens: it gets a time-out in s, and raises OSError
    to refuse the connection.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        node: str = "",
        dial: Callable[[float], socket.socket] | None = None,
    ):
        self._channel = channel
        self._node = node
        self._dial = dial
        self._state = threading.Lock()
        self._connections: dict[bytes, Connection] = {}
        self._threads: set[threading.Thread] = set()
        self._over = False

    def attach(self, sock: socket.socket) -> None:
        """Ask the board to open its end for a connection accepted here."""

        def open_it(connection: Connection) -> socket.socket | None:
            self._channel.send(Command.FORWARD_ACTIVE_SLAVE, connection.context, naming(self._node))
            return sock if connection.wait_until_open(self._channel.timeout) else None

        connection = Connection(self._channel, secrets.token_bytes(ID_BYTES), open_it)
        connection.own(sock)
        if not self._begin(connection):
            sock.close()

    def take(self, command: int, data: bytes) -> bool:
        """Handle a packet of the rule's channel; False if it belongs to no connection."""
        context = data[:ID_BYTES]
        connection = self._connections.get(context)
        if command == Command.FORWARD_ACTIVE_SLAVE:
            self._open_here(context)
        elif command == Command.FORWARD_ACTIVE_MASTER:
            if connection is not None:
                connection.opened()
        elif command == Command.FORWARD_DATA:
            if connection is not None:
                connection.deliver(data[ID_BYTES:])
        elif command == Command.FORWARD_FREE_CONTEXT:
            if connection is not None:
                connection.freed_by_board()
        else:
            return False
        return True

    def run(self) -> None:
        """Handle the board's packets until the channel or the link ends."""
        try:
            while True:
                command, data = self._channel.receive(threading.TIMEOUT_MAX)
                if command == Command.CHANNEL_CLOSE:
                    return
                self.take(command, data)
        except InfraError as error:
            _log.info("forwarding ends: %s", error)
        finally:
            self._cut()

    def close(self) -> None:
        """End the rule, its channel and all connections, and wait for their threads. Idempotent."""
        self._cut()
        self._channel.close()
        with self._state:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _cut(self) -> None:
        with self._state:
            self._over = True
            connections = list(self._connections.values())
        for connection in connections:
            connection.cut()

    def _open_here(self, context: bytes) -> None:
        """Connect to the rule's node on this host, whatever node the board names."""

        def open_it(connection: Connection) -> socket.socket | None:
            if self._dial is None:
                return None
            try:
                sock = self._dial(_DIAL_SECONDS)
            except OSError as error:
                _log.info("nobody accepts a forwarded connection:  %s", error)
                return None
            connection.own(sock)
            if not connection.opened():
                return None
            self._channel.send(Command.FORWARD_ACTIVE_MASTER, context)
            return sock

        if not self._begin(Connection(self._channel, context, open_it)):
            with suppress(LinkError):
                self._channel.send(Command.FORWARD_FREE_CONTEXT, context)

    def _begin(self, connection: Connection) -> bool:
        with self._state:
            if (
                self._over
                or len(self._connections) >= self._channel.limits.connections
                or connection.context in self._connections
            ):
                return False
            thread = threading.Thread(
                target=self._forward, args=(connection,), name="hdc forward", daemon=True
            )
            # Before it starts: the board may answer its first packet at once.
            self._connections[connection.context] = connection
            try:
                thread.start()  # under the lock: only started threads can be joined
            except RuntimeError as error:
                _log.warning("a forwarded connection is refused: %s", error)
                del self._connections[connection.context]
                return False
            self._threads.add(thread)
        return True

    def _forward(self, connection: Connection) -> None:
        try:
            connection.forward()
        finally:
            with self._state:
                del self._connections[connection.context]
                self._threads.discard(threading.current_thread())
