"""The file service of a phone (``sync:``), version 1 and 2, as adbd's ``file_sync_service.cpp``."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lz4 import frame as lz4_frame

from labctl.adb import sync
from labctl.adb.daemon.stream import ExactReader, Stream
from labctl.adb.sync import HEAD, FileStat, SyncFlags
from labctl.daemon.files import READ, DiskFile, in_thread

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_REPLACE = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER_MODE = 0o775
_BATCH_BYTES = 64 << 10
_LAST_U32 = 0xFFFFFFFF
_NO_STAT = FileStat(*[0] * len(FileStat._fields))
_PLAIN = (SyncFlags.NONE, SyncFlags.LZ4)


class _Refused(Exception):
    """A request that fails; the text is adbd's."""

    @classmethod
    def of(cls, what: str, error: OSError | ValueError) -> "_Refused":
        """Return adbd's text for a failed system call."""
        number = error.errno if isinstance(error, OSError) else None
        return cls(f"{what}: {os.strerror(number) if number else 'Invalid argument'}")


async def serve_files(stream: Stream, directory: Path) -> None:
    """Answer requests until QUIT, a refusal or the end of the stream. Raises StreamClosed."""
    stream.accept()
    service = _FileService(stream, directory)
    try:
        while await service.answer():
            pass
    except _Refused as refusal:
        text = str(refusal).encode(errors="surrogateescape")
        await stream.write(HEAD.pack(sync.FAIL, len(text)) + text)


class _FileService:
    def __init__(self, stream: Stream, directory: Path):
        self._stream = stream
        self._directory = directory
        self._reader = ExactReader(stream)

    async def answer(self) -> bool:
        """Answer one request; False after the last one. Raises _Refused, StreamClosed."""
        kind, size = HEAD.unpack(await self._reader.read(HEAD.size))
        if kind == sync.QUIT:
            return False
        if size > sync.MAX_PATH_BYTES:
            raise _Refused("path too long")
        typed = os.fsdecode(await self._reader.read(size))
        if kind == sync.SEND:
            name, comma, mode = typed.rpartition(",")
            is_mode = comma and mode.isascii() and mode.isdecimal() and len(mode) < len("1" * 10)
            if comma and not is_mode:
                raise _Refused(f"unable to parse mode from '{mode[:40]}'")
            wanted = int(mode) if is_mode else 0o644
            await self._receive(self._path(name if is_mode else typed), wanted, SyncFlags.NONE)
        elif kind == sync.SEND_V2:
            options = await self._reader.read(sync.SEND_V2_OPTIONS.size)
            _, mode, flags = sync.SEND_V2_OPTIONS.unpack(options)
            await self._receive(self._path(typed), mode, _flags(flags))
        elif kind == sync.RECEIVE:
            await self._send(self._path(typed), SyncFlags.NONE)
        elif kind == sync.RECEIVE_V2:
            options = await self._reader.read(sync.RECEIVE_V2_OPTIONS.size)
            await self._send(self._path(typed), _flags(sync.RECEIVE_V2_OPTIONS.unpack(options)[1]))
        elif kind == sync.STAT:
            found = await in_thread(lambda: _stat(self._path(typed), follow=False))
            answer = sync.STAT_ANSWER.pack(sync.STAT, *_short(found))
            await self._stream.write(answer)
        elif kind in (sync.STAT_V2, sync.LSTAT_V2):
            follow = kind == sync.STAT_V2
            found = await in_thread(lambda: _stat(self._path(typed), follow=follow))
            await self._stream.write(found.encode(kind))
        elif kind in (sync.LIST, sync.LIST_V2):
            await self._list(self._path(typed), is_v2=kind == sync.LIST_V2)
        else:
            raise _Refused(f"unknown command {int.from_bytes(kind, 'little'):08x}")
        return True

    def _path(self, typed: str) -> str:
        return os.path.join(self._directory, typed)  # noqa: PTH118 - keeps a final slash

    async def _list(self, path: str, *, is_v2: bool) -> None:
        batch = bytearray()
        for name, found in await in_thread(lambda: _entries(path)):
            if is_v2:
                batch += found.encode_entry(name)
            else:
                batch += sync.ENTRY_HEAD.pack(sync.ENTRY, *_short(found), len(name)) + name
            if len(batch) > _BATCH_BYTES:
                await self._stream.write(bytes(batch))
                batch.clear()
        size = len(_NO_STAT.encode_entry(b"")) if is_v2 else sync.ENTRY_HEAD.size
        await self._stream.write(bytes(batch) + sync.DONE.ljust(size, b"\0"))

    async def _send(self, path: str, flags: SyncFlags) -> None:
        """Send a file to the host."""
        try:
            file = await DiskFile.open(self._stream.carrier.storage(self._stream), path, READ)
        except (OSError, ValueError) as error:
            raise _Refused.of("open failed", error) from error
        pack = _packer() if flags & SyncFlags.LZ4 else lambda data: data
        offset = 0
        try:
            while True:
                try:
                    piece = await file.read(sync.MAX_DATA_BYTES, offset)
                except OSError as error:
                    raise _Refused.of("read failed", error) from error
                offset += len(piece)
                packed = pack(piece)
                for start in range(0, len(packed), sync.MAX_DATA_BYTES):
                    block = packed[start : start + sync.MAX_DATA_BYTES]
                    await self._stream.write(HEAD.pack(sync.DATA, len(block)) + block)
                if not piece:
                    break
        finally:
            file.close()
        await self._stream.write(HEAD.pack(sync.DONE, 0))

    async def _receive(self, path: str, mode: int, flags: SyncFlags) -> None:
        """Write a file of the host, in place; without its end, nothing stays."""
        is_ours = await in_thread(lambda: _make_way(path))
        try:
            if stat.S_ISLNK(mode):
                await self._receive_link(path)
            else:
                await self._receive_file(path, mode, flags)
        except BaseException:
            if is_ours:
                with suppress(OSError, ValueError):
                    Path(path).unlink()
            raise
        await self._stream.write(HEAD.pack(sync.OKAY, 0))

    async def _receive_link(self, path: str) -> None:
        target = b""
        while (block := await self._block())[0] is not None:
            target += block[0]
            if len(target) > sync.MAX_PATH_BYTES:
                raise _Refused("symlink too long")
        try:
            await in_thread(lambda: _with_folder(path, lambda: _link(target, path)))
        except (OSError, ValueError) as error:
            raise _Refused.of("symlink failed", error) from error

    async def _receive_file(self, path: str, mode: int, flags: SyncFlags) -> None:
        try:
            file = await self._create(path)
        except (OSError, ValueError) as error:
            await self._drain()
            raise _Refused.of("couldn't create file", error) from error
        unpack = _unpacker() if flags & SyncFlags.LZ4 else lambda data: iter([data])
        # adbd gives the group and everybody what it gives the owner.
        bits = mode & 0o777
        bits |= (bits >> 3) & 0o070
        bits |= (bits >> 3) & 0o007
        is_file = stat.S_ISREG(file.stat().st_mode)  # a device is this host's
        offset = 0
        try:
            try:
                if is_file:
                    await file.change(lambda descriptor: os.fchmod(descriptor, bits))
                while True:
                    data, modified = await self._block()
                    if data is None:
                        break
                    for piece in unpack(data):
                        await file.write(piece, offset)
                        offset += len(piece)
            except OSError as error:
                await self._drain()
                raise _Refused.of("write failed", error) from error
            except (RuntimeError, EOFError) as error:  # lz4's own
                await self._drain()
                raise _Refused("decompress failed") from error
            if is_file:
                with suppress(OSError):  # as adbd does
                    await file.change(lambda descriptor: os.utime(descriptor, (modified, modified)))
        finally:
            file.close()

    async def _create(self, path: str) -> DiskFile:
        storage = self._stream.carrier.storage(self._stream)
        try:
            return await DiskFile.open(storage, path, _CREATE)
        except FileNotFoundError:
            await in_thread(lambda: _make_folder(path))
            return await DiskFile.open(storage, path, _CREATE)
        except FileExistsError:
            return await DiskFile.open(storage, path, _REPLACE)

    async def _block(self) -> tuple[bytes | None, int]:
        """Return the next block and 0; after the last one, None and the file's time."""
        kind, size = HEAD.unpack(await self._reader.read(HEAD.size))
        if kind == sync.DONE:
            return None, size
        if kind != sync.DATA:
            raise _Refused("invalid data message")
        if size > sync.MAX_DATA_BYTES:
            raise _Refused("oversize data message")
        return await self._reader.read(size), 0

    async def _drain(self) -> None:
        """Take what the host still sends of a file: it looks for the refusal only afterwards."""
        while (await self._block())[0] is not None:
            pass


def _flags(number: int) -> SyncFlags:
    if number not in _PLAIN:
        raise _Refused(f"unsupported flags: {number}")
    return SyncFlags(number)


def _stat(path: str, *, follow: bool) -> FileStat:
    try:
        found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - keeps a final slash
    except OSError as error:
        return _NO_STAT._replace(error=error.errno or 0)
    except ValueError:  # a path that no system call accepts
        return _NO_STAT._replace(error=22)
    return FileStat(
        0,
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_size,
        int(found.st_atime),
        int(found.st_mtime),
        int(found.st_ctime),
    )


def _short(found: FileStat) -> tuple[int, int, int]:
    """Return mode, size and time for version 1, whose numbers are cut off."""
    return found.mode, found.size & _LAST_U32, found.modified & _LAST_U32


def _entries(path: str) -> list[tuple[bytes, FileStat]]:
    try:
        names = [".", "..", *os.listdir(path)]  # noqa: PTH208
    except (OSError, ValueError):
        return []
    found = ((os.fsencode(name), _stat(f"{path}/{name}", follow=False)) for name in names)
    return [(name, status) for name, status in found if not status.error]


def _make_way(path: str) -> bool:
    """Remove a file or a link in the way; return True if what comes there may be removed, too."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return True
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return False
    with suppress(OSError):
        Path(path).unlink()
    return True


def _make_folder(path: str) -> None:
    Path(path).parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)


def _with_folder(path: str, make: Callable[[], None]) -> None:
    try:
        make()
    except FileNotFoundError:
        _make_folder(path)
        make()


def _link(target: bytes, path: str) -> None:
    os.symlink(target.split(b"\0")[0], os.fsencode(path))  # noqa: PTH211 - bytes of a stranger


def _packer() -> Callable[[bytes], bytes]:
    """Return a function that compresses pieces; an empty one ends the frame."""
    packer: Any = lz4_frame.LZ4FrameCompressor()
    head: bytes = packer.begin()

    def pack(piece: bytes) -> bytes:
        nonlocal head
        packed: bytes = head + (packer.compress(piece) if piece else packer.flush())
        head = b""
        return packed

    return pack


def _unpacker() -> Callable[[bytes], Iterator[bytes]]:
    """Return a function that unpacks blocks in pieces of bounded size."""
    unpacker: Any = lz4_frame.LZ4FrameDecompressor()

    def unpack(block: bytes) -> Iterator[bytes]:
        while piece := unpacker.decompress(block, sync.MAX_DATA_BYTES):
            yield piece
            block = b""
            if unpacker.eof:
                return

    return unpack
