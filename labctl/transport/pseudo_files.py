"""Files whose content the kernel makes when they are read: files of /proc and /sys.

``stat`` reports a wrong size for them, and hdcd relies on it: for a file of size 0 it sends the
bytes of one read, 4 kB of the 5 MB of /proc/kallsyms. So the board's ``cat`` reads them to the end.
The next read may return other content, so a hash cannot verify a copy.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from labctl.errors import CommandTimeout
from labctl.files import host_writes
from labctl.progress import BytesDone
from labctl.transport.base import Transport, Write, board_error, remote_words

#: By the numbers in Linux's ``magic.h``: toybox lacks names for most of them.
_KINDS = {
    0x9FA0: "proc",
    0x62656572: "sysfs",
    0x64626720: "debugfs",
    0x74726163: "tracefs",
    0x27E0EB: "cgroup",
    0x63677270: "cgroup2",
}
_ANSWER = re.compile(rb"([0-9a-f]{1,16}) (.+)")
#: A larger file counts as endless: /proc/kcore is as large as the address space.
MOST_BYTES = 64 << 20
#: A file without new bytes for this time (s) is endless, or waits for an event.
FILE_SECONDS = 10.0
_SEPARATOR = b"\x1e"
#: Number of output bytes kept for the message if ``cat`` fails.
_LAST_BYTES = 1000


def pseudo_files(transport: Transport, path: str, *, timeout: float) -> dict[str, str]:
    """Return the pseudo files below a path, including the path itself: path -> file system.

    The path itself is ``.``. Files of an unknown kind count as ordinary. Raises LinkError.
    """
    word = remote_words(path)
    asked = transport.run(
        f"{{ stat -f -c '%t .' {word}; [ ! -d {word} ] || {{ cd {word} &&"
        " find . -type f -exec stat -f -c '%t %n' {} +; }; } 2>/dev/null",
        timeout=timeout,
    )
    found = {}
    for line in asked.output.split(b"\n"):
        if (match := _ANSWER.fullmatch(line)) and (kind := _KINDS.get(int(match[1], 16))):
            found[os.fsdecode(match[2].removeprefix(b"./"))] = kind
    return found


def read_pseudo_file(transport: Transport, remote: str, write: Write, *, timeout: float) -> None:
    """Pass a file to ``write``, within ``timeout`` seconds. Raises LinkError, BoardError."""
    last = b""

    def keep(piece: bytes) -> None:
        nonlocal last
        write(piece)
        last = (last + piece)[-_LAST_BYTES:]

    if transport.stream(remote_words("cat", remote), timeout=timeout, write=keep) != 0:
        raise board_error(last.decode(errors="replace"), f"cannot read {remote}")


def read_pseudo_files(
    transport: Transport,
    files: Sequence[tuple[str, Path]],
    seen: BytesDone,
    *,
    timeout: float,
    file_seconds: float = FILE_SECONDS,
    most_bytes: int = MOST_BYTES,
) -> list[str]:
    """Copy files of the board, many with one command, to local files that do not exist yet.

    Return the board's paths that could not be read completely: refused, gone meanwhile, or endless.
    No local file is kept for them. ``timeout`` (s) limits each command. Raises LinkError,
    HostError.
    """
    unreadable: list[str] = []
    rest = list(files)
    while rest:
        batch = _Batch(rest, seen, most_bytes)
        words = remote_words(*(remote for remote, _ in rest))
        command = (
            f'for path in {words}; do cat "$path" 2>/dev/null;'
            f" printf '\\036%s:%s\\n' {batch.nonce} $?; done"
        )
        try:
            with suppress(_WithoutEnd):
                transport.stream(command, timeout=min(timeout, file_seconds), write=batch.take)
        except CommandTimeout:
            if not transport.is_alive():
                raise
        finally:
            batch.close()
        unreadable += batch.unreadable
        rest = rest[batch.finished :]
        # The next command continues a slow batch; if the first file did not finish, it is endless.
        if rest and not batch.finished:
            unreadable.append(rest.pop(0)[0])
    return unreadable


class _WithoutEnd(Exception):
    """A file is larger than any real file of a kernel."""


class _Batch:
    """Splits the output of a command that reads files one after another, and stores them."""

    def __init__(self, files: Sequence[tuple[str, Path]], seen: BytesDone, most_bytes: int):
        # As random as `secrets`, like the frames of commands.
        self.nonce = f"labctl-{os.urandom(16).hex()}"
        self.finished = 0
        self.unreadable: list[str] = []
        self._files = files
        self._seen = seen
        self._most_bytes = most_bytes
        self._mark = _SEPARATOR + self.nonce.encode() + b":"
        self._pending = b""
        self._file: BinaryIO | None = None

    def take(self, piece: bytes) -> None:
        """Handle the next bytes. Raises HostError."""
        self._pending += piece
        while (start := self._pending.find(self._mark)) >= 0:
            status, newline, rest = self._pending[start + len(self._mark) :].partition(b"\n")
            if not newline:
                break
            self._keep(self._pending[:start])
            self._end(whole=status == b"0")
            self._pending = rest
        else:
            # A mark can only begin at the last separator.
            start = self._pending.rfind(_SEPARATOR)
            if start < 0 or not self._mark.startswith(self._pending[start:]):
                start = len(self._pending)
        self._keep(self._pending[:start])
        self._pending = self._pending[start:]

    def close(self) -> None:
        """Remove an incomplete file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._files[self.finished][1].unlink()

    def _keep(self, data: bytes) -> None:
        if self.finished == len(self._files):
            return
        local = self._files[self.finished][1]
        with host_writes(local):
            if self._file is None:
                self._file = local.open("xb")
            self._file.write(data)
            size = self._file.tell()
        self._seen(len(data))
        if size > self._most_bytes:
            raise _WithoutEnd

    def _end(self, *, whole: bool) -> None:
        if self._file is None or self.finished == len(self._files):
            return
        if whole:
            self._file.close()
            self._file = None
        else:
            self.unreadable.append(self._files[self.finished][0])
            self.close()
        self.finished += 1


def why_not_proven(pseudo: Mapping[str, str]) -> str:
    """Explain why a copy that contains such files is not verified."""
    files = "1 file" if len(pseudo) == 1 else f"{len(pseudo)} files"
    kinds = ", ".join(sorted(set(pseudo.values())))
    return f"{files} of {kinds}, whose content the kernel makes as it is read"
