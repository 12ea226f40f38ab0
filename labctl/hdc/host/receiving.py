"""Files from a board to this host, over any link."""

import time
from collections.abc import Callable

from labctl.errors import BoardError, IntegrityError, ProtocolError
from labctl.hdc.compression import LZ4, STORED, decompress_chunk
from labctl.hdc.host.link import HostChannel, HostLink, expect, refuse
from labctl.hdc.messages import FILE_FEATURES, TransferConfig, TransferPayload
from labctl.hdc.wire import Command

Write = Callable[[bytes | memoryview], object]


def receive_file(
    link: HostLink, remote: str, *, timeout: float, write: Write, compress: bool = False
) -> int:
    """Receive the file at ``remote`` piece by piece; its size in bytes.

    ``timeout`` (s) bounds each wait for progress. ``compress`` lets the board send LZ4 blocks,
    where it is known to do that well. Raises LinkError, BoardError, ConfigError.
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
    """One transfer: what the board announces, its content, and the end."""

    def __init__(self, channel: HostChannel, remote: str, *, compress: bool):
        self._channel = channel
        self._remote = remote
        self._kinds = (STORED, LZ4) if compress else (STORED,)

    def next_file(self) -> TransferConfig | None:
        """Return the next file, to be read with :meth:`receive`; None at the end of the
        transfer.
        """
        deadline = time.monotonic() + self._channel.timeout  # words alone are no progress
        while True:
            command, data = self._channel.receive(deadline - time.monotonic())
            if command == Command.FILE_CHECK:
                return TransferConfig.decode(data)
            if command == Command.FILE_FINISH and data == b"\0":
                return None
            refuse(command, data, Command.FILE_CHECK.name)

    def receive(self, write: Write, size: int) -> None:
        """Take the content, of ``size`` bytes, of the file that :meth:`next_file` announced.

        Raises IntegrityError when it is not as long as announced: hdcd sends what reading gives,
        and marks an early end with an empty chunk.
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
            raise ProtocolError(f"the board sent a chunk that was not asked for: {payload}")
        if payload.compress_type == STORED:
            return body
        return decompress_chunk(body, payload.uncompress_size)
