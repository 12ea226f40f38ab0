"""Changes below a folder in the kernel's order: inotify(7), through the C library."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import HostError

_MODIFY, _ATTRIB = 0x2, 0x4
_MOVED_FROM, _MOVED_TO = 0x40, 0x80
_CREATE, _DELETE = 0x100, 0x200
_OVERFLOW, _ONLY_DIRECTORIES, _IS_DIRECTORY = 0x4000, 0x01000000, 0x40000000
_NAMES = {
    _MODIFY: "written",
    _ATTRIB: "changed",
    _MOVED_FROM: "moved away",
    _MOVED_TO: "moved here",
    _CREATE: "created",
    _DELETE: "removed",
}
_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 256 << 10


@dataclass(frozen=True)
class Change:
    """A change of a path relative to the folder.

    Kinds: created, written, changed (mode, times), moved away, moved here, removed.
    """

    what: str
    path: str


class FolderWatch:
    """Watches a folder and everything below it. ``descriptor`` is readable after a change."""

    def __init__(self, folder: Path):
        """Start watching. Raises HostError if the kernel refuses."""
        self._folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise self._refused()
        self._paths: dict[int, str] = {}
        list(self._watch(""))

    def changes(self) -> Iterator[Change]:
        """Yield the changes until now. Raises HostError if some were lost."""
        while True:
            try:
                data = os.read(self.descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].split(b"\0")[0].decode(errors="replace")
                at += length
                yield from self._event(watch, mask, name)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _event(self, watch: int, mask: int, name: str) -> Iterator[Change]:
        if mask & _OVERFLOW:
            raise HostError("more changes on a virtual board than the kernel keeps for its log")
        folder = self._paths.get(watch)
        if folder is None or not name:
            return
        path = f"{folder}{name}"
        for bit, what in _NAMES.items():
            if mask & bit:
                yield Change(what, path)
        if mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED_TO):
            # Report files created before the folder was watched.
            yield from self._watch(f"{path}/")

    def _watch(self, path: str) -> Iterator[Change]:
        folder = self._folder / path
        mask = _ONLY_DIRECTORIES | sum(_NAMES)
        watch = self._libc.inotify_add_watch(self.descriptor, os.fsencode(folder), mask)
        if watch < 0:
            if path and ctypes.get_errno() != 28:  # ENOSPC: too many watches; else it is gone
                return
            raise self._refused()
        self._paths[watch] = path
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(folder):
                yield Change("created", f"{path}{entry.name}")
                if entry.is_dir(follow_symlinks=False):
                    yield from self._watch(f"{path}{entry.name}/")

    def _refused(self) -> HostError:
        reason = os.strerror(ctypes.get_errno())
        return HostError(f"cannot watch the changes in {self._folder}: {reason}")
