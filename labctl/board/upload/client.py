"""The host's part of ``agent receive``: chunks sent to a port of the board, each verified there.

A large file is read once, in chunks, for any number of boards (:class:`ChunkedFile`). The protocol
is described in ``toolchains/agent/receive.c``. Every acknowledged chunk was hashed by the agent and
is in the file; after a lost link, acknowledged chunks are not sent again.
"""

import errno
import hashlib
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from labctl import interrupts
from labctl.errors import (
    FULL_NUMBERS,
    REFUSED_NUMBERS,
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    IntegrityError,
    LabctlError,
    LeaseLost,
    ProtocolError,
)
from labctl.progress import BytesDone
from labctl.transport.linked import Stream
from labctl.units import size

#: Large enough for a small overhead per chunk, small enough to be sent twice.
CHUNK_BYTES = 4 << 20
#: Maximum distance of boards in chunks; a slower board reads the file itself.
_KEPT = 8
#: Chunks read and hashed while earlier chunks are sent.
_AHEAD = 2


@dataclass(frozen=True)
class Chunk:
    """One chunk and its SHA-256."""

    index: int
    data: bytes
    digest: bytes


class ChunkedFile:
    """A file with a known SHA-256. Safe to use from several threads.

    Each thread reads the chunks in order. The first thread that needs a chunk reads it for all, and
    a few ahead. If a slower thread has to read it again, the bytes are compared with the first
    read. Reading and hashing use separate threads. Memory is limited, for any file size.
    """

    def __init__(self, path: Path, sha256: str, size_bytes: int, chunk_bytes: int = CHUNK_BYTES):
        self.path = path
        self.size_bytes = size_bytes
        self.chunk_bytes = chunk_bytes
        self.count = -(-size_bytes // chunk_bytes)
        self._sha256 = sha256
        self._whole = hashlib.sha256()
        self._digests: list[bytes] = []
        self._hashed: Future[None] | None = None
        self._kept: OrderedDict[int, Future[Chunk]] = OrderedDict()
        self._asking = threading.Lock()
        # One thread each: chunks are read, and added to the file's hash, in order.
        self._reader = ThreadPoolExecutor(1, "read chunks")
        self._hasher = ThreadPoolExecutor(1, "hash file")
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        if os.fstat(self._descriptor).st_size != size_bytes:
            self.close()
            raise self._changed()

    def length(self, index: int) -> int:
        """Return the size of a chunk in bytes; only the last chunk is smaller."""
        return min(self.chunk_bytes, self.size_bytes - index * self.chunk_bytes)

    def chunk(self, index: int) -> Chunk:
        """Return one chunk. Raises ConfigError if the file has changed."""
        with self._asking:
            # A slower board reads only what it needs: more would displace chunks kept for other
            # boards.
            ahead = _AHEAD if index + _KEPT >= len(self._digests) else 0
            for wanted in range(index, min(index + 1 + ahead, self.count)):
                if wanted not in self._kept:
                    self._kept[wanted] = self._reader.submit(self._read, wanted)
            found = self._kept[index]
            while len(self._kept) > _KEPT + _AHEAD:
                self._kept.popitem(last=False)
        try:
            return interrupts.result(found)
        except LabctlError as error:
            raise error.again() from error

    def digest(self, index: int) -> bytes:
        """Return a chunk's SHA-256; read the chunk only if it was never read.

        Raises ConfigError.
        """
        if index < len(self._digests):
            return self._digests[index]
        return self.chunk(index).digest

    def prove(self) -> None:
        """Check that the read bytes have the expected SHA-256. Raises ConfigError."""
        if len(self._digests) != self.count:
            raise IntegrityError(f"{self.path} was not read to its end")
        if self._hashed is not None:
            interrupts.result(self._hashed)
        if self._whole.hexdigest() != self._sha256:
            raise self._changed()

    def close(self) -> None:
        """Close the file. Idempotent."""
        for pool in (self._reader, self._hasher):
            pool.shutdown(cancel_futures=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, index: int) -> Chunk:
        try:
            data = os.pread(self._descriptor, self.length(index), index * self.chunk_bytes)
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        if len(data) != self.length(index):
            raise self._changed()
        digest = hashlib.sha256(data).digest()
        if index == len(self._digests):
            if self._hashed is not None:
                self._hashed.result()  # at most one waits, with its data
            self._hashed = self._hasher.submit(self._whole.update, data)
            self._digests.append(digest)  # last: then the hash of the file is available
        elif index > len(self._digests) or self._digests[index] != digest:
            raise self._changed()
        return Chunk(index, data, digest)

    def _changed(self) -> ConfigError:
        return ConfigError(
            f"{self.path} is not the file that was hashed before: it changed",
            hint="let nothing write to it during a deploy, and run it again",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


#: Maximum number of unacknowledged chunks: the loss if the link breaks. The first chunk is sent
#: alone, so that a slow link shows progress soon; each acknowledgement makes room for one more
#: chunk.
WINDOW = 4
#: Number of bytes paced at once: if boards share a low rate, no agent waits too long. It fits into
#: one packet of hdc.
_PIECE_BYTES = 60 << 10
_DIGEST_BYTES = 32
_NUMBER = struct.Struct(">I")
_CHUNK = struct.Struct(">cII32s")
#: Number of times that a chunk may arrive damaged before the transfer fails.
_MOST_DAMAGED = 5


class Busy(BoardError):
    """Another transfer is filling the same file."""

    @classmethod
    def of(cls, label: str, source: ChunkedFile) -> Self:
        """Return the error for a file on a board."""
        return cls(f"{label}: another transfer of {source.path.name} is under way")


@dataclass
class Counters:
    """Bytes of a file on the board, and bytes sent over the link for it, over all attempts.

    ``most_bytes`` is the maximum present in any attempt.
    """

    present_bytes: int = 0
    most_bytes: int = 0
    sent_bytes: int = 0


def send_chunks(
    stream: Stream,
    token: str,
    source: ChunkedFile,
    counters: Counters,
    *,
    finish_timeout: float,
    progress: BytesDone,
    pace: Callable[[int], None],
) -> bool:
    """Send the agent all missing chunks, until it reports that the file is complete.

    Return False if another transfer has completed it meanwhile.

    Args:
        stream: a connection to the agent; its time-out limits each wait.
        token: authenticates this host to the agent.
        finish_timeout: limit (s) of the agent's last sync to the storage.
        progress: gets the number of bytes verified on the board.
        pace: called before bytes are sent, with their number; it waits if a rate is limited.

    Raises DeviceLost, CommandTimeout (acknowledged chunks stay, call again), Busy, IntegrityError,
    BoardNoSpace, BoardPermission, BoardError, ConfigError (the local file changed).
    """
    talk = _Talk(stream, source, counters, progress, pace)
    counters.present_bytes = 0
    with talk.named():
        if not talk.begin(token):
            return False
        for index in range(source.count):
            talk.offer(index)
        talk.settle()
        source.prove()
        stream.timeout = finish_timeout
        talk.finish()
    return True


@dataclass
class _Talk:
    """One conversation with the agent."""

    stream: Stream
    source: ChunkedFile
    counters: Counters
    progress: BytesDone
    pace: Callable[[int], None]
    here: dict[int, bytes] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    damaged: int = 0
    acknowledged: int = 0

    @property
    def label(self) -> str:
        """Name of the board in messages."""
        return self.stream.label

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the file's name to errors of the link."""
        try:
            yield
        except (CommandTimeout, DeviceLost) as error:
            raise error.during(f"sending {self._what}") from error

    def begin(self, token: str) -> bool:
        """Send the token and receive the list of chunks that the board reads again.

        Return False if the file is complete.
        """
        self.stream.send(token.encode())
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
        """Send a chunk unless the board already has it."""
        if index in self.here and self.here[index] == self.source.digest(index):
            self._arrived(index)
            return
        self._send_chunk(index)

    def _send_chunk(self, index: int) -> None:
        chunk = self.source.chunk(index)
        while len(self.in_flight) >= min(WINDOW, 1 + self.acknowledged):
            self._hear()
        self.stream.send(_CHUNK.pack(b"C", index, len(chunk.data), chunk.digest))
        self.in_flight.add(index)
        data = memoryview(chunk.data)
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self.pace(len(piece))
            self.stream.send(piece)
            self.counters.sent_bytes += len(piece)

    def settle(self) -> None:
        """Wait for the acknowledgement of all sent chunks."""
        while self.in_flight:
            self._hear()

    def finish(self) -> None:
        """Make the board sync the file to storage."""
        self.stream.send(b"F")
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
            self.acknowledged += 1
            self._arrived(index)
            return
        self.damaged += 1
        if self.damaged > _MOST_DAMAGED:
            raise IntegrityError(
                f"{self.label}: chunks of {self.source.path.name} keep arriving damaged",
                hint="check the cable, the hub and the board's memory",
            )
        self._send_chunk(index)

    def _arrived(self, index: int) -> None:
        self.counters.present_bytes += self.source.length(index)
        self.counters.most_bytes = max(self.counters.most_bytes, self.counters.present_bytes)
        self.progress(self.counters.present_bytes)

    def _take(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = self.stream.receive(count - len(got))
            if not piece:
                raise DeviceLost(f"{self.label}: the agent's connection ended too early")
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
        if number == errno.ESTALE:
            return LeaseLost(f"{self.label}: another controller took the board during {self._what}")
        reason = f"{self.label}: the board cannot write {self._what}: {os.strerror(number)}"
        if number in FULL_NUMBERS:
            rest = self.source.size_bytes - self.counters.present_bytes
            return BoardNoSpace(
                f"{reason}; {size(rest)} of {size(self.source.size_bytes)} are still missing",
                hint="free space on the board: labctl store prune",
            )
        return BoardPermission(reason) if number in REFUSED_NUMBERS else BoardError(reason)

    def _odd(self, kind: bytes) -> ProtocolError:
        return ProtocolError(f"{self.label}: unexpected {kind!r} from the agent")
