"""Standard output that reports write errors, and standard error that never ends a command."""

import io
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from labctl.errors import HostError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def lead_nowhere(descriptor: int) -> None:
    """Discard everything that is still written to a file descriptor."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _Unfailing(io.FileIO):
    """A file descriptor that discards everything after the first failed write."""

    def write(self, piece: "ReadableBuffer", /) -> int:
        """Write as much as possible at once; discard all of it when nobody reads any more."""
        try:
            while (written := super().write(piece)) is None:  # somebody made it non-blocking
                select.select([], [self], [])
        except OSError:  # a closed pipe, a terminal that vanished, a full disk
            lead_nowhere(self.fileno())
            return memoryview(piece).nbytes
        return written


class _Explaining(io.BufferedWriter):
    """Standard output: a failed write is an error of this host. Later writes are discarded.

    This is not done in the raw file below: an interrupt as it returns would write bytes twice.
    """

    def write(self, piece: "ReadableBuffer", /) -> int:
        """Write, or keep until there is more. Raises HostError, or OSError when nobody reads."""
        with self._explained():
            return super().write(piece)

    def flush(self) -> None:
        """Write what was kept. Raises as :meth:`write` does."""
        with self._explained():
            super().flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            lead_nowhere(self.fileno())  # also for what Python writes as it ends
            raise HostError(f"cannot write standard output: {error.strerror}") from error


def explaining(stream: TextIO | None) -> TextIO:
    """Return a stream to the same file whose failures are errors of this host.

    A stream that was closed from the start (None) discards everything.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        _Explaining(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.isatty(),
    )


def unfailing(stream: TextIO | None) -> TextIO | None:
    """Return a stream to the same file that discards everything when nobody reads it any more.

    A stream that was closed from the start (None), or has no file descriptor, is returned as it is.
    """
    if stream is None:
        return None
    with suppress(OSError):  # its remaining text is discarded with the descriptor
        stream.flush()
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    raw = _Unfailing(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True
    )
