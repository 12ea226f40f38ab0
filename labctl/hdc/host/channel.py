"""One conversation inside a session: a command, a file, a forwarded port.

A connection to a port of the board is a forwarding rule of its own, whose channel is the
connection: nothing listens on this host, and the calling thread sends and receives.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, Self

from labctl import interrupts
from labctl.errors import CommandTimeout, DeviceLost, HostError, LinkError, LinkRefused
from labctl.hdc.host.link import expect
from labctl.hdc.messages import ID_BYTES, Buffer, naming
from labctl.hdc.wire import Command

#: Added for each waiting packet: a peer may send any number of empty packets.
_PACKET_BYTES = 200
#: Maximum wait for room to send the end of a channel.
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Limits:
    """Limits of a session's queues, and of the time (s) that data may wait in them."""

    heartbeat_seconds: float = 5.0
    #: Maximum waiting bytes of a channel whose user is too slow; above it, the whole link stops.
    queue_bytes: int = 8 << 20
    #: Maximum time that a channel with a full queue may block other channels.
    stall_seconds: float = 10.0
    #: Maximum wait of a closed session for its own threads.
    close_seconds: float = 5.0
    #: Maximum connections of one forwarding rule; further ones are refused.
    connections: int = 512
    #: Maximum bytes that wait for the user of one forwarded connection.
    connection_bytes: int = 4 << 20
    #: Maximum time that such a user may take nothing from a full queue. The user's kernel reports
    #: room only once a sixteenth of its receive buffer (default at most 6 MB) is free, so a user
    #: that reads about 80 kB/s never reaches this time.
    connection_stall_seconds: float = 5.0


LIMITS = Limits()


class ChannelSession(Protocol):
    """The session as seen by its channels."""

    label: str
    failure: LinkError | None

    def check(self) -> None:
        """Raise the reason if the session has ended."""

    def send(self, channel: int, command: int, *data: Buffer, timeout: float) -> None:
        """Send one packet."""

    def forget(self, channel: "Channel") -> None:
        """Drop all further packets for this channel."""


class Channel:
    """One conversation inside a session: a command, a file. Closing it also ends it on the board.

    ``timeout`` (s) limits each single wait: for room to send, and for the next packet. ``parting``
    is the counter in the CHANNEL_CLOSE with which labctl ends the channel.
    """

    def __init__(
        self,
        session: ChannelSession,
        number: int,
        timeout: float,
        parting: int = 1,
        limits: Limits = LIMITS,
    ):
        self.number = number
        self.limits = limits
        self.timeout = timeout
        self._session = session
        self._parting = parting
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._waiting_readers = 0
        self._closed = False
        self._abandoned: HostError | None = None
        self._ended_by_board = False

    def send(self, command: Command, *data: Buffer) -> None:
        """Send one packet; several buffers are sent as one packet. Raises LinkError."""
        self._session.send(self.number, command, *data, timeout=self.timeout)

    def pending(self) -> bool:
        """Return True if :meth:`receive` would return at once."""
        return bool(self._arrived)

    def receive(self, timeout: float | None = None) -> tuple[int, bytes]:
        """Return the next packet's command and data, in order; CHANNEL_CLOSE is the last packet.

        CHANNEL_CLOSE is also returned when another thread closes the channel. Raises CommandTimeout
        if no packet comes within ``timeout`` seconds (default: the channel's), DeviceLost or
        ProtocolError if the link broke, HostError if packets waited too long for this call.
        """
        seconds = self.timeout if timeout is None else timeout
        with self._changed:
            self._waiting_readers += 1
            try:
                arrived = interrupts.wait_for(
                    self._changed,
                    lambda: (
                        self._arrived or self._closed or self._abandoned or self._session.failure
                    ),
                    timeout=max(seconds, 0),
                )
            finally:
                self._waiting_readers -= 1
            if not arrived:
                raise CommandTimeout(
                    f"no answer from {self._session.label} within {seconds:.3g} s",
                    hint="the board may be frozen or overloaded, or the step needs more time",
                )
            if not self._arrived:
                if self._closed:
                    return Command.CHANNEL_CLOSE, b""
                if self._abandoned is not None:
                    raise self._abandoned.again()
                self._session.check()
            command, data = self._arrived.popleft()
            self._waiting_bytes -= len(data) + _PACKET_BYTES
            self._changed.notify_all()
        if command == Command.CHANNEL_CLOSE:
            self._ended_by_board = True
            # The one-byte counter is sent back and forth, each time reduced by one, until it is 0.
            if data and data[0]:
                self._send_close(data[0] - 1)
        return command, data

    @property
    def is_awaited(self) -> bool:
        """True while a thread waits in :meth:`receive`."""
        return self._waiting_readers > 0

    def deliver(self, command: int, data: bytes, timeout: float) -> bool:
        """Take a packet from the reading thread; return False after ``timeout`` s without room."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: (
                    self._waiting_bytes < self.limits.queue_bytes
                    or self._closed
                    or self._session.failure
                ),
                timeout=timeout,
            ):
                return False
            if not self._closed:
                self._arrived.append((command, data))
                self._waiting_bytes += len(data) + _PACKET_BYTES
                self._changed.notify_all()
        return True

    def abandon(self, reason: HostError) -> None:
        """Accept no more packets; :meth:`receive` raises ``reason`` after the last one."""
        with self._changed:
            self._abandoned = reason
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake all waiting threads so that they check the session's state again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End the conversation; on the board, a running ``sh`` gets its TERM. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            unseen = [data for command, data in self._arrived if command == Command.CHANNEL_CLOSE]
            self._changed.notify_all()
        self._session.forget(self)
        if self._ended_by_board:
            return
        # Answer a CHANNEL_CLOSE of the board that was not read (for example, after a refusal).
        if not unseen:
            self._send_close(self._parting)
        elif unseen[0] and unseen[0][0]:
            self._send_close(unseen[0][0] - 1)

    def _send_close(self, counter: int) -> None:
        # A lost link has already ended the channel; packets received before stay valid.
        with suppress(LinkError):
            self._session.send(
                self.number,
                Command.CHANNEL_CLOSE,
                bytes([counter]),
                timeout=min(self.timeout, _CLOSE_SECONDS),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


#: Data bytes of one packet, as in the reference.
_PIECE_BYTES = 65_535


class PortChannel:
    """A connection over a channel, with the methods of a socket."""

    def __init__(self, channel: Channel, context: bytes):
        self._channel = channel
        self._context = context
        self._arrived = b""
        self.is_over = False

    def settimeout(self, seconds: float) -> None:
        """Limit each wait from now on."""
        self._channel.timeout = seconds

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all data. Raises LinkError."""
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
        """End the connection, on the board too. A half-close is not possible."""
        if not self.is_over:
            self.is_over = True
            with suppress(LinkError):  # a lost link has already ended it
                self._channel.send(Command.FORWARD_FREE_CONTEXT, self._context)


@contextmanager
def connected_port(channel: Channel, node: str) -> Iterator[PortChannel]:
    """Connect to a node of the board over a new channel.

    Raises LinkRefused if nothing listens there, another LinkError, BoardError.
    """
    channel.send(Command.WAKEUP_SLAVETASK)
    channel.send(Command.FORWARD_CHECK, os.urandom(ID_BYTES), naming(node))
    expect(
        channel,
        Command.FORWARD_CHECK_RESULT,
        also=lambda command, _: command == Command.FORWARD_FREE_CONTEXT,
    )
    context = os.urandom(ID_BYTES)
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
