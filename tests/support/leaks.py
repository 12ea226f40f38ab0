"""What a test may leave behind: nothing."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.retry import wait_until

#: Connections that end on both sides, threads that notice, processes that are reaped.
_SETTLING_SECONDS = 30.0


def threads() -> set[str]:
    """The threads of this process; the pool of a board's event loop is there to stay."""
    return {
        f"{thread.name} {thread.ident}"
        for thread in threading.enumerate()
        if not thread.name.startswith("asyncio_")
    }


def descriptors() -> int:
    """How many files, sockets and pipes this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - one descriptor, not an iterator's life


def marked(word: bytes) -> list[int]:
    """Processes with ``word`` in their environment, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if word in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@contextmanager
def nothing_left(directory: Path) -> Iterator[None]:
    """No thread, descriptor, or process of the board in ``directory`` outlives the context."""
    home = f"HOME={directory}".encode()
    before = threads(), descriptors(), marked(home)
    yield
    gc.collect()
    settled = wait_until(
        lambda: (
            threads() <= before[0]
            and descriptors() <= before[1]
            and set(marked(home)) <= set(before[2])
        ),
        timeout=_SETTLING_SECONDS,
        interval=0.01,
    )
    if not settled:
        open_files = [str(p.readlink()) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()]
        raise AssertionError(
            f"left behind: threads {threads() - before[0]}, {descriptors() - before[1]} descriptors"
            f" of {open_files}, processes {set(marked(home)) - set(before[2])}"
        )
