"""Packets between an adb server and a device, without input or output.

A packet has 24 bytes: command, two arguments, size of the data, checksum, the command's complement;
then the data. All numbers are little-endian u32; source: ``protocol.txt`` of Android's
platform/packages/modules/adb.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from labctl.errors import ProtocolError

_HEAD = struct.Struct("<6I")
HEAD_BYTES = _HEAD.size
#: Version from which on packets have no checksum.
VERSION = 0x01000001
#: Maximum data of one packet, as the reference announces it.
MAX_DATA_BYTES = 1 << 20


def _letters(name: str) -> int:
    return int.from_bytes(name.encode(), "little")


class Command(IntEnum):
    """Kind of a packet."""

    CONNECT = _letters("CNXN")
    """Version, maximum size of data; the banner."""
    AUTH = _letters("AUTH")
    """Kind (:class:`Auth`), 0; the data."""
    OPEN = _letters("OPEN")
    """The sender's number of the stream, 0; the service's name."""
    OKAY = _letters("OKAY")
    """Both numbers: the stream is open, or its last data was taken."""
    CLOSE = _letters("CLSE")
    """Both numbers; the sender's is 0 if the stream was refused."""
    WRITE = _letters("WRTE")
    """Both numbers; the data. The next one waits for OKAY."""


class Auth(IntEnum):
    """Kind of the data of AUTH."""

    TOKEN = 1
    SIGNATURE = 2
    PUBLIC_KEY = 3


class Head(NamedTuple):
    """The first 24 bytes of a packet, checked."""

    command: int
    first: int
    second: int
    size: int

    @classmethod
    def decode(cls, raw: bytes | bytearray) -> "Head":
        """Read a packet's head. Raises ProtocolError for other bytes, and for too much data."""
        command, first, second, size, _, magic = _HEAD.unpack(raw)
        if magic != command ^ 0xFFFFFFFF:
            raise ProtocolError("not a packet of adb: its magic number is wrong")
        if size > MAX_DATA_BYTES:
            raise ProtocolError(f"a packet of {size:,} bytes: at most {MAX_DATA_BYTES:,}")
        return cls(command, first, second, size)


def encode_packet(command: int, first: int, second: int, data: bytes, *, checked: bool) -> bytes:
    """Return a packet as bytes, with a checksum if the host's version wants it."""
    total = sum(data) & 0xFFFFFFFF if checked else 0
    return _HEAD.pack(command, first, second, len(data), total, command ^ 0xFFFFFFFF) + data
