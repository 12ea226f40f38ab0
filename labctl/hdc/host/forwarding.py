"""Forwarding rules of a session: one channel each, for all connections of the rule.

The protocol multiplexes connections over one channel and has no flow control, so labctl must take
everything that the board sends. Each connection has a bounded queue and two threads, one per
direction. A full queue blocks the rule, and finally the whole link. If the user of a connection
reads nothing for some seconds, the connection is cut. Threads that send to the board do not receive
from it, so neither direction can block the other.
"""

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from labctl.errors import ConfigError, DeviceLost, InfraError, LinkError
from labctl.hdc.host.channel import Channel
from labctl.hdc.host.forwarded import Connection
from labctl.hdc.host.link import Forwarding, expect
from labctl.hdc.host.nodes import Listener, check_local_node, check_node, dial_node, port_of
from labctl.hdc.messages import ID_BYTES, naming
from labctl.hdc.wire import Command

_DIAL_SECONDS = 10.0

_log = logging.getLogger("labctl.hdc")


class _Mux:
    """Forwards connections over a channel until closed.

    ``node`` is the board's end of each connection given to :meth:`attach`. ``dial`` opens this
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
        """Handle a packet of the rule's channel; return False if it belongs to no connection."""
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
        """Connect to the rule's node on this host; ignore the node that the board names."""

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
            # Before it starts: the board may answer the first packet at once.
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


#: Counter in the CHANNEL_CLOSE that removes a rule: 0 requests no reply.
PARTING = 0
#: Packets of a connection that comes before its rule is ready: it may even have ended again.
_OF_EARLY_CONNECTIONS = (Command.FORWARD_ACTIVE_SLAVE, Command.FORWARD_FREE_CONTEXT)


@contextmanager
def forward(open_channel: Callable[[], Channel], listen: str, connect: str) -> Iterator[Forwarding]:
    """``fport``: connections to ``listen`` here go to ``connect`` on the board.

    Raises ConfigError, HostError, LinkError, BoardError.
    """
    check_node(connect)
    with closing(Listener(listen)) as listener, open_channel() as channel:
        rule = secrets.token_bytes(ID_BYTES)
        channel.send(Command.WAKEUP_SLAVETASK)
        channel.send(Command.FORWARD_CHECK, rule, naming(connect))
        # A refusal has two packets: one frees the rule's context, one has the reason.
        expect(
            channel,
            Command.FORWARD_CHECK_RESULT,
            also=lambda command, _: command == Command.FORWARD_FREE_CONTEXT,
        )
        with _forwarding(_Mux(channel, node=connect), listener):
            yield Forwarding(listener.node, connect)


@contextmanager
def reverse(open_channel: Callable[[], Channel], listen: str, connect: str) -> Iterator[Forwarding]:
    """``rport``: connections to ``listen`` on the board go to ``connect`` here.

    Connections that arrive before the rule is ready are held until then. Raises ConfigError,
    LinkError, BoardError.
    """
    check_local_node(connect)
    if port_of(listen) == 0:
        raise ConfigError(
            f"a board cannot be asked to choose a port: {listen}", hint="name a free port of it"
        )

    def dial(timeout: float) -> socket.socket:
        return dial_node(connect, timeout=timeout)

    with open_channel() as channel, closing(_Mux(channel, dial=dial)) as mux:
        held = _Held(listen, 2 * channel.limits.connections)
        channel.send(Command.FORWARD_INIT, f"{listen} {connect}".encode(errors="surrogateescape"))
        expect(channel, Command.WAKEUP_SLAVETASK, also=held.take)
        rule = expect(channel, Command.FORWARD_CHECK, also=held.take)[:ID_BYTES]
        channel.send(Command.FORWARD_CHECK_RESULT, rule, b"\0")
        expect(channel, Command.FORWARD_SUCCESS, also=held.take)
        for command, data in held.packets:
            mux.take(command, data)
        with _forwarding(mux):
            yield Forwarding(listen, connect)


def ended_early(who: str, listen: str) -> DeviceLost:
    """Return the error for a rule that ended without a message during its setup."""
    return DeviceLost(
        f"{who} ended the forwarding of {listen} without a reason",
        hint="hdcd ends a forwarding if a connection comes before it is ready: try again",
    )


class _Held:
    """Connections that arrive before the rule is ready."""

    def __init__(self, listen: str, most: int):
        self.packets: list[tuple[int, bytes]] = []
        self._listen = listen
        self._most = most

    def take(self, command: int, data: bytes) -> bool:
        """Keep a packet of a connection; see :func:`expect`. Raises DeviceLost."""
        if command == Command.CHANNEL_CLOSE:
            raise ended_early("the board", self._listen)
        if command not in _OF_EARLY_CONNECTIONS or len(self.packets) >= self._most:
            return False
        self.packets.append((command, data))
        return True


@contextmanager
def _forwarding(mux: _Mux, listener: Listener | None = None) -> Iterator[None]:
    def take() -> None:
        mux.run()
        if listener is not None:
            listener.stop()  # clients must not connect to a rule that has ended

    def accept(source: Listener) -> None:
        while (sock := source.accept()) is not None:
            mux.attach(sock)

    threads = [threading.Thread(target=take, name="hdc forward", daemon=True)]
    if listener is not None:
        threads.append(
            threading.Thread(target=accept, args=(listener,), name="hdc forward", daemon=True)
        )
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        if listener is not None:
            listener.stop()
        mux.close()
        for thread in threads:
            thread.join()
        mux.close()  # the last accepted connection
