"""Files from a board to this host, over any link."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from labctl.errors import BoardError, DeviceLost, IntegrityError, ProtocolError
from labctl.hdc.compression import LZ4, STORED, decompress_chunk
from labctl.hdc.host.link import (
    PLAIN_FILES,
    FileOptions,
    HostChannel,
    HostLink,
    expect,
    raise_echo,
    refuse,
)
from labctl.hdc.messages import (
    FILE_FEATURES,
    EchoLevel,
    FileMode,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command

Write = Callable[[bytes | memoryview], object]

#: Directories, and entries that were skipped, that are remembered of one transfer.
_MAX_NOTES = 100_000
_PERMISSIONS = 0o777


@dataclass(frozen=True)
class ReceivedFile:
    """What a board told about a file that came; None is what it was not asked for.

    ``permissions`` are those of its mode alone: no board decides about set-id bits or owners here.
    Times are ns since 1970.
    """

    name: str
    size_bytes: int
    permissions: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


def receive_file(
    link: HostLink,
    remote: str,
    *,
    timeout: float,
    write: Write,
    options: FileOptions = PLAIN_FILES,
) -> ReceivedFile:
    """Receive the file at ``remote`` piece by piece.

    ``timeout`` (s) bounds each wait for progress. Raises LinkError, BoardError, ConfigError.
    """
    wanted = possible(options, link)
    with link.open_receive(remote, timeout=timeout, options=wanted) as channel:
        receiving = Receiving(channel, wanted, remote)
        coming = receiving.next_file()
        if coming is None:
            raise ProtocolError(f"the board ended the transfer of {remote} before it began")
        if "/" in coming.name:
            raise BoardError(f"not a file on the board, but a directory: {remote}")
        receiving.receive(write)
        if receiving.next_file() is not None:
            raise ProtocolError(f"the board sent more than one file for {remote}")
    return coming


class Receiving:
    """One transfer: files, one after another over one channel, and its end.

    In a directory (``tolerant``) what the board cannot read is skipped; its words are kept in
    ``skipped``, the names of directories that it told modes of in ``directories``.
    """

    def __init__(
        self, channel: HostChannel, options: FileOptions, remote: str, *, tolerant: bool = False
    ):
        self.skipped: list[str] = []
        self.directories: list[str] = []
        self._channel = channel
        self._options = options
        self._remote = remote
        self._tolerant = tolerant
        self._coming = ReceivedFile("", 0)

    def next_file(self) -> ReceivedFile | None:
        """What comes next, to be taken with :meth:`receive`; None at the end of the transfer."""
        mode: FileMode | None = None
        noted = -1
        while True:
            if noted != (noted := len(self.directories) + len(self.skipped)):
                deadline = time.monotonic() + self._channel.timeout  # words alone are no progress
            command, data = self._channel.receive(deadline - time.monotonic())
            if command == Command.FILE_CHECK:
                return self._begin(TransferConfig.decode(data), mode)
            if command == Command.FILE_MODE and self._options.keep_mode:
                mode = FileMode.decode(data)
                self._channel.send(Command.FILE_MODE)
            elif command == Command.DIR_MODE and self._options.keep_mode:
                self._note(self.directories, FileMode.decode(data).full_name)
                self._channel.send(Command.FILE_MODE)
            elif command == Command.FILE_FINISH and data == b"\0":
                return None
            elif not self._skip(command, data):
                refuse(command, data, Command.FILE_CHECK.name)

    def receive(self, write: Write) -> None:
        """Take the content of the file that :meth:`next_file` announced.

        Raises IntegrityError when it is not as long as announced: hdcd sends what reading gives,
        and marks an early end with an empty chunk.
        """
        self._channel.send(Command.FILE_BEGIN, FILE_FEATURES)
        size, done = self._coming.size_bytes, 0
        while True:
            data = memoryview(expect(self._channel, Command.FILE_DATA, also=self._skip))
            body = self._unpack(data, done)
            write(body)
            done += len(body)
            if done == size:
                break
            if done > size or not body:
                raise IntegrityError(
                    f"the board announced {size} bytes of {self._remote} and sent "
                    f"{'more' if done > size else done}",
                    hint="does something on the board write to it?",
                )
        self._channel.send(Command.FILE_FINISH, b"\x01")

    def _begin(self, config: TransferConfig, mode: FileMode | None) -> ReceivedFile:
        has_times = self._options.keep_times and bool(config.hold_timestamp)
        self._coming = ReceivedFile(
            config.optional_name,
            config.file_size,
            None if mode is None else mode.st_mode & _PERMISSIONS,
            config.atime_ns if has_times else None,
            config.mtime_ns if has_times else None,
        )
        return self._coming

    def _unpack(self, data: memoryview, done: int) -> memoryview | bytes:
        payload, body = TransferPayload.decode_packet(data)
        kinds = (STORED, LZ4) if self._options.compress else (STORED,)
        if payload.offset != done or payload.compress_type not in kinds:
            raise ProtocolError(f"the board sent a chunk that was not asked for: {payload}")
        if payload.compress_type == STORED:
            return body
        return decompress_chunk(body, payload.uncompress_size)

    def _note(self, notes: list[str], what: str) -> None:
        if len(notes) >= _MAX_NOTES:
            raise ProtocolError(f"the board tells more than {_MAX_NOTES} things of {self._remote}")
        notes.append(what)

    def _skip(self, command: int, data: bytes) -> bool:
        """Note an entry that the board cannot read: without a close it goes on with others."""
        if not self._tolerant:
            return False
        if command == Command.ECHO and data[:1] == bytes([EchoLevel.FAIL]):
            self._note(self.skipped, data[1:].decode(errors="replace").strip())
            return True
        if command == Command.CHANNEL_CLOSE:
            if self.skipped:  # the last words were about the whole
                raise_echo(bytes([EchoLevel.FAIL]) + self.skipped.pop().encode())
            raise DeviceLost(f"the board broke off the transfer of {self._remote}")
        return False


def possible(options: FileOptions, link: HostLink) -> FileOptions:
    """The options without what the board is not known to do well."""
    if options.compress and not link.can_compress:
        return FileOptions(keep_mode=options.keep_mode, keep_times=options.keep_times)
    return options
