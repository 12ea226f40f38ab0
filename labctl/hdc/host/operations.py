"""What a host asks of a board over any link: run a command, send a file, receive a file."""

import os
import time
from collections.abc import Callable, Generator
from typing import BinaryIO

from labctl.errors import (
    BoardError,
    CommandTimeout,
    HostError,
    IntegrityError,
    ProtocolError,
)
from labctl.hdc.host.link import HostChannel, HostLink, expect, raise_echo, refuse
from labctl.hdc.messages import (
    FILE_FEATURES,
    LARGE_CHUNK_BYTES,
    SMALL_CHUNK_BYTES,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command


def shell(link: HostLink, command: str, *, timeout: float) -> Generator[bytes, None, None]:
    """Run ``command`` in the board's shell; its output, piece by piece, until it ends.

    Close the iterator to end the command early. The protocol carries no exit status, and the end
    of the output proves nothing by itself. ``timeout`` (s) bounds the whole command.
    Raises LinkError, BoardError.
    """
    deadline = time.monotonic() + timeout
    raw = command.encode(errors="surrogateescape")
    with link.open_task(
        Command.UNITY_EXECUTE, raw, text=f"shell {command}", timeout=timeout
    ) as channel:
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise CommandTimeout(f"the command did not end within {timeout:g} s")
            kind, data = channel.receive(remaining)
            if kind == Command.CHANNEL_CLOSE:
                return
            if kind == Command.ECHO:
                raise_echo(data)
            elif kind == Command.ECHO_RAW:
                yield data


def send_file(
    link: HostLink,
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
    with link.open_send(remote, timeout=timeout) as channel:
        name = remote.rpartition("/")[2]
        config = TransferConfig(file_size=size, path=remote, optional_name=name)
        channel.send(Command.FILE_CHECK, config.encode())
        features = expect(channel, Command.FILE_BEGIN)
        large = bool(features) and bool(features[0] & 1)
        _send_chunks(
            channel, source, size, LARGE_CHUNK_BYTES if large else SMALL_CHUNK_BYTES, on_chunk
        )
        _settle(channel, expect(channel, Command.FILE_FINISH))
        _check_summary(expect(channel, Command.ECHO), size)
        expect(channel, Command.CHANNEL_CLOSE)
    return size


def receive_file(
    link: HostLink, remote: str, *, timeout: float, write: Callable[[bytes | memoryview], None]
) -> int:
    """Receive the file at ``remote`` piece by piece; its size in bytes.

    ``timeout`` (s) bounds each wait for progress. Raises LinkError, BoardError, ConfigError.
    """
    with link.open_receive(remote, timeout=timeout) as channel:
        config = TransferConfig.decode(expect(channel, Command.FILE_CHECK))
        if "/" in config.optional_name:
            raise BoardError(f"not a file on the board, but a directory: {remote}")
        channel.send(Command.FILE_BEGIN, FILE_FEATURES)
        done = 0
        while True:
            data = memoryview(expect(channel, Command.FILE_DATA))
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
        expect(channel, Command.FILE_FINISH)
    return done


def _send_chunks(
    channel: HostChannel,
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
                raise_echo(expect(channel, Command.ECHO))
                raise IntegrityError("the board ended the transfer before it had the whole file")
            refuse(kind, data, "nothing")


def _read_exactly(source: BinaryIO, chunk: memoryview) -> int:
    done = 0
    while done < len(chunk) and (count := os.readv(source.fileno(), [chunk[done:]])):
        done += count
    return done


def _settle(channel: HostChannel, count: bytes) -> None:
    """Answer a FILE_FINISH: n with n - 1, until it is 0."""
    while count and count[0]:
        channel.send(Command.FILE_FINISH, bytes([count[0] - 1]))
        if count[0] == 1:
            return
        count = expect(channel, Command.FILE_FINISH)


def _check_summary(data: bytes, size: int) -> None:
    raise_echo(data)
    text = data[1:].decode(errors="replace")
    if not text.startswith(f"FileTransfer finish, Size:{size},"):
        raise IntegrityError(f"sent {size} bytes, but the board reports: {text}")
