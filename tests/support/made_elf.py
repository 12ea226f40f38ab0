"""ELF files written byte by byte: true ones, and ones whose headers lie."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")

RET = struct.pack("<I", 0xD65F03C0)


@dataclass(frozen=True)
class Part:
    """A section, or with ``p_type`` a segment over it. ``lies`` replaces fields of its header."""

    name: str
    content: bytes = b""
    type: int = 1
    flags: int = 0
    address: int = 0
    link: int = 0
    entry: int = 0
    p_type: int | None = None
    lies: Mapping[str, int] = field(default_factory=dict)


CODE = Part(".text", RET * 16, flags=6, address=0x10000, p_type=1)


def elf(
    parts: Sequence[Part] = (CODE,), *, names: bytes | None = None, padding: int = 0, **lies: Any
) -> bytes:
    """Return a 64-bit ARM program; ``lies`` replaces fields of the file's header."""
    table = b"\0" if names is None else names
    at_names = []
    for part in (*parts, Part(".shstrtab")):
        at_names.append(len(table) if names is None else 0)
        table += (part.name.encode() + b"\0") if names is None else b""
    whole = [*parts, Part(".shstrtab", table, type=3)]
    body = bytearray(_HEADER.size)
    sections = [_SECTION.pack(*[0] * 10)]
    segments = []
    for part, at_name in zip(whole, at_names, strict=True):
        said = {"name": at_name, "type": part.type, "flags": part.flags, "address": part.address}
        said |= {"offset": len(body), "size": len(part.content), "link": part.link, "info": 0}
        said |= {"align": 4, "entry": part.entry} | dict(part.lies)
        sections.append(_SECTION.pack(*(said[name] for name in said)))
        if part.p_type is not None:
            offset, size = said["offset"], said["size"]
            place = (offset, part.address, part.address, size, size, 4)
            segments.append(_SEGMENT.pack(part.p_type, 5, *place))
        body += part.content + b"\0" * (-len(part.content) % 4)
    body += b"\0" * padding
    header = {"e_phoff": len(body), "e_shoff": len(body) + _SEGMENT.size * len(segments)}
    header |= {"e_phentsize": _SEGMENT.size, "e_phnum": len(segments), "e_type": 2}
    header |= {"e_shentsize": _SECTION.size, "e_shnum": len(sections)}
    header |= {"e_shstrndx": len(sections) - 1, "e_machine": 183, **lies}
    for made in (*segments, *sections):
        body += made
    body[: _HEADER.size] = _HEADER.pack(
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(header[name] for name in ("e_type", "e_machine")),
        *(1, 0x10000, header["e_phoff"], header["e_shoff"], 0, _HEADER.size),
        *(header[name] for name in ("e_phentsize", "e_phnum", "e_shentsize", "e_shnum")),
        header["e_shstrndx"],
    )
    return bytes(body)


def symbols(*found: tuple[int, int, str], names: bytes | None = None) -> tuple[Part, Part]:
    """Return the tables of symbols, each with address, size and name; their link has to be set."""
    text, rows = bytearray(1), bytearray(SYMBOL.size)
    for address, size, name in found:
        rows += SYMBOL.pack(len(text), 2, 0, 1, address, size)
        text += name.encode() + b"\0"
    return (
        Part(".symtab", bytes(rows), type=2, entry=SYMBOL.size),
        Part(".strtab", names or bytes(text), type=3),
    )


def lying(part: Part, **fields: int) -> Part:
    """Return the part with a header that lies."""
    return replace(part, lies={**part.lies, **fields})
