"""A large file of this host in chunks, read once for any number of boards."""

import hashlib
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from labctl.errors import ConfigError, IntegrityError, LabctlError

#: Large enough that a chunk's own cost vanishes, small enough to be sent twice without regret.
CHUNK_BYTES = 4 << 20
#: Chunks that boards may be apart before the slower one has to read for itself.
_KEPT = 8
#: Chunks that are read and hashed while earlier ones are sent.
_AHEAD = 2


@dataclass(frozen=True)
class Chunk:
    """One chunk and the SHA-256 of it."""

    index: int
    data: bytes
    digest: bytes


class ChunkedFile:
    """A file whose SHA-256 is known. Safe to use from several threads.

    Each reads the chunks in order. The first to need one reads it for all, and a few ahead; what
    one that fell behind reads again is compared with what the first one had. Reading and hashing go
    on in threads of their own. Memory is bounded, whatever the file's size.
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
        # One thread each: chunks are read, and added to the whole's hash, in their order.
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
        """Return the bytes of a chunk: all but the last have the same number."""
        return min(self.chunk_bytes, self.size_bytes - index * self.chunk_bytes)

    def chunk(self, index: int) -> Chunk:
        """One chunk. Raises ConfigError when the file is not what it was."""
        with self._asking:
            # Who fell behind takes what it needs: more would cost the others what is kept for them.
            ahead = _AHEAD if index + _KEPT >= len(self._digests) else 0
            for wanted in range(index, min(index + 1 + ahead, self.count)):
                if wanted not in self._kept:
                    self._kept[wanted] = self._reader.submit(self._read, wanted)
            found = self._kept[index]
            while len(self._kept) > _KEPT + _AHEAD:
                self._kept.popitem(last=False)
        try:
            return found.result()
        except LabctlError as error:
            raise error.again() from error

    def digest(self, index: int) -> bytes:
        """Return a chunk's SHA-256; it is read only if nobody has read it yet. Raises
        ConfigError.
        """
        if index < len(self._digests):
            return self._digests[index]
        return self.chunk(index).digest

    def prove(self) -> None:
        """All that was read is the file with the SHA-256 that was promised. Raises ConfigError."""
        if len(self._digests) != self.count:
            raise IntegrityError(f"{self.path} was not read to its end")
        if self._hashed is not None:
            self._hashed.result()
        if self._whole.hexdigest() != self._sha256:
            raise self._changed()

    def close(self) -> None:
        """Give the file back. Idempotent."""
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
                self._hashed.result()  # no more than one waits, with its data
            self._hashed = self._hasher.submit(self._whole.update, data)
            self._digests.append(digest)  # last: once all are there, the whole's may be asked for
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
