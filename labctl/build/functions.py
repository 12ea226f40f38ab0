"""Addresses of a program's functions, from its symbol table or from the linker's map.

Both also show the ranges of data among the code: the mapping symbols ``$x`` and ``$d`` (ELF for the
Arm 64-bit Architecture, section 5.7).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from labctl.errors import HostError

#: A mapping symbol: a letter, and a number or nothing. ``$data`` may be a function's name.
_MAPPING = re.compile(r"\$[xdat](?:\..*)?")
#: A symbol's line in the map of LLVM's linker (lld/ELF/MapFile.cpp): address, load address, size,
#: alignment, then the name behind the columns of sections.
_MAP_SYMBOL = re.compile(r" *([0-9a-f]+) +[0-9a-f]+ +([0-9a-f]+) +\d+ {17}(\S.*)")


@dataclass(frozen=True)
class Symbol:
    """A name for an address."""

    address: int
    size: int
    name: str


class Functions:
    """Functions of a program, by address."""

    def __init__(self, symbols: Iterable[Symbol]):
        code: list[Symbol] = []
        kinds: list[tuple[int, bool]] = []
        for symbol in symbols:
            if _MAPPING.fullmatch(symbol.name):
                kinds.append((symbol.address, symbol.name[1] == "d"))
            elif symbol.name:
                code.append(symbol)
        # At one address the widest comes last, and is found.
        self._code = sorted(code, key=lambda symbol: (symbol.address, symbol.size))
        self._starts = [symbol.address for symbol in self._code]
        # Of two at one address code is the last, and holds: no instruction may be passed over.
        self._kinds = sorted(kinds, key=lambda kind: (kind[0], not kind[1]))
        self._kind_starts = [address for address, _ in self._kinds]

    @property
    def known(self) -> bool:
        """True if any function is known."""
        return bool(self._code)

    def name(self, address: int) -> str | None:
        """Return the function at an address; one of assembly has no size, and ends where the next
        begins.
        """
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        symbol = self._code[at]
        inside = symbol.size == 0 or address < symbol.address + symbol.size
        return symbol.name if inside else None

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of data among the code from ``start`` to ``end``."""
        at = bisect_right(self._kind_starts, start - 1)
        for index in range(at, len(self._kinds)):
            address, is_data = self._kinds[index]
            if address >= end:
                return
            if is_data:
                last = index + 1 >= len(self._kinds)
                yield address, end if last else min(end, self._kinds[index + 1][0])


def read_functions(path: Path | None) -> Functions:
    """Read the functions from a linker's map or an unstripped program. Raises HostError."""
    if path is None:
        return Functions(())
    try:
        with path.open("rb") as file:
            is_elf = file.read(4) == b"\x7fELF"
        return Functions(_of_elf(path) if is_elf else _of_map(path))
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def _of_elf(path: Path) -> list[Symbol]:
    with path.open("rb") as file:
        try:
            return [
                Symbol(int(symbol["st_value"]), int(symbol["st_size"]), str(symbol.name))
                for section in ELFFile(file).iter_sections()
                if isinstance(section, SymbolTableSection)
                for symbol in section.iter_symbols()
                if symbol["st_info"]["type"] in ("STT_FUNC", "STT_NOTYPE", "STT_LOOS")
                and symbol["st_shndx"] != "SHN_UNDEF"
            ]
        except ELFError as error:
            raise HostError(f"cannot read the symbols of {path}: {error}") from error


def _of_map(path: Path) -> Iterator[Symbol]:
    with path.open(errors="replace") as file:
        for line in file:
            found = _MAP_SYMBOL.fullmatch(line.rstrip("\n"))
            if found:
                yield Symbol(int(found[1], 16), int(found[2], 16), found[3])
