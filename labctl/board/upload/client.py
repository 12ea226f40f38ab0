"""The host's part of ``agent receive``: chunks over a forwarded port, each proven on the board.

The conversation is described in ``toolchains/agent/receive.c``. Every chunk that the agent
acknowledges was hashed there and is in the file; a chunk is never sent again because the link went.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Self

from labctl.board.upload.source import ChunkedFile
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    DeviceLost,
    IntegrityError,
    ProtocolError,
)
from labctl.units import size

#: Chunks that are sent before the first of them is acknowledged: what a lost link costs at most.
WINDOW = 4
#: What is paced at once: where boards share a low rate, agents must not wait too long for theirs.
_PIECE_BYTES = 64 << 10
_DIGEST_BYTES = 32
_NUMBER = struct.Struct(">I")
_CHUNK = struct.Struct(">cII32s")
#: How often a chunk may arrive damaged before the way is given up.
_MOST_DAMAGED = 5
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


class Busy(BoardError):
    """Somebody else fills the same file."""

    @classmethod
    def of(cls, label: str, source: ChunkedFile) -> Self:
        """The error for a file on a board."""
        return cls(f"{label}: another transfer of {source.path.name} is under way")


@dataclass(frozen=True)
class Receiver:
    """An agent that listens: ``port`` is carried to this host."""

    label: str
    port: int
    token: str


@dataclass
class Tally:
    """What of a file is on the board, and what crossed the link for it; over all attempts.

    ``most_bytes`` is the most that was present in any of them.
    """

    present_bytes: int = 0
    most_bytes: int = 0
    sent_bytes: int = 0


def send_chunks(
    receiver: Receiver,
    source: ChunkedFile,
    tally: Tally,
    *,
    stall_timeout: float,
    finish_timeout: float,
    progress: Callable[[int], None],
    pace: Callable[[int], None],
) -> bool:
    """Bring all chunks that the agent lacks to it, until it says that the file is whole.

    False when another transfer has brought it meanwhile.

    Args:
        stall_timeout: bounds (s) each wait for the board to take or say something.
        finish_timeout: bounds (s) its last sync to the storage.
        progress: gets the bytes that are proven on the board.
        pace: called before so many bytes are sent; it waits where a rate is limited.

    Raises DeviceLost, CommandTimeout (what was acknowledged stays, call again), Busy,
    IntegrityError, BoardNoSpace, BoardPermission, BoardError, ConfigError (the local file changed).
    """
    with closing(_connected(receiver, stall_timeout)) as sock:
        talk = _Talk(receiver.label, sock, source, tally, progress, pace)
        tally.present_bytes = 0
        if not talk.begin(receiver.token):
            return False
        for index in range(source.count):
            talk.offer(index)
        talk.settle()
        source.prove()
        sock.settimeout(finish_timeout)
        talk.finish()
        return True


def _connected(receiver: Receiver, timeout: float) -> socket.socket:
    try:
        return socket.create_connection(("127.0.0.1", receiver.port), timeout=timeout)
    except OSError as error:
        raise DeviceLost(
            f"{receiver.label}: the way to the agent's port broke: {error.strerror or error}"
        ) from error


@dataclass
class _Talk:
    """One conversation."""

    label: str
    sock: socket.socket
    source: ChunkedFile
    tally: Tally
    progress: Callable[[int], None]
    pace: Callable[[int], None]
    here: dict[int, bytes] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    damaged: int = 0

    def begin(self, token: str) -> bool:
        """Say the token, hear which chunks the board has. It reads them all again for that.

        False when the file is whole.
        """
        self._send(token.encode())
        while (kind := self._take(1)) in (b"G", b"B"):
            index = self._number()
            if index >= self.source.count:
                raise self._odd(kind)
            if kind == b"G":
                self.here[index] = self._take(_DIGEST_BYTES)
        if kind == b"E":
            number = self._number()
            if number == errno.EEXIST:
                return False
            raise self._cannot_write(number)
        if kind != b"R":
            raise self._odd(kind)
        return True

    def offer(self, index: int) -> None:
        """Send a chunk unless the board has it."""
        if index in self.here and self.here[index] == self.source.digest(index):
            self._arrived(index)
            return
        self._send_chunk(index)

    def _send_chunk(self, index: int) -> None:
        chunk = self.source.chunk(index)
        while len(self.in_flight) >= WINDOW:
            self._hear()
        self._send(_CHUNK.pack(b"C", index, len(chunk.data), chunk.digest))
        self.in_flight.add(index)
        data = memoryview(chunk.data)
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self.pace(len(piece))
            self._send(piece)
            self.tally.sent_bytes += len(piece)

    def settle(self) -> None:
        """Hear of all chunks that are under way."""
        while self.in_flight:
            self._hear()

    def finish(self) -> None:
        """Have the board make the file durable."""
        self._send(b"F")
        kind = self._take(1)
        if kind == b"E":
            raise self._cannot_write(self._number())
        if kind != b"D":
            raise self._odd(kind)

    def _hear(self) -> None:
        kind = self._take(1)
        index = self._number()
        if kind == b"E":
            raise self._cannot_write(index)
        if kind not in (b"A", b"B") or index not in self.in_flight:
            raise self._odd(kind)
        self.in_flight.discard(index)
        if kind == b"A":
            self._arrived(index)
            return
        self.damaged += 1
        if self.damaged > _MOST_DAMAGED:
            raise IntegrityError(
                f"{self.label}: chunks of {self.source.path.name} keep arriving damaged",
                hint="suspect the cable, the hub or the board's memory",
            )
        self._send_chunk(index)

    def _arrived(self, index: int) -> None:
        self.tally.present_bytes += self.source.length(index)
        self.tally.most_bytes = max(self.tally.most_bytes, self.tally.present_bytes)
        self.progress(self.tally.present_bytes)

    def _send(self, data: bytes | memoryview) -> None:
        try:
            self.sock.sendall(data)
        except TimeoutError as error:
            raise self._silent() from error
        except OSError as error:
            raise self._lost(error) from error

    def _take(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            try:
                piece = self.sock.recv(count - len(got))
            except TimeoutError as error:
                raise self._silent() from error
            except OSError as error:
                raise self._lost(error) from error
            if not piece:
                raise DeviceLost(f"{self.label}: the link broke while {self._what} was sent")
            got += piece
        return got

    def _number(self) -> int:
        number: int
        (number,) = _NUMBER.unpack(self._take(_NUMBER.size))
        return number

    @property
    def _what(self) -> str:
        return self.source.path.name

    def _cannot_write(self, number: int) -> BoardError:
        if number == errno.EAGAIN:
            return Busy.of(self.label, self.source)
        reason = f"{self.label}: the board cannot write {self._what}: {os.strerror(number)}"
        if number in _NO_SPACE:
            rest = self.source.size_bytes - self.tally.present_bytes
            return BoardNoSpace(
                f"{reason}; {size(rest)} of {size(self.source.size_bytes)} are still to come",
                hint="free space on the board: labctl deploy --prune",
            )
        return BoardPermission(reason) if number in _REFUSED else BoardError(reason)

    def _silent(self) -> CommandTimeout:
        return CommandTimeout(
            f"{self.label}: no progress with {self._what} for {self.sock.gettimeout():g} s",
            hint="the board may be frozen, or its storage stuck",
        )

    def _lost(self, error: OSError) -> DeviceLost:
        return DeviceLost(
            f"{self.label}: the link broke while {self._what} was sent: {error.strerror or error}"
        )

    def _odd(self, kind: bytes) -> ProtocolError:
        return ProtocolError(f"{self.label}: the agent says {kind!r} where nothing such is due")
