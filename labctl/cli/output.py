"""Standard output and standard error: bytes of boards, and streams that nobody has to read."""

import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click

from labctl.errors import ExitStatus

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def confirm(question: str) -> None:
    """Ask on the terminal. Exits with status 1 if the answer is no."""
    if not click.confirm(question, err=True):
        click.echo("cancelled", err=True)
        raise click.exceptions.Exit(ExitStatus.JOB)


def write_output(piece: bytes) -> None:
    """Print bytes at once. Raises BrokenPipeError when nobody reads."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


class _Unfailing(io.FileIO):
    """A file descriptor that leads nowhere from the first failed write on."""

    def write(self, piece: "ReadableBuffer", /) -> int:
        """Write as much as goes at once; all of it is gone when nobody reads any more."""
        try:
            while (written := super().write(piece)) is None:  # somebody made it non-blocking
                select.select([], [self], [])
        except OSError:  # a closed pipe, a terminal that vanished, a full disk
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(piece).nbytes
        return written


def unfailing(stream: TextIO | None) -> TextIO | None:
    """Return a stream to the same place, which falls silent when nobody reads it any more.

    One that was closed from the start (None), or has no file descriptor, is returned as it is.
    """
    if stream is None:
        return None
    with suppress(OSError):  # what is left in it goes nowhere once the descriptor leads there
        stream.flush()
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    raw = _Unfailing(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True
    )
