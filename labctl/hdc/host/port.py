"""A connection to a port of the board: one forwarding rule whose channel is the connection.

Nothing listens on this host, and the calling thread itself sends and receives.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from labctl.errors import CommandTimeout, DeviceLost, LinkError, LinkRefused
from labctl.hdc.host.channel import Channel
from labctl.hdc.host.link import expect
from labctl.hdc.host.mux import ID_BYTES, naming
from labctl.hdc.wire import Command

#: Data bytes of one packet, as the reference sends them.
_PIECE_BYTES = 65_535


class PortChannel:
    """A connection that a channel carries, used as a socket is."""

    def __init__(self, channel: Channel, context: bytes):
        self._channel = channel
        self._context = context
        self._arrived = b""
        self.is_over = False

    def settimeout(self, seconds: float) -> None:
        """Bound each wait from now on."""
        self._channel.timeout = seconds

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all of it. Raises LinkError."""
        rest = memoryview(data)
        while rest:
            self._channel.send(Command.FORWARD_DATA, self._context, rest[:_PIECE_BYTES])
            rest = rest[_PIECE_BYTES:]

    def recv(self, count: int, /) -> bytes:
        """Return the next bytes, at most ``count``; empty at the end. Raises LinkError."""
        deadline = time.monotonic() + self._channel.timeout
        while not self._arrived and not self.is_over:
            command, data = self._channel.receive(deadline - time.monotonic())
            if command == Command.CHANNEL_CLOSE:
                raise DeviceLost("the board ended the connection's channel")
            if data[:ID_BYTES] != self._context:
                continue
            if command == Command.FORWARD_DATA:
                self._arrived = data[ID_BYTES:]
            elif command == Command.FORWARD_FREE_CONTEXT:
                self.is_over = True
        piece, self._arrived = self._arrived[:count], self._arrived[count:]
        return piece

    def end(self) -> None:
        """Tell the board that this end is closed. There is no half-close."""
        if not self.is_over:
            self.is_over = True
            with suppress(LinkError):  # a link that is gone has ended it already
                self._channel.send(Command.FORWARD_FREE_CONTEXT, self._context)


@contextmanager
def connected_port(channel: Channel, node: str) -> Iterator[PortChannel]:
    """Connect to a node of the board over a channel that is new.

    Raises LinkRefused (nothing listens there), another LinkError, BoardError.
    """
    channel.send(Command.WAKEUP_SLAVETASK)
    channel.send(Command.FORWARD_CHECK, secrets.token_bytes(ID_BYTES), naming(node))
    expect(
        channel,
        Command.FORWARD_CHECK_RESULT,
        also=lambda command, _: command == Command.FORWARD_FREE_CONTEXT,
    )
    context = secrets.token_bytes(ID_BYTES)
    channel.send(Command.FORWARD_ACTIVE_SLAVE, context, naming(node))
    _await_the_other_end(channel, context, node)
    connection = PortChannel(channel, context)
    try:
        yield connection
    finally:
        connection.end()


def _await_the_other_end(channel: Channel, context: bytes, node: str) -> None:
    deadline = time.monotonic() + channel.timeout
    while True:
        try:
            command, data = channel.receive(deadline - time.monotonic())
        except CommandTimeout as error:
            raise error.during(f"connecting to {node} of the board") from error
        if command == Command.CHANNEL_CLOSE or (
            command == Command.FORWARD_FREE_CONTEXT and data[:ID_BYTES] == context
        ):
            raise LinkRefused(
                f"nothing listens at {node} of the board", hint="is the program there still up?"
            )
        if command == Command.FORWARD_ACTIVE_MASTER and data[:ID_BYTES] == context:
            return
