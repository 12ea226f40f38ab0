"""``hdc install``, ``uninstall`` and ``track-jpid`` on the board's side.

The texts are copied from hdcd 3.2.0c. The wire format follows the public source (``host_app.cpp``,
``daemon_app.cpp``); it was not compared with recordings. A package is received like a file, in
/data/local/tmp; then the board's ``bm`` decides. A folder of packages comes as a tar archive and is
given unchanged to ``bm``; hdcd would unpack it.
"""

import os
import re
import shlex
import signal
import subprocess
from enum import IntEnum
from functools import partial
from pathlib import Path

from labctl import process
from labctl.daemon.files import WRITE, DiskFile, in_thread
from labctl.daemon.programs import readable
from labctl.errors import HostError, ProtocolError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.file_errors import cannot_open, reason
from labctl.hdc.daemon.sending import split_words
from labctl.hdc.daemon.task import Dialogue, Link, Task
from labctl.hdc.lz4_chunks import decompress_chunk
from labctl.hdc.messages import FILE_FEATURES, EchoLevel, TransferConfig, TransferPayload
from labctl.hdc.wire import Command

_FOLDER = Path("data/local/tmp")
#: Characters that hdcd refuses in a command for ``bm`` (``daemon_app.cpp``).
_HARMFUL = re.compile(r"[|;&$<>`\\!\n]")
_PIECE_BYTES = 65_536


class _Mode(IntEnum):
    """The first byte of APP_FINISH: the operation that finished."""

    INSTALL = 1
    UNINSTALL = 2


class _ManagerTask(Dialogue):
    """Calls the board's ``bm`` and sends its output. The host closes the channel."""

    async def _manage(self, command: str, given: str) -> tuple[int, bytes]:
        """Call ``bm``; return its status and output. Refuse harmful text from the host."""
        if _HARMFUL.search(given):
            return 1, b"Incorrect package name or option"
        status, message = await self._output_of(f"bm {command}")
        return status, message.replace(b"\n", b" ")

    def _answer(self, mode: _Mode, status: int, message: bytes) -> None:
        self._send(Command.APP_FINISH, bytes([mode, status == 0]), message)

    async def _output_of(self, command: str) -> tuple[int, bytes]:
        """Return the exit status and output of a command on the board."""
        board = self._board
        try:
            running = process.start(
                [*board.shell, command],
                cwd=board.directory,
                env=board.environment,
                stderr=subprocess.STDOUT,
            )
        except HostError as error:
            return 1, error.message.encode()
        output = bytearray()
        assert running.stdout is not None
        try:
            descriptor = running.stdout.fileno()
            while True:
                await readable(descriptor)
                piece = os.read(descriptor, _PIECE_BYTES)
                if not piece:
                    return await in_thread(running.wait), bytes(output)
                output += piece
        finally:
            running.stdout.close()
            if running.poll() is None:  # the host has gone
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


class InstallTask(_ManagerTask):
    """Receives and installs packages, one after another over one channel."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self._config = TransferConfig()
        self._path = Path()
        self._file: DiskFile | None = None
        self._written = 0
        #: hdcd sends the output of all packages so far; the host prints the new part.
        self._messages = b""

    async def _run(self) -> None:
        try:
            while await self._step(*await self._inbox.get()):
                pass
        finally:
            self._close()

    async def _step(self, command: int, data: bytes) -> bool:
        """Handle one packet; return False when the task is finished."""
        match command:
            case Command.APP_CHECK if self._file is None:
                return await self._open(TransferConfig.decode(data))
            case Command.APP_DATA if self._file is not None:
                return await self._take(self._file, data)
        return True

    async def _open(self, config: TransferConfig) -> bool:
        name = config.optional_name
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ProtocolError(f"the host names a package {config.optional_name!r}")
        self._config, self._written = config, 0
        self._path = self._board.directory / _FOLDER / config.optional_name
        try:
            self._file = await DiskFile.open(self._storage, str(self._path), WRITE)
        except OSError as error:
            self._fail(cannot_open(error, f"/{_FOLDER / config.optional_name}"))
            return False
        self._send(Command.APP_BEGIN, FILE_FEATURES)
        return True

    async def _take(self, file: DiskFile, data: bytes) -> bool:
        payload, packed = TransferPayload.decode_packet(memoryview(data))
        if payload.offset != self._written:
            raise ProtocolError(f"the host sent an unexpected chunk: {payload}")
        body = bytes(packed)
        if payload.compress_type:
            body = decompress_chunk(packed, payload.uncompress_size)
        size = self._config.file_size
        try:
            await file.write(body, self._written)
        except OSError as error:
            self._fail(f"Transfer App at:{self._written}/{size}(Bytes), Reason: {reason(error)}")
            return False
        self._written += len(body)
        if self._written >= size or not body:
            self._close()
            options = self._config.options
            flags = () if "-p" in options or "-s" in options else ("-p",)
            path = shlex.quote(str(self._path))
            status, message = await self._manage(
                " ".join(filter(None, ["install", options, *flags, path])),
                options + self._config.optional_name,
            )
            self._messages += message
            await in_thread(partial(self._path.unlink, missing_ok=True))
            self._answer(_Mode.INSTALL, status, self._messages)
        return True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class UninstallTask(_ManagerTask):
    """Removes a package; ``data`` are the words after ``uninstall``."""

    async def _run(self) -> None:
        self._send(Command.WAKEUP_SLAVETASK)
        words = split_words(os.fsdecode(self._data.split(b"\0")[0]))
        options = " ".join(word for word in words if word.startswith("-"))
        names = [word for word in words if not word.startswith("-")]
        flags = () if "-n" in options else ("-n",)
        command = " ".join(filter(None, ["uninstall", options, *flags, *names]))
        self._answer(_Mode.UNINSTALL, *await self._manage(command, command))


class JpidTracker(Task):
    """``track-jpid``: lists processes that can be debugged, and changes; here always empty."""

    def start(self) -> None:
        """Report an empty list; the channel stays open."""
        self._echo(EchoLevel.OK, "0000\n")

    def packet(self, command: int, data: memoryview) -> None:
        """Ignore the packet: no input is expected."""

    def stop(self) -> None:
        """Do nothing: there is nothing to release."""
