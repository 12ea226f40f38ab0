"""What a host asks of a board over a session: run a command, send a file, receive a file."""

import os
import time
from collections.abc import Callable, Generator
from typing import BinaryIO

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    HostError,
    IntegrityError,
    ProtocolError,
)
from labctl.hdc.messages import (
    FILE_FEATURES,
    LARGE_CHUNK_BYTES,
    SMALL_CHUNK_BYTES,
    EchoLevel,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.session import Channel, Session
from labctl.hdc.wire import Command

_NO_SPACE = ("no space left on device", "disk quota exceeded")
_REFUSED = ("permission denied", "operation not permitted", "read-only file system")


def shell(session: Session, command: str, *, timeout: float) -> Generator[bytes, None, None]:
    """Run ``command`` in the board's shell; its output, piece by piece, until it ends.

    Close the iterator to end the command early. The protocol carries no exit status, and the end
    of the output proves nothing by itself. ``timeout`` (s) bounds the whole command.
    Raises LinkError, BoardError.
    """
    deadline = time.monotonic() + timeout
    with session.channel(timeout=timeout) as channel:
        channel.send(Command.UNITY_EXECUTE, command.encode(errors="surrogateescape"))
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise CommandTimeout(f"the command did not end within {timeout:g} s")
            kind, data = channel.receive(remaining)
            if kind == Command.CHANNEL_CLOSE:
                return
            if kind == Command.ECHO:
                _echo(data)
            elif kind == Command.ECHO_RAW:
                yield data


def send_file(
    session: Session,
    source: BinaryIO,
    remote: str,
    *,
    timeout: float,
    on_chunk: Callable[[memoryview], None],
) -> int:
    """Send an open file to the path ``remote`` (truncated first, made 0644); its size in bytes.

    ``timeout`` (s) bounds each wait for progress. ``on_chunk`` sees the bytes, in order, as they
    are sent. The board checks nothing but the count: prove the content afterwards.
    Raises LinkError, BoardError, HostError, IntegrityError.
    """
    size = os.fstat(source.fileno()).st_size
    with session.channel(timeout=timeout) as channel:
        channel.send(Command.WAKEUP_SLAVETASK)
        name = remote.rpartition("/")[2]
        config = TransferConfig(file_size=size, path=remote, optional_name=name)
        channel.send(Command.FILE_CHECK, config.encode())
        features = _expect(channel, Command.FILE_BEGIN)
        large = bool(features) and bool(features[0] & 1)
        _send_chunks(
            channel, source, size, LARGE_CHUNK_BYTES if large else SMALL_CHUNK_BYTES, on_chunk
        )
        _settle(channel, _expect(channel, Command.FILE_FINISH))
        _check_summary(_expect(channel, Command.ECHO), size)
        _expect(channel, Command.CHANNEL_CLOSE)
    return size


def receive_file(
    session: Session, remote: str, *, timeout: float, write: Callable[[bytes | memoryview], None]
) -> int:
    """Receive the file at ``remote`` piece by piece; its size in bytes.

    ``timeout`` (s) bounds each wait for progress. Raises LinkError, BoardError, ConfigError.
    """
    if '"' in remote:
        raise ConfigError(f"hdc cannot name a path with a double quote: {remote}")
    with session.channel(timeout=timeout) as channel:
        channel.send(Command.FILE_INIT, f'"{remote}" file'.encode(errors="surrogateescape"))
        _expect(channel, Command.WAKEUP_SLAVETASK)
        config = TransferConfig.decode(_expect(channel, Command.FILE_CHECK))
        if "/" in config.optional_name:
            raise BoardError(f"not a file on the board, but a directory: {remote}")
        channel.send(Command.FILE_BEGIN, FILE_FEATURES)
        done = 0
        while True:
            data = memoryview(_expect(channel, Command.FILE_DATA))
            payload, body = TransferPayload.decode_packet(data)
            if payload.offset != done or payload.compress_type != 0:
                raise ProtocolError(f"the board sent a chunk that was not asked for: {payload}")
            write(body)
            done += len(body)
            if done > config.file_size:
                raise ProtocolError(f"the board sent more of {remote} than it announced")
            if done == config.file_size:
                break
            if not body:
                raise ProtocolError(f"the board sent an empty chunk in the middle of {remote}")
        channel.send(Command.FILE_FINISH, b"\x01")
        _expect(channel, Command.FILE_FINISH)
    return done


def _send_chunks(
    channel: Channel,
    source: BinaryIO,
    size: int,
    chunk_bytes: int,
    on_chunk: Callable[[memoryview], None],
) -> None:
    buffer = memoryview(bytearray(min(chunk_bytes, max(size, 1))))
    done = 0
    while True:
        chunk = buffer[: min(chunk_bytes, size - done)]
        if _read_exactly(source, chunk) != len(chunk):
            raise HostError("the file became shorter while it was being sent")
        area = TransferPayload(done, 0, len(chunk), len(chunk)).encode_area()
        channel.send(Command.FILE_DATA, area, chunk)
        on_chunk(chunk)
        done += len(chunk)
        if done == size:
            return
        while channel.pending():  # nothing is acknowledged between chunks: mostly bad news
            kind, data = channel.receive()
            if kind == Command.FILE_FINISH:  # hdcd 3.1.0e gives up first and says why then
                _settle(channel, data)
                _echo(_expect(channel, Command.ECHO))
                raise IntegrityError("the board ended the transfer before it had the whole file")
            _refuse(kind, data, "nothing")


def _read_exactly(source: BinaryIO, chunk: memoryview) -> int:
    done = 0
    while done < len(chunk) and (count := os.readv(source.fileno(), [chunk[done:]])):
        done += count
    return done


def _expect(channel: Channel, wanted: Command) -> bytes:
    """The data of the next packet, which must be ``wanted``; anything but words is an error."""
    deadline = time.monotonic() + channel.timeout  # words alone are no progress
    while True:
        kind, data = channel.receive(deadline - time.monotonic())
        if kind == wanted:
            return data
        _refuse(kind, data, wanted.name)


def _refuse(kind: int, data: bytes, due: str) -> None:
    """Raise what a packet means that was not due, unless it is mere information."""
    if kind == Command.CHANNEL_CLOSE:
        raise DeviceLost("the board broke off the transfer without a reason")
    if kind != Command.ECHO:
        raise ProtocolError(f"the board sent command {kind} where {due} was due")
    _echo(data)


def _settle(channel: Channel, count: bytes) -> None:
    """Answer a FILE_FINISH: n with n - 1, until it is 0."""
    while count and count[0]:
        channel.send(Command.FILE_FINISH, bytes([count[0] - 1]))
        if count[0] == 1:
            return
        count = _expect(channel, Command.FILE_FINISH)


def _echo(data: bytes) -> None:
    """Raise what an ECHO packet reports, unless it is mere information."""
    text = data[1:].decode(errors="replace").strip()
    if not data or data[0] != EchoLevel.FAIL:
        return
    lowered = text.lower()
    if any(reason in lowered for reason in _NO_SPACE):
        raise BoardNoSpace(f"the board's storage is full: {text}", hint="free space on the board")
    if any(reason in lowered for reason in _REFUSED):
        raise BoardPermission(
            f"the board refuses access: {text}", hint="use a path below the board's workdir"
        )
    raise BoardError(f"the board answers: {text}")


def _check_summary(data: bytes, size: int) -> None:
    _echo(data)
    text = data[1:].decode(errors="replace")
    if not text.startswith(f"FileTransfer finish, Size:{size},"):
        raise IntegrityError(f"sent {size} bytes, but the board reports: {text}")
