"""The structures inside hdc session packets.

Field order is the field number; names follow the reference source where it has good ones. Recorded
examples of each are in ``tests/fixtures/hdc``.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from labctl.errors import ProtocolError
from labctl.hdc.protobuf import Buffer, Message

#: Data bytes of a FILE_DATA packet, when both ends use large buffers and when not.
LARGE_CHUNK_BYTES = 418_611
SMALL_CHUNK_BYTES = 49_152
#: A TransferPayload in front of the data of each FILE_DATA packet is padded to this size.
PAYLOAD_AREA_BYTES = 64
#: FILE_BEGIN of a peer with large buffers (bit 0 of the first byte).
FILE_FEATURES = bytes([5, 0, 0, 0, 0, 0, 0, 0])

_TLV_TAG_BYTES = 16
_TLV_SIZE_BYTES = 16


class AuthType(IntEnum):
    """Subject of a handshake packet."""

    NONE = 0
    TOKEN = 1
    SIGNATURE = 2
    PUBLICKEY = 3
    OK = 4
    FAIL = 5
    SSL_TLS_PSK = 6


class EchoLevel(IntEnum):
    """The first byte of an ECHO packet."""

    FAIL = 0
    INFO = 1
    OK = 2


@dataclass(frozen=True)
class SessionHandShake(Message):
    """The first packets of a session. ``buf`` depends on ``auth_type``, mostly TLV text."""

    banner: str = "OHOS HDC"
    auth_type: int = AuthType.NONE
    session_id: int = 0
    connect_key: str = ""
    buf: bytes = b""
    version: str = ""


@dataclass(frozen=True)
class TransferConfig(Message):
    """FILE_CHECK: the file that comes next. Times are ns since 1970, 0 when not kept."""

    file_size: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    options: str = ""
    path: str = ""
    optional_name: str = ""
    update_if_new: int = 0
    compress_type: int = 0
    hold_timestamp: int = 0
    function_name: str = ""
    client_cwd: str = ""
    bundle_name: str = ""
    reserved: str = ""


@dataclass(frozen=True)
class TransferPayload(Message):
    """Header of a FILE_DATA packet: position in the file, and compression."""

    offset: int = 0
    compress_type: int = 0
    compress_size: int = 0
    uncompress_size: int = 0

    def encode_area(self) -> bytes:
        """Encode the message, padded to the 64 bytes in front of the data."""
        return self.encode().ljust(PAYLOAD_AREA_BYTES, b"\0")

    @classmethod
    def decode_packet(cls, data: memoryview) -> tuple[Self, memoryview]:
        """Split a FILE_DATA packet into its payload header and its bytes. Raises ProtocolError."""
        if len(data) < PAYLOAD_AREA_BYTES:
            raise ProtocolError(f"a file chunk of {len(data)} bytes has no head")
        payload = cls.decode(data[:PAYLOAD_AREA_BYTES], padded=True)
        body = data[PAYLOAD_AREA_BYTES:]
        if len(body) != payload.compress_size:
            raise ProtocolError(
                f"a file chunk announces {payload.compress_size} bytes and holds {len(body)}"
            )
        return payload, body


@dataclass(frozen=True)
class FileMode(Message):
    """FILE_MODE and DIR_MODE: the whole st_mode, the owner, the SELinux context."""

    st_mode: int = 0
    uid: int = 0
    gid: int = 0
    context: str = ""
    full_name: str = ""


@dataclass(frozen=True)
class Heartbeat(Message):
    """HEARTBEAT: how many were sent before."""

    count: int = 0
    reserved: str = ""


def encode_tlv(entries: dict[str, str]) -> bytes:
    """Tag and decimal size, each padded with spaces to 16 bytes, then the value."""
    out = bytearray()
    for tag, value in entries.items():
        raw = value.encode(errors="surrogateescape")
        out += tag.encode().ljust(_TLV_TAG_BYTES) + str(len(raw)).encode().ljust(_TLV_SIZE_BYTES)
        out += raw
    return bytes(out)


def decode_tlv(data: Buffer) -> dict[str, str]:
    """Decode the entries of a TLV text. Raises ProtocolError if ``data`` is not one."""
    raw = bytes(data)
    entries: dict[str, str] = {}
    position = 0
    while position < len(raw):
        start = position + _TLV_TAG_BYTES + _TLV_SIZE_BYTES
        tag = raw[position : position + _TLV_TAG_BYTES]
        digits = raw[position + _TLV_TAG_BYTES : start].rstrip(b" ")
        if not digits.isdigit() or start + int(digits) > len(raw):
            raise ProtocolError("a handshake text is not in tag-length-value form")
        position = start + int(digits)
        name = tag.rstrip(b" ").decode(errors="surrogateescape")
        entries[name] = raw[start:position].decode(errors="surrogateescape")
    return entries
