"""Addresses of a program's functions, from its symbol table or from the linker's map.

Both also show where data lies within the code, with the mapping symbols ``$x`` and ``$d`` (ELF for
the Arm 64-bit Architecture, section 5.7).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.build.elf_file import LONGEST_SYMBOL, MOST_SYMBOLS, Symbol, open_elf
from labctl.errors import CompileError, HostError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A mapping symbol: a letter, optionally a number. ``$data`` may be a function's name.
_MAPPING = re.compile(r"\$[xdat](?:\..*)?")
#: A symbol's line in the map of LLVM's linker (lld/ELF/MapFile.cpp): address, load address, size,
#: alignment, then the name behind the columns of sections.
_MAP_SYMBOL = re.compile(
    r" *([0-9a-f]{1,16}) +[0-9a-f]{1,16} +([0-9a-f]{1,16}) +\d{1,20} {17}(\S.*)"
)
_LONGEST_LINE = LONGEST_SYMBOL + 100


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
        # At the same address the largest comes last, and is found.
        self._code = sorted(code, key=lambda symbol: (symbol.address, symbol.size))
        self._starts = [symbol.address for symbol in self._code]
        # At the same address code comes last and wins, so that no instruction is skipped.
        self._kinds = sorted(set(kinds), key=lambda kind: (kind[0], not kind[1]))
        self._kind_starts = [address for address, _ in self._kinds]

    @property
    def known(self) -> bool:
        """True if any function is known."""
        return bool(self._code)

    def name(self, address: int) -> str | None:
        """Return the function at an address.

        An assembly function has no size: it ends where the next one begins.
        """
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        symbol = self._code[at]
        inside = symbol.size == 0 or address < symbol.address + symbol.size
        return symbol.name if inside else None

    @cached_property
    def _cuts(self) -> "NDArray[np.uint64]":
        """Addresses where a function begins or ends, ascending."""
        import numpy as np

        ends = (symbol.address + symbol.size for symbol in self._code if symbol.size)
        return np.array(sorted({*self._starts, *(e for e in ends if e >> 64 == 0)}), np.uint64)

    def group(self, addresses: "NDArray[np.uint64]") -> Iterator[tuple[str | None, int, int]]:
        """Yield each function that contains addresses: name, first address, number of addresses.

        ``addresses`` are ascending.
        """
        import numpy as np

        between = np.searchsorted(self._cuts, addresses, side="right")
        _, first, counts = np.unique(between, return_index=True, return_counts=True)
        for at, count in zip(addresses[first].tolist(), counts.tolist(), strict=True):
            yield self.name(at), at, count

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of data within the code from ``start`` to ``end``."""
        at = bisect_right(self._kind_starts, start - 1)
        for index in range(at, len(self._kinds)):
            address, is_data = self._kinds[index]
            if address >= end:
                return
            if is_data:
                last = index + 1 >= len(self._kinds)
                yield address, end if last else min(end, self._kinds[index + 1][0])


def read_functions(path: Path | None) -> Functions:
    """Read the functions from a linker's map or an unstripped program.

    Raises CompileError if it has too many or is damaged; HostError.
    """
    if path is None:
        return Functions(())
    try:
        with path.open("rb") as file:
            is_elf = file.read(4) == b"\x7fELF"
        if not is_elf:
            return Functions(_of_map(path))
        with open_elf(path) as elf:
            return Functions(elf.functions())
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def _of_map(path: Path) -> Iterator[Symbol]:
    count = 0
    with path.open(errors="replace") as file:
        for line in iter(partial(file.readline, _LONGEST_LINE), ""):
            found = _MAP_SYMBOL.fullmatch(line.rstrip("\n"))
            if not found:
                continue
            count += 1
            if count > MOST_SYMBOLS:
                raise CompileError(f"{path.name} lists more than {MOST_SYMBOLS:,} functions")
            yield Symbol(int(found[1], 16), int(found[2], 16), found[3])
