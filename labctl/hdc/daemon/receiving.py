"""``hdc file send`` on the board's side: receive files and directories."""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from labctl.daemon.files import WRITE, DiskFile, in_thread
from labctl.errors import ProtocolError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.file_errors import cannot_open, reason
from labctl.hdc.daemon.paths import as_typed, on_disk
from labctl.hdc.daemon.task import Dialogue, Link
from labctl.hdc.lz4_chunks import decompress_chunk
from labctl.hdc.messages import (
    FILE_FEATURES,
    EchoLevel,
    FileMode,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.remote_paths import Placing, make_parents
from labctl.hdc.wire import Command

#: Sent by 3.1.0e if it cannot take a block; the host counts down from there.
_REJECTED = b"\x07"
#: hdcd changes the owner after the mode, so set-id bits are lost.
_MODE_BITS = 0o1777


class _Refused(Exception):
    """A file is refused; the text is sent to the host."""


class FileReceiver(Dialogue):
    """Receives files, one after another. They are truncated first and written in place."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self._profile = board.profile
        self._placing: Placing | None = None
        self._config = TransferConfig()
        self._file: DiskFile | None = None
        self._written = 0
        self._mode: FileMode | None = None
        self._directory_modes: list[FileMode] = []
        self._deaf = False  # True: the rest of this file is dropped
        self._failure: str | None = None
        self._began = 0.0
        self._total_bytes = 0
        self._files = 0

    async def _run(self) -> None:
        try:
            while await self._step(*await self._inbox.get()):
                pass
        except _Refused as refusal:
            self._fail(str(refusal))
        finally:
            self._close()

    async def _step(self, command: int, data: bytes) -> bool:
        """Handle one packet; return False when the transfer is finished."""
        match command:
            case Command.FILE_MODE:
                self._mode = FileMode.decode(data)
                self._send(Command.FILE_MODE)
            case Command.DIR_MODE:
                self._directory_modes.append(FileMode.decode(data))
                if len(self._directory_modes) > self._board.limits.directories:
                    raise ProtocolError("the host names too many directories")
                self._send(Command.FILE_MODE)
            case Command.FILE_CHECK if self._file is None:
                await self._open(TransferConfig.decode(data))
            case Command.FILE_DATA if self._file is not None and not self._deaf:
                return await self._take(self._file, data)
            case Command.FILE_FINISH if self._began:
                return await self._acknowledge(data[0] if data else 0)
        return True

    async def _open(self, config: TransferConfig) -> None:
        if config.bundle_name:
            raise _Refused(f"[E005101] Invalid bundle name: {config.bundle_name}")
        if self._placing is None:
            self._placing = Placing(on_disk(self._board.directory, config.path))
        shown = partial(as_typed, self._board.directory, config.path)
        path = await in_thread(partial(_prepare, self._placing, config, shown))
        try:
            self._file = await DiskFile.open(self._storage, path, WRITE)
        except (OSError, ValueError) as error:
            raise _Refused(cannot_open(error, shown(path))) from error
        self._config = config
        self._written = 0
        self._deaf = False
        self._began = self._began or time.monotonic()
        self._send(Command.FILE_BEGIN, FILE_FEATURES)

    async def _take(self, file: DiskFile, data: bytes) -> bool:
        payload, packed = TransferPayload.decode_packet(memoryview(data))
        if payload.offset != self._written:
            raise ProtocolError(f"the host sent an unexpected chunk: {payload}")
        body = bytes(packed)
        if payload.compress_type:
            if not self._profile.sound_compression and packed:
                self._deaf = True
                self._send(Command.FILE_FINISH, _REJECTED)
                return True
            if payload.uncompress_size and not packed:
                # A 3.1.0e host loses the chunk; hdcd then waits for it forever.
                self._deaf = True
                return True
            body = decompress_chunk(packed, payload.uncompress_size)
        try:
            await file.write(body, self._written)
        except OSError as error:
            return self._stopped(reason(error))
        self._written += len(body)
        if self._written >= self._config.file_size or not body:  # whatever size was announced
            await self._complete(file)
        return True

    def _stopped(self, why: str) -> bool:
        self._deaf = True
        text = f"Transfer Stop at:{self._written}/{self._config.file_size}(Bytes), Reason: {why}"
        if self._profile.fails_at_once:
            self._fail(text)
        else:
            self._failure = text
            self._close()  # more files of a directory may follow
        # Releases that report the failure at once also send this, after their CLOSE.
        self._send(Command.FILE_FINISH, b"\x01")
        return not self._profile.fails_at_once

    async def _complete(self, file: DiskFile) -> None:
        await file.change(partial(_keep, config=self._config, mode=self._mode))
        self._close()
        self._total_bytes += self._written
        self._files += 1
        self._mode = None
        self._send(Command.FILE_FINISH, b"\x01")

    async def _acknowledge(self, counter: int) -> bool:
        """Answer a FILE_FINISH; return False after the last one."""
        if counter:
            self._send(Command.FILE_FINISH, bytes([counter - 1]))
            return True
        if self._failure is not None:
            raise _Refused(self._failure)
        if self._placing is not None and self._placing.keeps_top:
            typed = self._config.path
            await in_thread(partial(_keep_directories, self._placing, typed, self._directory_modes))
        elapsed = max(int((time.monotonic() - self._began) * 1000), 1)
        self._echo(
            EchoLevel.OK,
            f"FileTransfer finish, Size:{self._total_bytes}, File count = {self._files}, "
            f"time:{elapsed}ms rate:{self._total_bytes / elapsed:.2f}kB/s",
        )
        self._finish()
        return False

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()  # written bytes stay, as on a real board
            self._file = None


def _prepare(placing: Placing, config: TransferConfig, shown: Callable[[str], str]) -> str:
    """Return the path of the next file and make the directories above it. Raises _Refused."""
    try:
        path = placing.place(config.optional_name)
        if not {"/", "\\"}.isdisjoint(config.optional_name):
            make_parents(path)
    except NotADirectoryError:
        raise _Refused(f"Not a directory, path:{shown(placing.destination)}") from None
    except ProtocolError as error:
        raise _Refused(f"Error opening file: invalid argument, path:{config.path}") from error
    except (OSError, ValueError) as error:
        raise _Refused(cannot_open(error, shown(placing.destination))) from error
    if config.update_if_new and not config.mtime_ns and Path(path).exists():
        raise _Refused(f"Target file is the same date or newer,path: {shown(path)}")
    return path


def _keep(descriptor: int, *, config: TransferConfig, mode: FileMode | None) -> None:
    """Set a finished file's times, mode and owner, as far as the system allows."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return  # a shared file, for example /dev/null
    if mode is not None:
        _change_mode(descriptor, mode)
    if config.hold_timestamp:
        # hdcd keeps microseconds. Skip times that the file system cannot store.
        times = (config.atime_ns // 1000 * 1000, config.mtime_ns // 1000 * 1000)
        with suppress(OSError, OverflowError):
            os.utime(descriptor, ns=times)


def _keep_directories(placing: Placing, typed: str, modes: list[FileMode]) -> None:
    """Set modes of directories as hdcd does: only if their real path begins with the typed path."""
    # Deepest first: a directory that can no longer be entered hides its content.
    for mode in sorted(modes, key=lambda mode: mode.full_name.count("/"), reverse=True):
        with suppress(OSError, ValueError, ProtocolError):  # empty directories were never made
            path = placing.directory(mode.full_name)
            if os.path.realpath(path).startswith(typed):
                _change_mode(path, mode)


def _change_mode(target: int | str, mode: FileMode) -> None:
    with suppress(OSError):
        os.chmod(target, mode.st_mode & _MODE_BITS)  # noqa: PTH101 - a descriptor or a path
    with suppress(OSError, OverflowError):  # only root may change the owner
        os.chown(target, mode.uid, mode.gid)
