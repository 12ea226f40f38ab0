"""Files between this host and a board, over any link."""

import os
import stat
import time
from collections.abc import Callable
from typing import BinaryIO

from labctl.errors import BoardError, HostError, IntegrityError, ProtocolError
from labctl.hdc.host.link import (
    HostChannel,
    HostLink,
    check_path,
    expect,
    raise_echo,
    refuse,
)
from labctl.hdc.lz4_chunks import LZ4, STORED, compress_chunk, decompress_chunk
from labctl.hdc.messages import (
    FILE_FEATURES,
    LARGE_CHUNK_BYTES,
    SMALL_CHUNK_BYTES,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command

OnChunk = Callable[[memoryview], object]

#: Positions and size of the samples that show if LZ4 makes a file smaller.
_SAMPLES = (0.0, 0.5)
_SAMPLE_BYTES = 128 << 10
#: LZ4 must save this share of the samples: compression takes time at both ends.
_WORTHWHILE = 0.1


def send_file(
    link: HostLink,
    source: BinaryIO,
    remote: str,
    *,
    timeout: float,
    on_chunk: OnChunk,
    name: str | None = None,
    compress: bool = False,
) -> int:
    """Send an open file to ``remote`` (truncated first, mode 0644); return its size in bytes.

    If ``remote`` is a directory, the file is written there under ``name`` (default: the last part
    of ``remote``). ``timeout`` (s) limits each wait for progress. ``on_chunk`` gets the bytes in
    order as they are sent. ``compress`` permits LZ4 blocks; they are used if they are smaller and
    the board is known to handle them well. The board checks only the number of bytes: verify the
    content afterwards. Raises LinkError, BoardError, HostError, IntegrityError.
    """
    called = remote.rpartition("/")[2] if name is None else name
    with link.open_send(remote, timeout=timeout) as channel:
        sending = Sending(channel, remote, compress=compress and link.can_compress)
        sending.send(source, called, on_chunk)
        sending.finish()
    return sending.sent_bytes


class Sending:
    """One transfer of files, one after another over one channel."""

    def __init__(self, channel: HostChannel, remote: str, *, compress: bool = False):
        self.sent_bytes = 0
        self._files = 0
        self._channel = channel
        self._remote = check_path(remote)  # hdcd uses it as a printf format
        self._compress = compress
        self._counter = b""

    def send(self, source: BinaryIO, name: str, on_chunk: OnChunk) -> None:
        """Send one file under ``name``."""
        if self._counter > b"\x01":  # 3.1.0e counts down from 7 if it could not take a file
            self._stopped(self._counter)
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise HostError(f"not a file: {name}")
        size = status.st_size
        compresses = self._compress and _is_worthwhile(source, size)
        config = TransferConfig(
            file_size=size,
            path=self._remote,
            optional_name=check_path(name),
            compress_type=LZ4 if compresses else STORED,
        )
        self._channel.send(Command.FILE_CHECK, config.encode())
        features = expect(self._channel, Command.FILE_BEGIN)
        large = bool(features) and bool(features[0] & 1)
        chunk_bytes = LARGE_CHUNK_BYTES if large else SMALL_CHUNK_BYTES
        self._send_chunks(source, size, chunk_bytes, on_chunk, compresses=compresses)
        self._counter = expect(self._channel, Command.FILE_FINISH)
        self._files += 1
        self.sent_bytes += size

    def finish(self) -> None:
        """End the transfer, and compare the board's summary with the sent files."""
        self._settle(self._counter)
        data = expect(self._channel, Command.ECHO)
        raise_echo(data)
        expect(self._channel, Command.CHANNEL_CLOSE)
        text = data[1:].decode(errors="replace")
        due = f"FileTransfer finish, Size:{self.sent_bytes}, File count = {self._files}"
        if not f"{text},".startswith(f"{due},"):
            raise IntegrityError(
                f"sent {self.sent_bytes} bytes in {self._files} files,"
                f" but the board reports: {text}"
            )

    def _send_chunks(
        self, source: BinaryIO, size: int, chunk_bytes: int, on_chunk: OnChunk, *, compresses: bool
    ) -> None:
        buffer = memoryview(bytearray(min(chunk_bytes, max(size, 1))))
        done = 0
        while True:
            chunk = buffer[: min(chunk_bytes, size - done)]
            if _read_exactly(source, chunk) != len(chunk):
                raise HostError("the file became shorter while it was being sent")
            packed = compress_chunk(chunk) if compresses else None
            body = chunk if packed is None else packed
            kind = STORED if packed is None else LZ4
            area = TransferPayload(done, kind, len(body), len(chunk)).encode_area()
            self._channel.send(Command.FILE_DATA, area, body)
            on_chunk(chunk)
            done += len(chunk)
            if done == size:
                return
            while self._channel.pending():  # no acknowledgement: usually an error
                command, data = self._channel.receive()
                if command == Command.FILE_FINISH:  # 3.1.0e gives the reason afterwards
                    self._stopped(data)
                refuse(command, data, "nothing")

    def _stopped(self, counter: bytes) -> None:
        self._settle(counter)
        raise_echo(expect(self._channel, Command.ECHO))
        raise IntegrityError("the board ended the transfer before it had everything")

    def _settle(self, counter: bytes) -> None:
        """Answer a FILE_FINISH: n with n - 1, until it is 0."""
        while counter and counter[0]:
            self._channel.send(Command.FILE_FINISH, bytes([counter[0] - 1]))
            if counter[0] == 1:
                return
            counter = expect(self._channel, Command.FILE_FINISH)


def _read_exactly(source: BinaryIO, chunk: memoryview) -> int:
    done = 0
    while done < len(chunk) and (count := os.readv(source.fileno(), [chunk[done:]])):
        done += count
    return done


def _is_worthwhile(source: BinaryIO, size: int) -> bool:
    """Return True if LZ4 shrinks samples of a file enough."""
    plain = packed = 0
    for place in _SAMPLES:
        sample = os.pread(source.fileno(), _SAMPLE_BYTES, int(size * place))
        block = compress_chunk(sample) if sample else None
        plain += len(sample)
        packed += len(sample) if block is None else len(block)
    return packed < plain * (1 - _WORTHWHILE)


Write = Callable[[bytes | memoryview], object]


def receive_file(
    link: HostLink, remote: str, *, timeout: float, write: Write, compress: bool = False
) -> int:
    """Receive the file at ``remote`` piece by piece; return its size in bytes.

    ``timeout`` (s) limits each wait for progress. ``compress`` lets the board send LZ4 blocks, if
    it is known to handle them well. Raises LinkError, BoardError, ConfigError.
    """
    compress = compress and link.can_compress
    with link.open_receive(remote, timeout=timeout, compress=compress) as channel:
        receiving = _Receiving(channel, remote, compress=compress)
        coming = receiving.next_file()
        if coming is None:
            raise ProtocolError(f"the board ended the transfer of {remote} before it began")
        if "/" in coming.optional_name:
            raise BoardError(f"not a file on the board, but a directory: {remote}")
        receiving.receive(write, coming.file_size)
        if receiving.next_file() is not None:
            raise ProtocolError(f"the board sent more than one file for {remote}")
    return coming.file_size


class _Receiving:
    """One transfer: the announced files, their content, and the end."""

    def __init__(self, channel: HostChannel, remote: str, *, compress: bool):
        self._channel = channel
        self._remote = remote
        self._kinds = (STORED, LZ4) if compress else (STORED,)

    def next_file(self) -> TransferConfig | None:
        """Return the next file, to be read with :meth:`receive`; None after the last file."""
        deadline = time.monotonic() + self._channel.timeout  # a message alone is not progress
        while True:
            command, data = self._channel.receive(deadline - time.monotonic())
            if command == Command.FILE_CHECK:
                return TransferConfig.decode(data)
            if command == Command.FILE_FINISH and data == b"\0":
                return None
            refuse(command, data, Command.FILE_CHECK.name)

    def receive(self, write: Write, size: int) -> None:
        """Receive the content (``size`` bytes) of the file that :meth:`next_file` returned.

        Raises IntegrityError if its length differs: hdcd sends what it can read, and marks an early
        end with an empty chunk.
        """
        self._channel.send(Command.FILE_BEGIN, FILE_FEATURES)
        done = 0
        while True:
            body = self._unpack(memoryview(expect(self._channel, Command.FILE_DATA)), done)
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

    def _unpack(self, data: memoryview, done: int) -> memoryview | bytes:
        payload, body = TransferPayload.decode_packet(data)
        if payload.offset != done or payload.compress_type not in self._kinds:
            raise ProtocolError(f"the board sent an unexpected chunk: {payload}")
        if payload.compress_type == STORED:
            return body
        return decompress_chunk(body, payload.uncompress_size)
