"""Locks between processes of this host."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from labctl.errors import ConfigError, HostTimeout
from labctl.files import host_reads, host_writes
from labctl.retry import wait_until


@contextmanager
def locked(
    path: Path,
    *,
    timeout: float,
    holder: str = "another labctl",
    make_folder: bool = True,
    note: str = "",
) -> Iterator[int]:
    """Hold an exclusive lock between processes of this host; the kernel frees it on any death.

    Gives the lock's file descriptor: a program that inherits it holds the lock too, until the block
    ends.
    ``note`` is written to the file for others; by default the process id.
    Raises HostTimeout when it is not free within ``timeout`` seconds; the message says whose it is.
    Without ``make_folder`` raises ConfigError if its folder is gone, also if it went meanwhile.
    """
    gone = ConfigError(f"{path.parent} is gone", hint="another labctl moved or removed it")
    with host_writes(path):
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open(
                "a+", encoding="utf-8", errors="replace"
            )  # who wrote it last may have been cut off
        except FileNotFoundError as error:
            raise gone from error
    with file:

        def attempt() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not wait_until(attempt, timeout=timeout, interval=0.1):
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise HostTimeout(
                f"{holder} (process {pid}) holds {path}"
                + (f" for more than {timeout:g} s" if timeout else ""),
                hint="wait for it to end, or stop it",
            )
        if not make_folder and not path.exists():
            raise gone
        # To be read only; a full disk takes nobody's lock away.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{note or os.getpid()}\n".encode())
        try:
            yield file.fileno()
        finally:
            # Closing is not enough: a program that another thread starts has it until its exec.
            fcntl.flock(file, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool:
    """Return True if a process of this host holds the lock of :func:`locked`. Changes nothing.

    A process that takes the lock at the same moment has to try again. Raises ConfigError when this
    user may not read the file.
    """
    with host_reads(path):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, BlockingIOError) as error:
            return isinstance(error, BlockingIOError)
    return False
