"""Frames of adb's shell protocol (``shell_v2``), without input or output.

A frame is one byte of identity, the size of its data (u32, little-endian) and the data; source:
``shell_protocol.h`` of Android's platform/packages/modules/adb. Both ends use it: the host sends
standard input, the device answers with both streams and the exit status, each in frames.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from labctl.errors import ProtocolError

_HEAD = struct.Struct("<BI")
#: Maximum accepted data of one frame; the reference sends at most one packet (1 MiB) less a head.
MAX_DATA_BYTES = 4 << 20


class FrameId(IntEnum):
    """Content of a frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    """One byte: the exit status; a command that a signal ended has 128 + its number."""
    CLOSE_STDIN = 4
    WINDOW_SIZE = 5


class Frame(NamedTuple):
    """One frame; ``id`` is a plain number, since later releases may add identities."""

    id: int
    data: bytes


def encode_frame(identity: FrameId, data: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    return _HEAD.pack(identity, len(data)) + data


class FrameReader:
    """Cuts a stream into frames, however it arrives."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes, and yield the frames that are whole.

        Raises ProtocolError for data larger than :data:`MAX_DATA_BYTES`.
        """
        self._received += data
        while len(self._received) >= _HEAD.size:
            identity, size = _HEAD.unpack_from(self._received)
            if size > MAX_DATA_BYTES:
                raise ProtocolError(f"a shell frame of {size:,} bytes: at most {MAX_DATA_BYTES:,}")
            end = _HEAD.size + size
            if len(self._received) < end:
                return
            frame = Frame(identity, bytes(self._received[_HEAD.size : end]))
            del self._received[:end]
            yield frame

    @property
    def is_between_frames(self) -> bool:
        """True if no frame is cut off at the end of what came."""
        return not self._received
