"""A pseudo-terminal of a given width, and what programs write to it."""

import fcntl
import os
import pty
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """A terminal to write to, and what was written to it when the block is over."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                seen.append(os.read(mine, 1 << 16))
            except OSError:  # the last writer is gone
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield theirs, seen
    finally:
        os.close(theirs)
        reader.join()
        os.close(mine)
