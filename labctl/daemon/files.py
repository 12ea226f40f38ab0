"""Files of transfers, opened, read and written in threads: a slow disk delays only one transfer."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from labctl.daemon.hooks import Storage

T = TypeVar("T")

#: Without O_NONBLOCK, opening a named pipe without a peer would block a thread.
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
READ = os.O_RDONLY | _FLAGS
#: A file is truncated and written in place, as hdcd does.
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
_FILE_MODE = 0o644


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function that may wait for a disk in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, function)


class DiskFile:
    """An open file; one call at a time. :meth:`close` it, on the event loop."""

    def __init__(self, storage: Storage, descriptor: int):
        self._storage = storage
        self._descriptor = descriptor
        self._busy: asyncio.Future[Any] | None = None

    @classmethod
    async def open(cls, storage: Storage, path: str, flags: int) -> "DiskFile":
        """Open a file with :data:`READ` or :data:`WRITE`. Raises OSError, ValueError."""
        opening = asyncio.get_running_loop().run_in_executor(
            None, storage.open, path, flags, _FILE_MODE
        )
        try:
            return cls(storage, await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    def fileno(self) -> int:
        """Return the descriptor. Valid until the file is closed."""
        return self._descriptor

    def stat(self) -> os.stat_result:
        """Return the file's status."""
        return os.fstat(self._descriptor)

    def size(self) -> int:
        """Return the size in bytes. Raises OSError."""
        return self._storage.size(self._descriptor)

    async def read(self, count: int, offset: int) -> bytes:
        """Read up to ``count`` bytes from ``offset``. Raises OSError."""
        return await self._call(partial(self._storage.read, self._descriptor, count, offset))

    async def write(self, data: bytes, offset: int) -> None:
        """Write all of ``data``. Raises OSError."""
        await self._call(partial(self._write, self._descriptor, data, offset))

    async def change(self, change: Callable[[int], None]) -> None:
        """Call ``change`` with the descriptor, in a thread."""
        await self._call(partial(change, self._descriptor))

    def close(self) -> None:
        """Close the file once no thread uses it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self._busy is None or self._busy.done():
            os.close(descriptor)
        else:  # the waiting task was cancelled; its system call cannot be
            self._busy.add_done_callback(partial(_close_later, descriptor))

    def _write(self, descriptor: int, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            count = self._storage.write(descriptor, view, offset)
            view, offset = view[count:], offset + count

    async def _call(self, function: Callable[[], T]) -> T:
        busy = asyncio.get_running_loop().run_in_executor(None, function)
        self._busy = busy
        return await asyncio.shield(busy)


def _close_later(descriptor: int, busy: "asyncio.Future[Any]") -> None:
    os.close(descriptor)
    busy.exception()  # mark the exception as retrieved


def _close_unwanted(opening: "asyncio.Future[int]") -> None:
    if opening.exception() is None:
        os.close(opening.result())
