"""A task on a daemon's channel, and the part of its connection that it may use."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine

from labctl.daemon.hooks import Storage
from labctl.errors import ProtocolError
from labctl.hdc.daemon.board import Board
from labctl.hdc.messages import EchoLevel
from labctl.hdc.wire import Command

#: Maximum bytes from the host waiting for a task; above it, the connection is not read.
_INBOX_BYTES = 2 << 20
#: Added for each packet in an inbox, so that empty packets fill it too.
_PACKET_WEIGHT_BYTES = 256


class Link(ABC):
    """The connection as seen by its tasks."""

    @abstractmethod
    def send(self, channel: int, command: Command, *data: bytes) -> None:
        """Queue one packet, its data in parts; do nothing if the host is gone."""

    @abstractmethod
    def storage(self, channel: int) -> Storage:
        """Return the files of a channel's transfer."""

    @abstractmethod
    async def drained(self) -> None:
        """Wait until the host has read most of the queued data, or is gone."""

    @abstractmethod
    def hold_back(self, holder: object, *, held: bool) -> None:
        """Stop reading from the host until every holder has released it."""

    @abstractmethod
    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run ``work`` concurrently; it may outlive the connection, but not the daemon."""

    @abstractmethod
    def finish(self, channel: int) -> None:
        """Stop the finished task of this channel and close the channel."""

    @abstractmethod
    def abort(self) -> None:
        """Cut the connection."""


class Task(ABC):
    """The work on one channel. ``data`` comes from the packet that began it."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        self._link = link
        self._channel = channel
        self._board = board
        self._data = data

    @abstractmethod
    def start(self) -> None:
        """Begin to work; the task is already registered."""

    @abstractmethod
    def packet(self, command: int, data: memoryview) -> None:
        """Handle a packet of this channel; ``data`` is valid only during the call."""

    @abstractmethod
    def stop(self) -> None:
        """Release everything and send nothing more. Idempotent."""

    @property
    def _storage(self) -> Storage:
        return self._link.storage(self._channel)

    def _send(self, command: Command, *data: bytes) -> None:
        self._link.send(self._channel, command, *data)

    def _echo(self, level: EchoLevel, text: str) -> None:
        self._send(Command.ECHO, bytes([level]) + text.encode(errors="surrogateescape"))

    def _finish(self) -> None:
        self._link.finish(self._channel)

    def _fail(self, text: str) -> None:
        """Send the reason, and finish."""
        self._echo(EchoLevel.FAIL, text)
        self._finish()


class Inbox:
    """Packets that wait for a coroutine.

    A full inbox stops the whole connection with all its channels: the protocol has no flow control
    for single channels.
    """

    def __init__(self, link: Link):
        self._link = link
        self._packets: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()

    def put(self, command: int, data: bytes) -> None:
        """Keep a packet for :meth:`get`."""
        self._packets.append((command, data))
        self._weigh(len(data) + _PACKET_WEIGHT_BYTES)
        self._arrived.set()

    async def get(self) -> tuple[int, bytes]:
        """Return the next packet: command and data."""
        while not self._packets:
            self._arrived.clear()
            await self._arrived.wait()
        command, data = self._packets.popleft()
        self._weigh(-len(data) - _PACKET_WEIGHT_BYTES)
        return command, data

    def close(self) -> None:
        """Drop the waiting packets. No coroutine may be in :meth:`get`."""
        self._packets.clear()
        self._weigh(-self._waiting_bytes)

    def _weigh(self, change: int) -> None:
        self._waiting_bytes += change
        self._link.hold_back(self, held=self._waiting_bytes > _INBOX_BYTES)


class Dialogue(Task):
    """A task in one coroutine that handles the packets of its channel one by one."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self._inbox = Inbox(link)
        self._work: asyncio.Task[None] | None = None

    @abstractmethod
    async def _run(self) -> None:
        """Do the work, then call :meth:`_finish`. ProtocolError cuts the connection."""

    def start(self) -> None:
        """Begin to work."""
        self._work = self._link.spawn(self._guarded())

    def packet(self, command: int, data: memoryview) -> None:
        """Keep the packet until it is needed."""
        self._inbox.put(command, bytes(data))

    def stop(self) -> None:
        """Cancel the work."""
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
        self._inbox.close()

    async def _expect(self, command: Command) -> bytes:
        """Return the data of the next packet of a kind; drop other packets, as hdcd does."""
        while True:
            found, data = await self._inbox.get()
            if found == command:
                return data

    async def _guarded(self) -> None:
        try:
            await self._run()
        except ProtocolError:
            self._link.abort()
