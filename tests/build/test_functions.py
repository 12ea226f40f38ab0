from pathlib import Path

from labctl.build.functions import Functions, Symbol, read_functions

#: As LLVM's linker prints it for -Map.
MAP = """\
             VMA              LMA     Size Align Out     In      Symbol
         1000200          1000200      bb2    16 .rodata
         1010000          1010000      100     4 .text
         1010000          1010000       40     4         main.o:(.text.main)
         1010000          1010000        0     1                 $x.0
         1010000          1010000       20     1                 main
         1010020          1010020       20     1                 operator new(unsigned long)
         1010040          1010040       20     4         start.o:(.text)
         1010040          1010040        0     1                 $x
         1010040          1010040        0     1                 _start
         1010050          1010050        0     1                 $d
         1010058          1010058        0     1                 $x
         10100f0          10100f0        0     1                 $d.1
"""


def test_a_linkers_map_tells_functions_and_data(tmp_path: Path) -> None:
    (tmp_path / "a.map").write_text(MAP)
    found = read_functions(tmp_path / "a.map")
    assert found.name(0x1010000) == "main"
    assert found.name(0x101001C) == "main"
    assert found.name(0x1010020) == "operator new(unsigned long)"
    assert found.name(0x1010044) == "_start"
    assert found.name(0x100FFFF) is None
    ranges = list(found.data_ranges(0x1010000, 0x1010100))
    assert ranges == [(0x1010050, 0x1010058), (0x10100F0, 0x1010100)]


def test_nothing_is_known_of_a_stripped_program() -> None:
    found = read_functions(None)
    assert not found.known
    assert found.name(0x1000) is None
    assert list(found.data_ranges(0, 1 << 32)) == []


def test_between_two_functions_is_none() -> None:
    found = Functions([Symbol(0x100, 0x10, "a"), Symbol(0x200, 0x10, "b")])
    assert [found.name(at) for at in (0x10C, 0x110, 0x1FC, 0x200)] == ["a", None, None, "b"]


def test_where_data_ends_at_once_code_begins() -> None:
    """Two objects meet at one address: the first ends with an empty piece of data."""
    found = Functions([Symbol(0x100, 0, "$x"), Symbol(0x100, 0, "$d"), Symbol(0x180, 0, "$d")])
    assert list(found.data_ranges(0x100, 0x200)) == [(0x100, 0x100), (0x180, 0x200)]


def test_only_whole_names_and_numbered_ones_tell_data() -> None:
    found = Functions([Symbol(0x100, 0x40, "$data"), Symbol(0x140, 0, "$d.7")])
    assert found.name(0x100) == "$data"
    assert list(found.data_ranges(0x100, 0x200)) == [(0x140, 0x200)]
