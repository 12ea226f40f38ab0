"""Headers of an untrusted ELF file (System V ABI, chapters 4 and 5).

Numbers in the file are checked: labctl reads nothing beyond the file's end and decompresses
nothing. The number of headers and the length of names have limits far above those of real programs.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from labctl.errors import CompileError, ConfigError, HostError
from labctl.units import size as size_text

_MAGIC = b"\x7fELF"
_IDENT_BYTES = 16
_MACHINES = {3: "EM_386", 40: "EM_ARM", 62: "EM_X86_64", 183: "EM_AARCH64", 243: "EM_RISCV"}
_TYPES = {1: "ET_REL", 2: "ET_EXEC", 3: "ET_DYN", 4: "ET_CORE"}
#: Values of p_type, sh_type, sh_flags and d_tag.
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NULL, _SYMBOLS, _NO_BITS, _DYNAMIC_SYMBOLS = 0, 2, 8, 11
_EXECUTABLE, _COMPRESSED = 0x4, 0x800
_END, _NEEDED, _STRINGS = 0, 1, 5
_FUNCTION_TYPES = (0, 2, 10)  # STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC
#: The first section header has the number if it is too large for the file header.
_ELSEWHERE = 0xFFFF
#: A static llama.cpp has 16 sections and 9 segments; with symbols, 25 and 9.
_MOST_HEADERS = 4096
_MOST_DYNAMIC_BYTES = 1 << 20
_MOST_NEEDED = 1024
_LONGEST_NAME = 256
_LONGEST_PATH = 4096
#: A static llama.cpp has 49,000 symbols, with 4 MB of names; the longest has 8 kB.
MOST_SYMBOLS = 1 << 20
LONGEST_SYMBOL = 1 << 16
_MOST_NAME_BYTES = 1 << 25
#: No process has a larger address.
_MOST_MEMORY_BYTES = 1 << 48


@dataclass(frozen=True)
class Section:
    """A section; its bytes are in the file unless it exists only in memory."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    entry_bytes: int

    @property
    def in_file(self) -> bool:
        """True if its bytes are in the file."""
        return self.type not in (_NULL, _NO_BITS)

    @property
    def has_symbols(self) -> bool:
        """True if it is a symbol table."""
        return self.type in (_SYMBOLS, _DYNAMIC_SYMBOLS)

    @property
    def tells_source(self) -> bool:
        """True if it is for people and debuggers: symbols that stripping removes, or debug data."""
        return self.type == _SYMBOLS or self.name.startswith((".debug_", ".zdebug_"))


class Symbol(NamedTuple):
    """A name for an address."""

    address: int
    size: int
    name: str


@dataclass(frozen=True)
class _Segment:
    type: int
    offset: int
    address: int
    size: int


@contextmanager
def open_elf(path: Path) -> Iterator["ElfFile"]:
    """Open an ELF file.

    Raises ConfigError if it is not ELF, CompileError if its headers cannot be true, HostError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error
    try:
        yield ElfFile(path, descriptor)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


class ElfFile:
    """The checked headers of an open ELF file."""

    def __init__(self, path: Path, descriptor: int):
        self._path = path
        self._descriptor = descriptor
        self.file_bytes = os.fstat(descriptor).st_size
        ident = os.pread(descriptor, _IDENT_BYTES, 0)
        if ident[:4] != _MAGIC or len(ident) < _IDENT_BYTES:
            raise ConfigError(f"{path} is not an ELF file")
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise self.damaged(f"its class is {ident[4]}, its byte order {ident[5]}")
        self.bits = 32 * ident[4]
        self._order = "<" if ident[5] == 1 else ">"
        wide = self._word * 3
        header = struct.Struct(f"{self._order}HHI{wide}I6H")
        fields = header.unpack(self.read(_IDENT_BYTES, header.size, "its header"))
        kind, machine, _, _, segments_at, sections_at, _, _ = fields[:8]
        segment_bytes, segments, section_bytes, sections, names = fields[8:]
        self.machine = _MACHINES.get(machine, f"machine {machine}")
        self.type = _TYPES.get(kind, f"type {kind}")
        if segments == _ELSEWHERE:
            raise self.damaged(f"it has {_ELSEWHERE} segments or more")
        form = struct.Struct(f"{self._order}II{'QQQQIIQQ' if self.bits == 64 else '8I'}")
        if sections_at:
            (first,) = self._table(form, sections_at, section_bytes, 1, "sections")
            sections = sections or first[5]
            names = first[6] if names == _ELSEWHERE else names
        else:
            sections = 0
        rows = self._table(form, sections_at, section_bytes, sections, "sections")
        self.sections = self._sections(rows, names)
        self._segments = self._read_segments(segments_at, segment_bytes, segments)

    @property
    def _word(self) -> str:
        return "Q" if self.bits == 64 else "I"

    def damaged(self, what: str) -> CompileError:
        """Return the error for a file with impossible values."""
        return CompileError(
            f"{self._path.name} is a damaged ELF file: {what}",
            hint="no linker writes such a file: a step of its own build made it",
        )

    def read(self, offset: int, count: int, what: str) -> bytearray:
        """Return bytes of the file. Raises CompileError for bytes beyond its end."""
        self._check_place(offset, count, what)
        found = bytearray(count)
        if count and os.preadv(self._descriptor, [found], offset) != count:
            raise self.damaged(f"{what} is cut off")
        return found

    def code(self) -> list[Section]:
        """Return the sections with code; they share no bytes or addresses. Raises CompileError."""
        code = [s for s in self.sections if s.flags & _EXECUTABLE and s.size and s.in_file]
        for section in code:
            if section.flags & _COMPRESSED:
                raise self.damaged(f"the code in {section.name} is compressed")
            if section.address + section.size > 1 << self.bits:
                raise self.damaged(f"the code in {section.name} ends behind the last address")
        for one, other in pairwise(sorted(code, key=lambda s: s.address)):
            if one.address + one.size > other.address:
                raise self.damaged(f"{one.name} and {other.name} have addresses in common")
        for one, other in pairwise(sorted(code, key=lambda s: s.offset)):
            if one.offset + one.size > other.offset:
                raise self.damaged(f"{one.name} and {other.name} have bytes in common")
        return code

    def functions(self) -> Iterator[Symbol]:
        """Yield the symbols of code, and symbols that are only a name. Raises CompileError."""
        tables = [section for section in self.sections if section.has_symbols]
        if len(tables) > 2:
            raise self.damaged(f"it has {len(tables)} tables of symbols")
        form = struct.Struct(f"{self._order}{'IBxHQQ' if self.bits == 64 else 'IIIBxH'}")
        left = _MOST_NAME_BYTES
        for table in tables:
            count = table.size // form.size
            if count > MOST_SYMBOLS or (count and table.entry_bytes != form.size):
                raise self.damaged(f"its {count:,} symbols have {table.entry_bytes} bytes each")
            strings = self.sections[table.link] if table.link < len(self.sections) else None
            if strings is None or not strings.in_file:
                raise self.damaged(f"the names in {table.name} are in no section")
            if strings.size > _MOST_NAME_BYTES:
                raise self.damaged(f"its symbols have {size_text(strings.size)} of names")
            names = self.read(strings.offset, strings.size, "the names of symbols")
            raw = self.read(table.offset, count * form.size, "the symbols")
            for at, *rest in form.iter_unpack(raw):
                info, section, address, size = rest if self.bits == 64 else (*rest[2:], *rest[:2])
                if info & 0xF not in _FUNCTION_TYPES or section == 0:
                    continue
                end = names.find(b"\0", at, at + LONGEST_SYMBOL + 1)
                if end < 0:
                    raise self.damaged(f"a symbol's name begins at {at:,} and does not end")
                left -= end - at
                if left < 0:
                    raise self.damaged(f"its symbols have {size_text(_MOST_NAME_BYTES)} of names")
                yield Symbol(address, size, names[at:end].decode(errors="replace"))

    def interpreter(self) -> str | None:
        """Return the dynamic linker that the file requests. Raises CompileError."""
        found = self._last(_INTERPRETER)
        if found is None:
            return None
        return self._text(found.offset, found.size, _LONGEST_PATH, "the dynamic linker's path")

    @property
    def is_dynamic(self) -> bool:
        """True if the file has a dynamic section."""
        return self._last(_DYNAMIC) is not None

    def needed(self) -> tuple[str, ...]:
        """Return the libraries that the file needs at run time. Raises CompileError."""
        dynamic = self._last(_DYNAMIC)
        if dynamic is None:
            return ()
        form = struct.Struct(f"{self._order}{self._word * 2}")
        if dynamic.size > _MOST_DYNAMIC_BYTES:
            raise self.damaged(f"its dynamic section has {dynamic.size} bytes")
        raw = self.read(
            dynamic.offset, dynamic.size // form.size * form.size, "its dynamic section"
        )
        names: list[int] = []
        strings: int | None = None
        for tag, value in form.iter_unpack(raw):
            if tag == _END:
                break
            if tag == _NEEDED:
                names.append(value)
            elif tag == _STRINGS:
                strings = value
        if len(names) > _MOST_NEEDED:
            raise self.damaged(f"it needs {len(names)} libraries")
        return tuple(self._at_address((strings or 0) + name) for name in names)

    def _at_address(self, address: int) -> str:
        """Return the text that is loaded at an address."""
        for segment in self._segments:
            behind = segment.address + segment.size - address
            if segment.type == _LOAD and 0 < behind <= segment.size:
                at = segment.offset + segment.size - behind
                return self._text(at, behind, _LONGEST_PATH, "the name of a library")
        raise self.damaged("the names of its libraries are in no segment")

    def _last(self, kind: int) -> _Segment | None:
        return next((one for one in reversed(self._segments) if one.type == kind), None)

    def _check_place(self, offset: int, count: int, what: str) -> None:
        if offset + count > self.file_bytes:
            raise self.damaged(
                f"{what} would end at byte {offset + count:,} of {self.file_bytes:,}"
            )

    def _table(
        self, form: struct.Struct, offset: int, entry_bytes: int, count: int, what: str
    ) -> list[tuple[int, ...]]:
        if count > _MOST_HEADERS:
            raise self.damaged(f"it has {count:,} {what}; the most is {_MOST_HEADERS:,}")
        if count and entry_bytes != form.size:
            raise self.damaged(f"the headers of its {what} have {entry_bytes} bytes")
        return list(form.iter_unpack(self.read(offset, count * form.size, f"its table of {what}")))

    def _sections(self, rows: list[tuple[int, ...]], names: int) -> list[Section]:
        found: list[Section] = []
        for _, kind, flags, address, offset, size, link, _, _, entry_bytes in rows:
            section = Section("", kind, flags, address, offset, size, link, entry_bytes)
            if section.in_file:
                self._check_place(section.offset, section.size, "a section")
            elif section.type == _NO_BITS and section.size > _MOST_MEMORY_BYTES:
                raise self.damaged(f"a section takes {section.size:,} bytes of memory")
            found.append(section)
        if not names:
            return found
        if names >= len(found) or not found[names].in_file:
            raise self.damaged(f"there is no section {names}, which has the names of sections")
        table = found[names]
        return [
            replace(section, name=self._name(table, row[0], _LONGEST_NAME, "a section"))
            for section, row in zip(found, rows, strict=True)
        ]

    def _name(self, table: Section, at: int, longest: int, what: str) -> str:
        if at >= table.size:
            raise self.damaged(f"the name of {what} lies outside of the table of names")
        return self._text(table.offset + at, table.size - at, longest, f"the name of {what}")

    def _text(self, offset: int, size: int, longest: int, what: str) -> str:
        """Return a text that ends with a zero byte."""
        raw, zero, _ = self.read(offset, min(size, longest + 1), what).partition(b"\0")
        if not zero:
            raise self.damaged(f"{what} has more than {min(size, longest)} bytes")
        return raw.decode(errors="replace")

    def _read_segments(self, offset: int, entry_bytes: int, count: int) -> list[_Segment]:
        form = struct.Struct(f"{self._order}{'IIQQQQQQ' if self.bits == 64 else '8I'}")
        found = []
        for row in self._table(form, offset, entry_bytes, count, "segments"):
            kind, *places = row
            at, address, size = (
                (places[1], places[2], places[4])
                if self.bits == 64
                else (places[0], places[1], places[3])
            )
            if kind:  # a header of type 0 is not used
                self._check_place(at, size, "a segment")
            found.append(_Segment(kind, at, address, size))
        return found
