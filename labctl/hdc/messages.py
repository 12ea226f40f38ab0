"""The structures inside hdc session packets.

Field order is the field number. Names follow the reference source where those are good. Recorded
examples of each structure are in ``tests/fixtures/hdc``.

They are encoded in a part of the protobuf wire format
(https://protobuf.dev/programming-guides/encoding/). hdc uses two wire types, varint and
length-delimited. Fields are numbered from 1 without gaps, and never nested or repeated. The
reference writes every field, also zero and empty ones; its readers accept missing fields. This code
is less than a page. The protobuf runtime would drop the zero fields (so frames would differ from
recorded frames), and needs a code generator and a compiled dependency.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from labctl.errors import ProtocolError

#: A context's number is opaque.
ID_BYTES = 4


def naming(node: str) -> bytes:
    """Encode a node as in packets: eight meaningless bytes, the node, a NUL."""
    return bytes(8) + node.encode(errors="surrogateescape") + b"\0"


Buffer = bytes | bytearray | memoryview

_VARINT = 0
_LENGTH_DELIMITED = 2
_VARINT_LIMIT_BITS = 64
#: More fields than any message has, including unknown ones; limits the work for a hostile peer.
_MAX_FIELDS = 64


def encode_varint(value: int) -> bytes:
    """Return ``value`` (0 to 2**64 - 1) in groups of seven bits, lowest first."""
    if not 0 <= value < 1 << _VARINT_LIMIT_BITS:
        raise ValueError(f"not an unsigned 64-bit number: {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: Buffer, start: int) -> tuple[int, int]:
    """Return the number at ``start`` and the position after it. Raises ProtocolError."""
    value = 0
    for count, byte in enumerate(data[start : start + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value >> _VARINT_LIMIT_BITS:
                break
            return value, start + count + 1
    raise ProtocolError("a number in a message is truncated or too large")


def _fields(data: Buffer, *, padded: bool) -> Iterator[tuple[int, int | bytes]]:
    """Yield field numbers and raw values. ``padded``: padding begins at the first zero tag."""
    position = count = 0
    while position < len(data):
        count += 1
        if count > _MAX_FIELDS:
            raise ProtocolError("a message has too many fields")
        tag, position = decode_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if tag == 0 and padded:
            return
        if number == 0:
            raise ProtocolError("a message holds a field without a number")
        if wire_type == _VARINT:
            value, position = decode_varint(data, position)
            yield number, value
        elif wire_type == _LENGTH_DELIMITED:
            size, position = decode_varint(data, position)
            if size > len(data) - position:
                raise ProtocolError(f"field {number} of a message is longer than the message")
            yield number, bytes(data[position : position + size])
            position += size
        else:
            raise ProtocolError(f"field {number} of a message has unknown wire type {wire_type}")


@dataclasses.dataclass(frozen=True)
class Message:
    """A flat message. Subclasses list their fields in the order of their numbers, with defaults.

    A field is ``int`` (unsigned), ``bytes`` or ``str`` (UTF-8; other bytes become surrogates,
    because paths on a board are bytes).
    """

    def encode(self) -> bytes:
        """Encode all fields, including zero and empty ones, as the reference does."""
        out = bytearray()
        for number, field in enumerate(dataclasses.fields(self), 1):
            value = getattr(self, field.name)
            if isinstance(value, int):
                out += encode_varint(number << 3 | _VARINT) + encode_varint(value)
            else:
                raw = value.encode(errors="surrogateescape") if isinstance(value, str) else value
                out += encode_varint(number << 3 | _LENGTH_DELIMITED) + encode_varint(len(raw))
                out += raw
        return bytes(out)

    @classmethod
    def decode(cls, data: Buffer, *, padded: bool = False) -> Self:
        """Read a message; skip unknown fields; missing fields get their default.

        Raises ProtocolError.
        """
        known = dataclasses.fields(cls)
        values: dict[str, object] = {}
        for number, value in _fields(data, padded=padded):
            if number > len(known):
                continue
            field = known[number - 1]
            if isinstance(value, int) != isinstance(field.default, int):
                raise ProtocolError(f"field {field.name} of {cls.__name__} has the wrong type")
            if isinstance(value, bytes) and isinstance(field.default, str):
                values[field.name] = value.decode(errors="surrogateescape")
            else:
                values[field.name] = value
        return cls(**values)


#: Data bytes of a FILE_DATA packet, with large buffers at both ends and without.
LARGE_CHUNK_BYTES = 418_611
SMALL_CHUNK_BYTES = 49_152
#: The TransferPayload before the data of each FILE_DATA packet is padded to this size.
PAYLOAD_AREA_BYTES = 64
#: FILE_BEGIN from a peer with large buffers (bit 0 of the first byte).
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
    """FILE_CHECK: the next file. Times are ns since 1970; 0 if not kept."""

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
        """Encode the message, padded to the 64 bytes before the data."""
        return self.encode().ljust(PAYLOAD_AREA_BYTES, b"\0")

    @classmethod
    def decode_packet(cls, data: memoryview) -> tuple[Self, memoryview]:
        """Split a FILE_DATA packet into its payload header and its bytes. Raises ProtocolError."""
        if len(data) < PAYLOAD_AREA_BYTES:
            raise ProtocolError(f"a file chunk of {len(data)} bytes has no header")
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
    """HEARTBEAT: the number sent before."""

    count: int = 0
    reserved: str = ""


def encode_tlv(entries: dict[str, str]) -> bytes:
    """Encode entries: tag and decimal size, each padded to 16 bytes with spaces, then the value."""
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
