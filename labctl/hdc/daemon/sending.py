"""``hdc file recv`` on the board's side: parse the request, find the files, send them.

hdcd does not follow a link to a directory: it sends the link as a file, which ends the transfer.
Pipes and character devices are skipped silently; empty directories are lost.

hdcd looks for options in all words and takes the last two words as the paths, even if they are
options (``src/common/file.cpp`` of developtools_hdc).
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from labctl.daemon.files import READ, DiskFile, in_thread
from labctl.daemon.programs import readable
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.file_errors import cannot_open, reason
from labctl.hdc.daemon.paths import as_typed, on_disk
from labctl.hdc.daemon.task import Dialogue, Link
from labctl.hdc.lz4_chunks import LZ4, STORED, compress_chunk
from labctl.hdc.messages import (
    LARGE_CHUNK_BYTES,
    SMALL_CHUNK_BYTES,
    EchoLevel,
    FileMode,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.remote_paths import is_directory
from labctl.hdc.wire import Command

#: An unclosed quote extends to the end.
_WORD = re.compile(r'(?:[^ \t\r\n"]+|"[^"]*(?:"|\Z))+')
_NO_BUNDLE = (
    "[E005003] The parameter is missing, correct your input by referring below:\n"
    "Usage: hdc file recv [-b bundlename] remote local"
)


def split_words(text: str) -> list[str]:
    """Split a text into words, as hdcd does; only double quotes are special."""
    return [word.replace('"', "") for word in _WORD.findall(text)]


@dataclass
class Request:
    """The request in a FILE_INIT text: ``[-cwd DIR] [OPTION…] REMOTE [LOCAL]``."""

    remote: str = ""
    local: str = "."
    cwd: str = ""
    bundle: str = ""
    keep_times: bool = False
    keep_mode: bool = False
    update_if_new: bool = False
    compress: bool = False

    @classmethod
    def parse(cls, text: str) -> "Request":
        """Parse a text; only double quotes are special. Raises ValueError with hdcd's message."""
        words = split_words(text)
        if len(words) < 2:
            raise ValueError("Transfer path split failed")
        request = cls()
        options = request._take_options(words)
        if options == len(words):
            raise ValueError("There is no local and remote path")
        if options == len(words) - 1:
            request.remote = words[-1]
        else:
            request.remote, request.local = words[-2:]
        return request

    def _take_options(self, words: list[str]) -> int:
        """Store the options, at any position; return the words that hdcd counts for them."""
        count = 0
        for word, following in zip(words, [*words[1:], None], strict=True):
            match word:
                case "-cwd" if following is not None:
                    self.cwd = following
                    count += 1
                case "-b":
                    if following is None or len(words) == count + 1:
                        raise ValueError(_NO_BUNDLE)
                    self.bundle = following
                    count += 1
                case "-a":
                    self.keep_times = True
                case "-m":
                    self.keep_mode = True
                case "-sync":
                    self.update_if_new = True
                case "-z":
                    self.compress = True
                case "remote":  # added by the protocol between client and server
                    pass
                case _ if word.startswith("-"):
                    raise ValueError(f"Unknown file option: {word}")
                case _:
                    continue
            count += 1
        return count


class Entry(NamedTuple):
    """A file or directory: its path, and its name for the host."""

    path: str
    name: str


@dataclass
class Tree:
    """Files and directories in reverse order, and the errors of unreadable ones."""

    files: list[Entry] = field(default_factory=list)
    directories: list[FileMode] = field(default_factory=list)
    failures: list[tuple[str, OSError]] = field(default_factory=list)


def walk(path: str) -> Tree:
    """Return the single file at ``path``, or all files below that directory."""
    top = Entry(path, Path(path).name)
    if not is_directory(path):
        return Tree(files=[top])
    tree = Tree()
    waiting = [(True, top)]
    while waiting:
        is_folder, entry = waiting.pop()
        if not is_folder:
            tree.files.append(entry)
            continue
        try:
            status = os.stat(entry.path)  # noqa: PTH116 - as it was typed
            # Files stay above the rest of the stack: hdcd reads a directory when its name comes.
            waiting += sorted(_entries(entry), key=_name, reverse=True)
        except OSError as error:
            tree.failures.append((entry.path, error))
            continue
        tree.directories.append(
            FileMode(status.st_mode, status.st_uid, status.st_gid, full_name=entry.name)
        )
    tree.directories.reverse()
    tree.files.reverse()
    return tree


def _name(found: tuple[bool, Entry]) -> bytes:
    return os.fsencode(found[1].name)


def _entries(directory: Entry) -> Iterator[tuple[bool, Entry]]:
    with os.scandir(directory.path) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
                name = f"{directory.name}/{entry.name}"
                yield stat.S_ISDIR(mode), Entry(entry.path, name)


class FileSender(Dialogue):
    """Sends files to the host, one after another."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self._request = Request()
        self._size = 0
        self._chunk_bytes = SMALL_CHUNK_BYTES

    async def _run(self) -> None:
        self._send(Command.WAKEUP_SLAVETASK)
        try:
            text = os.fsdecode(self._data.split(b"\0")[0])
            self._request = request = Request.parse(text)
        except ValueError as error:
            self._fail(str(error))
            return
        if request.bundle:
            self._fail(f"[E005101] Invalid bundle name: {request.bundle}")
            return
        tree = await in_thread(partial(walk, on_disk(self._board.directory, request.remote)))
        for path, failure in tree.failures:
            self._cannot_open(failure, path)
        if not tree.files and not tree.failures:
            self._fail("Operation failed, because the source folder is empty.")
            return
        await self._send_all(tree)

    async def _send_all(self, tree: Tree) -> None:
        directories = list(tree.directories)
        finish = 0
        for entry in tree.files:
            try:
                file = await self._open(entry)
            except (OSError, ValueError) as error:
                self._cannot_open(error, entry.path)
                continue
            try:
                await self._offer(entry, file, directories)
                if not await self._send_chunks(file):
                    return
            finally:
                file.close()
            directories.clear()
            finish = (await self._expect(Command.FILE_FINISH) or b"\0")[0]
            if finish != 1:  # 3.1.0e starts higher if it cannot take a block
                break
        if not finish and tree.directories:
            self._send(Command.FILE_FINISH, b"\0")  # the host sends no summary, and closes
        elif not finish:
            self._finish()
        while finish:
            self._send(Command.FILE_FINISH, bytes([finish - 1]))
            finish = 0 if finish == 1 else (await self._expect(Command.FILE_FINISH) or b"\0")[0]

    async def _open(self, entry: Entry) -> DiskFile:
        file = await DiskFile.open(self._storage, entry.path, READ)
        if stat.S_ISFIFO(file.stat().st_mode):
            try:
                await readable(file.fileno())  # hdcd waits until the pipe has a writer
            except BaseException:  # the host has gone
                file.close()
                raise
        return file

    def _cannot_open(self, error: OSError | ValueError, path: str) -> None:
        shown = as_typed(self._board.directory, self._request.remote, path)
        self._echo(EchoLevel.FAIL, cannot_open(error, shown))

    async def _offer(self, entry: Entry, file: DiskFile, directories: list[FileMode]) -> None:
        """Announce the next file to the host, and wait until it is ready."""
        request, found = self._request, file.stat()
        if request.keep_mode:
            mode = FileMode(found.st_mode, found.st_uid, found.st_gid)
            await self._tell_mode(Command.FILE_MODE, mode)
            for directory in directories:
                await self._tell_mode(Command.DIR_MODE, directory)
        self._size = file.size()
        config = TransferConfig(
            file_size=self._size,
            atime_ns=found.st_atime_ns if request.keep_times else 0,
            mtime_ns=found.st_mtime_ns if request.keep_times else 0,
            path=request.local,
            optional_name=entry.name,
            update_if_new=int(request.update_if_new),
            compress_type=LZ4 if request.compress else STORED,
            hold_timestamp=int(request.keep_times),
            client_cwd=request.cwd,
        )
        self._send(Command.FILE_CHECK, config.encode())
        features = await self._expect(Command.FILE_BEGIN)
        large = bool(features) and bool(features[0] & 1)
        self._chunk_bytes = LARGE_CHUNK_BYTES if large else SMALL_CHUNK_BYTES

    async def _tell_mode(self, command: Command, mode: FileMode) -> None:
        self._send(command, mode.encode())
        await self._expect(Command.FILE_MODE)

    async def _send_chunks(self, file: DiskFile) -> bool:
        """Send the file until its size is reached or a read is empty; return False on an error.

        As in hdcd: a file of /proc has size 0, but the bytes of one read are sent; no bytes if it
        cannot be read.
        """
        done = 0
        while True:
            try:
                body = await file.read(self._chunk_bytes, done)
            except OSError as error:
                if self._size or not stat.S_ISREG(file.stat().st_mode):
                    self._stopped(done, reason(error))
                    return False
                body = b""
            kind, packed = await self._packed(body)
            area = TransferPayload(done, kind, len(packed), len(body)).encode_area()
            self._send(Command.FILE_DATA, area, packed)
            done += len(body)
            if not body or done >= self._size:
                return True
            await self._link.drained()

    async def _packed(self, body: bytes) -> tuple[int, bytes]:
        if not self._request.compress:
            return STORED, body
        packed = await in_thread(partial(compress_chunk, body)) if body else b""
        if packed is not None:
            return LZ4, packed
        # Data that LZ4 does not shrink is sent uncompressed; 3.1.0e sends only its size.
        return (STORED, body) if self._board.profile.sound_compression else (LZ4, b"")

    def _stopped(self, done: int, why: str) -> None:
        self._fail(f"Transfer Stop at:{done}/{self._size}(Bytes), Reason: {why}")
