"""Hooks of a daemon for its packets and files.

By default they change nothing. Virtual boards inject faults through them, so that the daemon itself
needs no code for faults.
"""

import os
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

Buffer = bytes | bytearray | memoryview


class Line(ABC):
    """One connection, as hooks use it; on the daemon's event loop only."""

    protocol: ClassVar[Literal["hdc", "adb"]] = "hdc"

    @abstractmethod
    def deliver(self, channel: int, command: int, data: memoryview) -> None:
        """Handle a packet of the host. Raises ProtocolError."""

    @abstractmethod
    def encode(self, channel: int, command: int, *data: Buffer) -> bytes:
        """Return a packet as bytes, its data in parts."""

    @abstractmethod
    def write(self, raw: Buffer) -> None:
        """Send bytes to the host; do nothing if it is gone."""

    @abstractmethod
    def hold(self, *, held: bool) -> None:
        """Stop or resume reading from the host."""

    @abstractmethod
    def finish(self, channel: int) -> None:
        """End the work of a channel and close it as if the work were finished."""

    @abstractmethod
    def abort(self) -> None:
        """Cut the connection."""


class Storage:
    """The system calls of file transfers, as in :mod:`os`. They raise OSError, ValueError."""

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Open the file and return its descriptor."""
        return os.open(path, flags, mode)

    def size(self, descriptor: int) -> int:
        """Return the size of an open file in bytes."""
        return os.fstat(descriptor).st_size

    def read(self, descriptor: int, count: int, offset: int) -> bytes:
        """Read up to ``count`` bytes from ``offset``."""
        return os.pread(descriptor, count, offset)

    def write(self, descriptor: int, data: Buffer, offset: int) -> int:
        """Write at ``offset``; return the number of bytes written."""
        return os.pwrite(descriptor, data, offset)


class Wire:
    """Observer of both directions of one connection; created when a host connects."""

    _storage = Storage()

    def __init__(self, line: Line):
        self._line = line

    def incoming(self, channel: int, command: int, data: memoryview) -> None:
        """Handle a received packet; ``data`` is valid only in the call. Raises ProtocolError."""
        self._line.deliver(channel, command, data)

    def outgoing(self, channel: int, command: int, *data: Buffer) -> None:
        """Handle a packet to be sent, its data in parts."""
        self._line.write(self._line.encode(channel, command, *data))

    def storage(self, channel: int) -> Storage:  # noqa: ARG002
        """Return the files of a channel's transfer."""
        return self._storage

    async def drained(self) -> None:
        """Wait until most of the data held back here is sent, or the host is gone."""

    def lost(self) -> None:
        """Note that the connection ended."""


class Interference:
    """Faults of one board, as the daemon calls them."""

    def wire(self, line: Line) -> Wire:
        """Return the observer of a new connection."""
        return Wire(line)
