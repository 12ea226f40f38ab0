"""Watches the disk space of a container, and ends the container if it uses too much.

No engine limits the space of host folders in a container. So labctl measures them every second; a
program can exceed the limit between two measurements.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from labctl.errors import CompileError, HostError, LabctlError
from labctl.units import size

LOOK_SECONDS = 1.0
#: A tree with more files takes too long to measure and to remove.
MOST_FILES = 1_000_000
#: Free space that is left to other users of the file system.
RESERVE_BYTES = 1 << 30
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system


@contextmanager
def limited_disk(
    folders: Sequence[Path],
    most: int,
    end: Callable[[], object],
    *,
    most_files: int = MOST_FILES,
    look_seconds: float = LOOK_SECONDS,
) -> Iterator[None]:
    """While inside, call ``end`` as soon as ``folders`` use more than ``most`` bytes together.

    A file that is removed while open is in no folder, so free space may not drop by more than
    ``most`` either. Such files disappear with the program: space that is free again after its end
    was its own. Raises CompileError, or HostError if others used the space.
    """
    watch = _Watch(folders, most, most_files, end)
    thread = threading.Thread(
        target=watch.look_on, args=(look_seconds,), name="disk watch", daemon=True
    )
    watch.look()
    thread.start()
    try:
        yield
    except BaseException as error:
        if watch.failure is not None and isinstance(error, Exception):
            raise watch.failure from error
        raise
    finally:
        watch.over.set()
        thread.join()
    watch.look()  # once more, for what was written since the last measurement
    if watch.failure is not None:
        raise watch.failure


class _Watch:
    def __init__(
        self, folders: Sequence[Path], most: int, most_files: int, end: Callable[[], object]
    ):
        self.over = threading.Event()
        self.failure: LabctlError | None = None
        self._folders = folders
        self._most = most
        self._most_files = most_files
        self._end = end
        self._free = [_free(folder) for folder in folders]
        self._before: int | None = None

    def look_on(self, seconds: float) -> None:
        while not self.over.wait(seconds):
            self.look()
            if self.failure is not None:
                return

    def look(self) -> None:
        """Record the first failure, and end the program then."""
        if self.failure is not None:
            return
        try:
            self.failure = self._failure()
        except OSError as error:  # the program must not continue unwatched
            self.failure = _unseen(error)
            self._end()

    def _failure(self) -> LabctlError | None:
        try:
            taken = self._taken_in_all()
        except CompileError as error:
            self._end()
            return error
        self._before = taken if self._before is None else self._before
        for folder, before in zip(self._folders, self._free, strict=True):
            free = _free(folder)
            if free < min(RESERVE_BYTES, before) or before - free > self._most:
                self._end()
                own = taken - self._before + max(0, _free(folder) - free)
                return _lost(folder, before, free, own)
        return None

    def _taken_in_all(self) -> int:
        """Return the bytes in all folders. Raises CompileError if there are too many."""
        taken = files = 0
        for folder in self._folders:
            for bytes_taken in _taken(folder):
                taken, files = taken + bytes_taken, files + 1
                if taken > self._most:
                    raise CompileError(
                        f"the build took more than {size(self._most)} of disk, and was ended"
                    )
                if files > self._most_files:
                    raise CompileError(f"the build made more than {self._most_files:,} files")
        return taken


def _lost(folder: Path, before: int, free: int, own: int) -> LabctlError:
    """Return the error if a file system lost space; ``own``: bytes that the program used."""
    lost = before - free
    if before >= RESERVE_BYTES and own > lost // 2:
        return CompileError(f"the build took {size(own)} of disk, and was ended")
    return HostError(
        f"the file system of {folder} has {size(free)} left, {size(lost)} less than when an"
        " untrusted program began; it was ended",
        hint="free some space; the program itself had little of it",
    )


def _unseen(error: OSError) -> LabctlError:
    if error.errno == errno.ENAMETOOLONG:
        return CompileError("the build nests its folders too deep, and was ended")
    if error.errno == errno.EACCES:
        return CompileError("the build hides what is in a folder, and was ended")
    return HostError(
        f"the files of an untrusted program cannot be looked at: {error.strerror}; it was ended"
    )


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _taken(folder: Path) -> Iterator[int]:
    """Yield the bytes on disk of each file and folder; skip what vanishes meanwhile."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        yield entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    except FileNotFoundError:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
