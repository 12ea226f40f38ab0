"""One stream between a host and a service of the phone, and the connection that carries it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from labctl.adb.packets import Command
from labctl.daemon.hooks import Storage
from labctl.errors import ProtocolError


class StreamClosed(Exception):
    """The host has closed the stream, or is gone."""


class Carrier(ABC):
    """The connection as seen by its streams."""

    max_data: int
    """Maximum data of a packet that the host takes."""

    @abstractmethod
    def send(self, local: int, remote: int, command: Command, data: bytes = b"") -> None:
        """Queue a packet; do nothing if the host is gone."""

    @abstractmethod
    async def drained(self) -> None:
        """Wait until the host has read most of the queued data, or is gone."""

    @abstractmethod
    def storage(self, stream: "Stream") -> Storage:
        """Return the files of a stream's transfer."""

    @abstractmethod
    def forget(self, stream: "Stream") -> None:
        """Remove a stream that is closed."""

    @abstractmethod
    def open(self, service: str) -> "Stream | None":
        """Open a stream to a service of the host; None if there are too many streams."""

    @abstractmethod
    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run ``work`` concurrently; it may outlive the connection, but not the daemon."""


class Stream:
    """One stream. ``local`` is the phone's number of it, ``remote`` the host's; 0: not yet open.

    The host's data waits here, one packet at most: the next one comes only after OKAY, which is
    sent when the service has taken the data.
    """

    def __init__(self, carrier: Carrier, local: int, remote: int):
        self.carrier = carrier
        self.local = local
        self.remote = remote
        self.is_open = False
        self._waiting: bytes | None = None
        self._is_over = False
        self._may_write = asyncio.Event()
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()

    # Called by the connection

    def opened(self, remote: int) -> None:
        """Handle OKAY: the stream is open, or the last data was taken."""
        self.remote, self.is_open = remote, True
        self._may_write.set()
        self._changed.set()

    def received(self, data: bytes) -> None:
        """Handle WRITE. Raises ProtocolError if the host did not wait for OKAY."""
        if self._waiting is not None:
            raise ProtocolError("the host does not wait for OKAY")
        self._waiting = data
        self._changed.set()

    def over(self) -> None:
        """Note that the host has closed the stream; data that came before can be read."""
        self._is_over = True
        self._may_write.set()
        self._changed.set()

    # Called by services

    def accept(self) -> None:
        """Tell the host that the service has begun."""
        self.is_open = True
        self._may_write.set()
        self._send(Command.OKAY)

    async def read(self) -> bytes:
        """Return the next data of the host; empty at the end of the stream."""
        while self._waiting is None:
            if self._is_over:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data, self._waiting = self._waiting, None
        if not self._is_over:
            self._send(Command.OKAY)
        return data or await self.read()

    async def write(self, data: bytes) -> None:
        """Send data; each packet waits until the host has taken the one before.

        Raises StreamClosed.
        """
        async with self._writing:
            for start in range(0, len(data), self.carrier.max_data):
                await self._may_write.wait()
                if self._is_over:
                    raise StreamClosed
                self._may_write.clear()
                self._send(Command.WRITE, data[start : start + self.carrier.max_data])
                await self.carrier.drained()

    async def is_accepted(self) -> bool:
        """Return True once the host has opened a stream of the phone; False if it refuses."""
        await self._may_write.wait()
        return not self._is_over

    def close(self) -> None:
        """End the stream, or refuse it if no service has begun. Idempotent."""
        if not self._is_over:
            local = self.local if self.is_open else 0
            self.carrier.send(local, self.remote, Command.CLOSE)
        self.over()
        self._waiting = None
        self.carrier.forget(self)

    def _send(self, command: Command, data: bytes = b"") -> None:
        self.carrier.send(self.local, self.remote, command, data)


class ExactReader:
    """Reads a stream in pieces of given sizes."""

    def __init__(self, stream: Stream):
        self._stream = stream
        self._data = memoryview(b"")

    async def read(self, count: int) -> bytes:
        """Return ``count`` bytes. Raises StreamClosed."""
        pieces = []
        while count:
            if not self._data:
                self._data = memoryview(await self._stream.read())
                if not self._data:
                    raise StreamClosed
            piece, self._data = self._data[:count], self._data[count:]
            count -= len(piece)
            pieces.append(piece)
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
