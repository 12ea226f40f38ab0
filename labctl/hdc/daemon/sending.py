"""``hdc file recv``, on the board's side: files and directories to send."""

import os
import stat
from functools import partial

from labctl.hdc.compression import LZ4, STORED, compress_chunk
from labctl.hdc.daemon.async_files import READ, DiskFile, cannot_open, in_thread, reason
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.paths import as_typed, on_disk
from labctl.hdc.daemon.request import Request
from labctl.hdc.daemon.shell import readable
from labctl.hdc.daemon.task import Dialogue, Link
from labctl.hdc.daemon.walk import Entry, Tree, walk
from labctl.hdc.messages import (
    LARGE_CHUNK_BYTES,
    SMALL_CHUNK_BYTES,
    EchoLevel,
    FileMode,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command


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
            if finish != 1:  # 3.1.0e starts higher when it cannot take a block
                break
        if not finish:
            self._finish()
        while finish:
            self._send(Command.FILE_FINISH, bytes([finish - 1]))
            finish = 0 if finish == 1 else (await self._expect(Command.FILE_FINISH) or b"\0")[0]

    async def _open(self, entry: Entry) -> DiskFile:
        file = await DiskFile.open(self._storage, entry.path, READ)
        if stat.S_ISFIFO(file.stat().st_mode):
            try:
                await readable(file.fileno())  # hdcd waits for the other end
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
        """Send the file until its size is reached or reading returns nothing; False on an error.

        As hdcd does: a file of /proc has size 0, and the bytes of one read are sent nevertheless.
        """
        done = 0
        while True:
            try:
                body = await file.read(self._chunk_bytes, done)
            except OSError as error:
                self._stopped(done, reason(error))
                return False
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
