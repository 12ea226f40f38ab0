"""Packets of the hdc session protocol (host to board), without input or output.

A packet is a header of 11 bytes (``HW``, two zero bytes, version 1, u16 size of protect, u32 size
of data, big-endian), the protect message and the data.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from labctl.errors import ProtocolError
from labctl.hdc.messages import Buffer, Message

_HEAD = struct.Struct(">2s2sBHI")
_MAGIC = b"HW"
_VERSION = 1
_CHECK_CODE = 9
#: Maximum accepted protect message; the reference sends at most 13 bytes.
_MAX_PROTECT_BYTES = 64
#: Maximum accepted data of one packet. The protocol allows 2**31; the reference sends at most
#: 418,675 bytes (a file chunk), and a peer must not control how much memory is allocated.
MAX_DATA_BYTES = 4 << 20

#: Minimum room for a worthwhile system call.
_MIN_ROOM_BYTES = 64 << 10
#: Buffer sizes: at first, and after a stream has filled the first; a farm has a link to each board.
_BUFFER_BYTES = 2 * _MIN_ROOM_BYTES
_STREAM_BUFFER_BYTES = 1 << 20


class Command(IntEnum):
    """Request or content of a packet."""

    HANDSHAKE = 1
    CHANNEL_CLOSE = 2
    ECHO = 9
    ECHO_RAW = 10
    WAKEUP_SLAVETASK = 12
    UNITY_EXECUTE = 1001
    UNITY_REMOUNT = 1002
    UNITY_REBOOT = 1003
    UNITY_RUNMODE = 1004
    UNITY_HILOG = 1005
    UNITY_ROOTRUN = 1007
    UNITY_JPID = 1008
    JDWP_TRACK = 1009
    BUGREPORT_INIT = 1011
    BUGREPORT_DATA = 1012
    UNITY_EXECUTE_EX = 1200
    SHELL_INIT = 2000
    SHELL_DATA = 2001
    FORWARD_INIT = 2500
    FORWARD_CHECK = 2501
    FORWARD_CHECK_RESULT = 2502
    FORWARD_ACTIVE_SLAVE = 2503
    FORWARD_ACTIVE_MASTER = 2504
    FORWARD_DATA = 2505
    FORWARD_FREE_CONTEXT = 2506
    FORWARD_SUCCESS = 2509
    FILE_INIT = 3000
    FILE_CHECK = 3001
    FILE_BEGIN = 3002
    FILE_DATA = 3003
    FILE_FINISH = 3004
    FILE_MODE = 3006
    DIR_MODE = 3007
    APP_CHECK = 3501
    APP_BEGIN = 3502
    APP_DATA = 3503
    APP_FINISH = 3504
    APP_UNINSTALL = 3505
    HEARTBEAT = 5000


@dataclass(frozen=True)
class Protect(Message):
    """The second part of a packet; ``check_sum`` is unused, ``check_code`` is always 9."""

    channel: int = 0
    command: int = 0
    check_sum: int = 0
    check_code: int = 0


class Packet(NamedTuple):
    """One packet. The next read overwrites ``data`` of a decoded packet: it is a view."""

    channel: int
    command: int
    data: memoryview


def encode_prefix(channel: int, command: int, data_bytes: int) -> bytes:
    """Encode the part of a packet before its data."""
    protect = Protect(channel, command, 0, _CHECK_CODE).encode()
    return _HEAD.pack(_MAGIC, b"\0\0", _VERSION, len(protect), data_bytes) + protect


def encode_packet(channel: int, command: int, data: Buffer = b"") -> bytes:
    """Encode a whole packet."""
    return encode_prefix(channel, command, len(data)) + data


class PacketDecoder:
    """Finds packets in a stream of pieces of any size.

    Bytes are received directly into the decoder's buffer: read into :meth:`room`, call
    :meth:`received`, then take :meth:`packets`. The data of packets are views into the buffer,
    valid until the next call of :meth:`room`.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self._needed = 0  # known bytes of the incomplete packet

    def room(self) -> memoryview:
        """Return a buffer for the next bytes of the stream; never empty."""
        is_stream = self._end == len(self._buffer) < _STREAM_BUFFER_BYTES
        if self._start == self._end:
            self._start = self._end = 0
        wanted = max(self._needed, self._end - self._start + _MIN_ROOM_BYTES)
        if is_stream or self._start + wanted > len(self._buffer):
            rest = self._buffer[self._start : self._end]
            if is_stream or wanted > len(self._buffer):
                self._buffer = bytearray(max(wanted, _STREAM_BUFFER_BYTES))
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return memoryview(self._buffer)[self._end :]

    @property
    def missing_bytes(self) -> int:
        """Known number of bytes that the current packet still needs; 0 between packets."""
        return max(self._needed - (self._end - self._start), 0)

    def received(self, count: int) -> None:
        """Note that ``count`` bytes were written into :meth:`room`."""
        self._end += count

    def packets(self) -> Iterator[Packet]:
        """Yield the complete packets. Raises ProtocolError if a packet is not an hdc packet."""
        view = memoryview(self._buffer)
        while (packet := self._next(view)) is not None:
            yield packet

    def feed(self, data: Buffer) -> list[tuple[int, int, bytes]]:
        """Yield channel, command and copied data of the packets that ``data`` completes."""
        found = []
        source = memoryview(data)
        while source:
            room = self.room()
            count = min(len(room), len(source))
            room[:count] = source[:count]
            self.received(count)
            source = source[count:]
            found += [(channel, command, bytes(body)) for channel, command, body in self.packets()]
        return found

    def _next(self, view: memoryview) -> Packet | None:
        available = self._end - self._start
        self._needed = _HEAD.size
        # Check the first bytes at once: a peer that does not speak hdc may send no more.
        magic = view[self._start : min(self._end, self._start + len(_MAGIC))]
        if magic != _MAGIC[: len(magic)]:
            raise ProtocolError(
                f"the peer sent {bytes(view[self._start : self._end])[:16]!r} where an hdc packet "
                "starts",
                hint="is this the port of an hdc daemon (not of an hdc server)?",
            )
        if available < _HEAD.size:
            return None
        _, _, version, protect_bytes, data_bytes = _HEAD.unpack_from(view, self._start)
        if version != _VERSION:
            raise ProtocolError(f"unknown hdc packet version {version}")
        if protect_bytes > _MAX_PROTECT_BYTES or data_bytes > MAX_DATA_BYTES:
            raise ProtocolError(
                f"an hdc packet announces {protect_bytes} + {data_bytes} bytes, too many"
            )
        self._needed = _HEAD.size + protect_bytes + data_bytes
        if available < self._needed:
            return None
        body = self._start + _HEAD.size
        protect = Protect.decode(view[body : body + protect_bytes])
        if protect.check_code != _CHECK_CODE:
            raise ProtocolError(f"an hdc packet has check code {protect.check_code}, not 9")
        data = view[body + protect_bytes : body + protect_bytes + data_bytes]
        self._start += self._needed
        self._needed = 0
        return Packet(protect.channel, protect.command, data)
