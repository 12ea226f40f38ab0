"""The part of the protobuf wire format that hdc uses, for small flat messages.

hdc knows two wire types, varint and length-delimited, and messages whose fields are numbered from
1 without gaps; none is nested or repeated. The reference writes every field, also zero and empty
ones, and its readers accept missing ones. That is less than a page of code; the protobuf runtime
would drop the zero fields (so that frames differ from the recorded ones), and would bring a code
generator and a compiled dependency with it.

Format: https://protobuf.dev/programming-guides/encoding/
"""

import dataclasses
from collections.abc import Iterator
from typing import Self

from labctl.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

_VARINT = 0
_LENGTH_DELIMITED = 2
_VARINT_LIMIT_BITS = 64
#: More fields than any message has, unknown ones included: a peer must not keep us reading.
_MAX_FIELDS = 64


def encode_varint(value: int) -> bytes:
    """``value`` (0 to 2**64 - 1) in groups of seven bits, lowest first."""
    if not 0 <= value < 1 << _VARINT_LIMIT_BITS:
        raise ValueError(f"not an unsigned 64-bit number: {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: Buffer, start: int) -> tuple[int, int]:
    """Return the number at ``start`` and the position behind it. Raises ProtocolError."""
    value = 0
    for count, byte in enumerate(data[start : start + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value >> _VARINT_LIMIT_BITS:
                break
            return value, start + count + 1
    raise ProtocolError("a number in a message is cut short or too large")


def _fields(data: Buffer, *, padded: bool) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and raw values. ``padded``: a zero tag is the end, what follows is padding."""
    position = count = 0
    while position < len(data):
        count += 1
        if count > _MAX_FIELDS:
            raise ProtocolError("a message has fields without end")
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

    A field is ``int`` (unsigned), ``bytes``, or ``str`` (UTF-8; other bytes survive as surrogates,
    since paths on a board are bytes).
    """

    def encode(self) -> bytes:
        """Encode all fields, zero and empty ones too, as the reference implementation does."""
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
        """Read a message; unknown fields are skipped, missing ones keep their default.

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
