"""Watches the disk space of a container, and ends the container if it takes too much.

No engine limits the folders of the host that a container gets. So they are looked at every second:
what a program writes between two looks goes beyond the limit.
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
#: A tree with more files than this takes long to look at, and to remove.
MOST_FILES = 1_000_000
#: Left to others on the same file system.
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
    """While inside, call ``end`` as soon as ``folders`` take more than ``most`` bytes together.

    Files that were removed while they are open are in no folder: so neither may the file system
    lose as much. Raises CompileError, or HostError where others may have taken the space.
    """
    watch = _Watch(folders, most, most_files, end)
    thread = threading.Thread(
        target=watch.look_on, args=(look_seconds,), name="disk watch", daemon=True
    )
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

    def look_on(self, seconds: float) -> None:
        while not self.over.wait(seconds):
            try:
                self.failure = self._failure()
            except OSError as error:  # without a look it must not continue
                self.failure = _unseen(error)
            if self.failure is not None:
                self._end()
                return

    def _failure(self) -> LabctlError | None:
        taken = files = 0
        for folder in self._folders:
            for bytes_taken in _taken(folder):
                taken, files = taken + bytes_taken, files + 1
                if taken > self._most:
                    return CompileError(
                        f"the build took more than {size(self._most)} of disk, and was ended"
                    )
                if files > self._most_files:
                    return CompileError(f"the build made more than {self._most_files:,} files")
        for folder, before in zip(self._folders, self._free, strict=True):
            free = _free(folder)
            if free < min(RESERVE_BYTES, before) or before - free > self._most:
                return HostError(
                    f"the file system of {folder} has {size(free)} left, {size(before - free)} less"
                    " than when an untrusted program began; it was ended",
                    hint="free some space; or the program keeps files open that it has removed",
                )
        return None


def _unseen(error: OSError) -> LabctlError:
    if error.errno == errno.ENAMETOOLONG:
        return CompileError("the build nests its folders too deep, and was ended")
    return HostError(
        f"the files of an untrusted program cannot be looked at: {error.strerror}; it was ended"
    )


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _taken(folder: Path) -> Iterator[int]:
    """Yield the bytes on disk of each file and folder; what vanishes meanwhile has none."""
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
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
