"""``hdc file send`` and ``hdc file recv`` on the board's side, for single files."""

import asyncio
import errno
import os
import shlex
import stat
import time
from pathlib import Path

from labctl.errors import ProtocolError
from labctl.hdc.daemon.task import Link, Task
from labctl.hdc.messages import (
    FILE_FEATURES,
    LARGE_CHUNK_BYTES,
    SMALL_CHUNK_BYTES,
    EchoLevel,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command

#: Without O_NONBLOCK a named pipe that nobody has open at the other end would stop every board of
#: this process.
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
#: hdcd takes its words from libuv, which are not always those of the C library.
_REASONS = {
    errno.EISDIR: "illegal operation on a directory",
    errno.ETXTBSY: "text file is busy",
    errno.ENAMETOOLONG: "name too long",
    errno.EMFILE: "too many open files",
}


def _reason(error: OSError) -> str:
    number = error.errno or 0
    return _REASONS.get(number) or os.strerror(number).lower()


def _cannot_open(error: OSError, path: str) -> str:
    return f"Error opening file: {_reason(error)}, path:{path}"


class FileReceiver(Task):
    """A file from the host. It is truncated first and written in place, as hdcd does."""

    def __init__(self, link: Link, channel: int, directory: Path):
        super().__init__(link, channel)
        self._directory = directory
        self._descriptor = -1
        self._size = 0
        self._written = 0
        self._began = 0.0

    def start(self) -> None:
        """Nothing yet: the first packet says which file."""

    def packet(self, command: int, data: memoryview) -> None:
        """What the host sends, in its order."""
        match command:
            case Command.FILE_CHECK if self._descriptor < 0:
                self._open(TransferConfig.decode(data))
            case Command.FILE_DATA if self._descriptor >= 0:
                self._write(data)
            case Command.FILE_FINISH if self._descriptor >= 0:
                self._acknowledge(data[0] if data else 0)
            case Command.FILE_MODE | Command.DIR_MODE:
                self._fail("[E002105] Unsupport option: -m")

    def stop(self) -> None:
        """Close the file; what was written stays, as on a real board."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, config: TransferConfig) -> None:
        if "/" in config.optional_name:
            self._fail("[E002105] Unsupport directory transfer")
            return
        if config.bundle_name:
            self._fail(f"[E005101] Invalid bundle name: {config.bundle_name}")
            return
        if config.compress_type:
            self._fail("[E002105] Unsupport option: -z")
            return
        path = os.path.join(self._directory, config.path)  # noqa: PTH118 - keeps a final slash
        if config.path.endswith("/") or Path(path).is_dir():
            path = os.path.join(path, config.optional_name)  # noqa: PTH118
        try:
            self._descriptor = self._storage.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN_FLAGS, 0o644
            )
        except OSError as error:
            self._fail(_cannot_open(error, path))
            return
        except ValueError:  # a NUL byte, or text that stands for no bytes
            self._fail(_cannot_open(OSError(errno.EINVAL, ""), path))
            return
        self._size = config.file_size
        self._began = time.monotonic()
        self._send(Command.FILE_BEGIN, FILE_FEATURES)

    def _write(self, data: memoryview) -> None:
        payload, body = TransferPayload.decode_packet(data)
        if payload.compress_type or payload.offset != self._written:
            raise ProtocolError(f"the host sent a chunk that is not due: {payload}")
        offset, size = payload.offset, len(body)
        # Written on the event loop: the page cache takes a chunk in a fraction of a millisecond.
        try:
            while body:
                count = self._storage.write(self._descriptor, body, offset)
                body, offset = body[count:], offset + count
        except OSError as error:
            self._fail(
                f"Transfer Stop at:{self._written}/{self._size}(Bytes), Reason: {_reason(error)}"
            )
            # hdcd sends this one too, behind its CLOSE.
            self._send(Command.FILE_FINISH, b"\x01")
            return
        self._written += size
        if self._written >= self._size:
            self._send(Command.FILE_FINISH, b"\x01")

    def _acknowledge(self, counter: int) -> None:
        if counter:
            self._send(Command.FILE_FINISH, bytes([counter - 1]))
            return
        elapsed = max(int((time.monotonic() - self._began) * 1000), 1)
        rate = self._written / elapsed * 1000 / 1000
        self._echo(
            EchoLevel.OK,
            f"FileTransfer finish, Size:{self._written}, File count = 1, time:{elapsed}ms "
            f"rate:{rate:.2f}kB/s",
        )
        self._finish()

    def _fail(self, text: str) -> None:
        self._echo(EchoLevel.FAIL, text)
        self._finish()


class FileSender(Task):
    """A file to the host."""

    def __init__(self, link: Link, channel: int, directory: Path, arguments: bytes):
        super().__init__(link, channel)
        self._directory = directory
        self._arguments = os.fsdecode(arguments.split(b"\0")[0])
        self._descriptor = -1
        self._size = 0
        self._pump: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open the file and offer it."""
        self._send(Command.WAKEUP_SLAVETASK)
        try:
            cwd, remote, local = _split(self._arguments)
        except ValueError as error:
            self._fail(str(error))
            return
        path = os.path.join(self._directory, remote)  # noqa: PTH118 - keeps a final slash
        try:
            self._descriptor = self._storage.open(path, os.O_RDONLY | _OPEN_FLAGS)
        except OSError as error:
            self._fail(_cannot_open(error, path))
            return
        found = os.fstat(self._descriptor)
        for test, number in ((stat.S_ISDIR, errno.EISDIR), (stat.S_ISFIFO, errno.ESPIPE)):
            if test(found.st_mode):
                self._fail(_cannot_open(OSError(number, ""), path))
                return
        self._size = self._storage.size(self._descriptor)
        config = TransferConfig(
            file_size=self._size,
            path=local,
            optional_name=Path(remote).name,
            client_cwd=cwd,
        )
        self._send(Command.FILE_CHECK, config.encode())

    def packet(self, command: int, data: memoryview) -> None:
        """The host is ready, or has everything."""
        match command:
            case Command.FILE_BEGIN if self._descriptor >= 0 and self._pump is None:
                large = bool(data) and bool(data[0] & 1)
                chunk = LARGE_CHUNK_BYTES if large else SMALL_CHUNK_BYTES
                self._pump = self._link.spawn(self._send_chunks(chunk))
            case Command.FILE_FINISH if data and data[0]:
                self._send(Command.FILE_FINISH, bytes([data[0] - 1]))

    def stop(self) -> None:
        """Close the file."""
        if self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _send_chunks(self, chunk_bytes: int) -> None:
        done = 0
        while True:
            try:
                wanted = min(chunk_bytes, self._size - done)
                body = self._storage.read(self._descriptor, wanted, done)
            except OSError as error:
                self._fail(f"Transfer Stop at:{done}/{self._size}(Bytes), Reason: {_reason(error)}")
                return
            if not body and done < self._size:
                self._fail(f"Transfer Stop at:{done}/{self._size}(Bytes), Reason: end of file")
                return
            area = TransferPayload(done, 0, len(body), len(body)).encode_area()
            self._send(Command.FILE_DATA, area, body)
            done += len(body)
            if done == self._size:
                return
            await self._link.drained()

    def _fail(self, text: str) -> None:
        self._echo(EchoLevel.FAIL, text)
        self._finish()


def _split(arguments: str) -> tuple[str, str, str]:
    """The client's directory, the remote and the local path of ``file recv`` arguments."""
    lexer = shlex.shlex(arguments, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.quotes = '"'
    lexer.escape = ""
    words = list(lexer)
    cwd = ""
    if words[:1] == ["-cwd"]:
        cwd, words = words[1] if len(words) > 1 else "", words[2:]
    if words and words[0].startswith("-"):
        raise ValueError(f"[E002105] Unsupport option: {words[0]}")
    if not words:
        raise ValueError("There is no remote path")
    return cwd, words[0], words[1] if len(words) > 1 else "."
