"""What an untrusted build made is read on this host: its claims cost neither memory nor time."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from bounded import bounded
from hypothesis import given, settings
from hypothesis import strategies as st
from made_elf import CODE, RET, SYMBOL, Part, elf, lying, symbols

from labctl.build.elf import prove, read_elf, read_sections
from labctl.build.functions import read_functions
from labctl.build.isa import prove_isa
from labctl.build.job import Made
from labctl.build.manifest import CompilerKind
from labctl.build.proof import examine
from labctl.build.spec import ElfKind, ToolSpec
from labctl.config.target import load_target
from labctl.errors import Blame, CompileError, ConfigError, LabctlError

SVE_ADD = struct.pack("<I", 0x04200000)


def examined(path: Path) -> None:
    """Do all that a build does with a file on this host, in its order."""
    target = load_target("rk3568")
    facts = read_elf(path)
    prove("tool", facts, ToolSpec(elf=ElfKind.STATIC_EXECUTABLE, stripped=False), target)
    functions = read_functions(None if facts.stripped else path)
    prove_isa(path, functions, allowed=(), target=target, compiler=CompilerKind.ZIG)
    read_sections(path)


def refused(path: Path, content: bytes, *, megabytes: int = 64, cpu_seconds: float = 5) -> str:
    path.write_bytes(content)
    del content
    limit = bounded(megabytes=megabytes, cpu_seconds=cpu_seconds)
    with limit, pytest.raises(LabctlError) as caught:
        examined(path)
    assert caught.value.blame is Blame.JOB
    assert len(caught.value.message) < 1000
    return caught.value.message


def with_symbols(*found: tuple[int, int, str], names: bytes | None = None) -> list[Part]:
    table, text = symbols(*found, names=names)
    return [CODE, Part(table.name, table.content, type=2, entry=table.entry, link=3), text]


def test_a_true_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "true").write_bytes(elf(with_symbols((0x10000, 64, "main"))))
    examined(tmp_path / "true")
    assert read_sections(tmp_path / "true")[".text"] == 64


@pytest.mark.parametrize("claimed", [1 << 30, 30 << 30])
def test_memory_that_a_section_claims_is_only_a_number(tmp_path: Path, claimed: int) -> None:
    bss = lying(Part(".bss", type=8, flags=3), size=claimed)
    code = lying(Part(".bss.text", type=8, flags=6, address=1 << 32), size=claimed)
    path = tmp_path / "large"
    path.write_bytes(elf([CODE, bss, code]))
    with bounded(megabytes=32, cpu_seconds=2):
        examined(path)
        assert read_sections(path)[".bss"] == claimed


COMPRESSED = struct.pack("<IIQQ", 1, 0, 30 << 30, 1) + b"\x78\x9c"
LIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "2^40 bytes": (lambda: elf([lying(CODE, size=1 << 40)]), "would end at byte"),
    "2^63 bytes": (lambda: elf([lying(CODE, size=1 << 63)]), "would end at byte"),
    "2^64-1 bytes": (lambda: elf([lying(CODE, size=(1 << 64) - 1)]), "would end at byte"),
    "offset": (lambda: elf([lying(CODE, offset=1 << 50)]), "would end at byte"),
    "no memory has it": (
        lambda: elf([CODE, lying(Part(".bss", type=8), size=1 << 63)]),
        "bytes of memory",
    ),
    "compressed": (
        lambda: elf([Part(".text", COMPRESSED, flags=0x806, address=0x10000)]),
        "compressed",
    ),
    "one long name": (
        lambda: elf([CODE] * 300, names=b"n" * 5_000_000 + b"\0"),
        "the name of a section",
    ),
    "a name without an end": (lambda: elf(names=b"nnn"), "the name of a section"),
    "a name elsewhere": (lambda: elf([lying(CODE, name=1 << 31)]), "outside of the table"),
    "shared bytes": (
        lambda: elf(
            [
                CODE,
                *(
                    lying(Part(f"c{i}", RET * 16, flags=6), address=i << 20, offset=64)
                    for i in range(1, 50)
                ),
            ]
        ),
        "bytes in common",
    ),
    "shared addresses": (lambda: elf([CODE, CODE]), "addresses in common"),
    "the last address": (lambda: elf([lying(CODE, address=(1 << 64) - 4)]), "last address"),
    "65,535 sections": (lambda: elf(e_shnum=65535), "65,535 sections"),
    "sections elsewhere": (lambda: elf(e_shoff=1 << 60), "would end at byte"),
    "tiny section headers": (lambda: elf(e_shentsize=1), "headers of its sections"),
    "names in no section": (lambda: elf(e_shstrndx=77), "no section 77"),
    "extended segments": (lambda: elf(e_phnum=65535), "65535 segments"),
    "segments elsewhere": (lambda: elf(e_phoff=1 << 62), "would end at byte"),
    "a class of its own": (lambda: b"\x7fELF\x07\x01" + elf()[6:], "its class is 7"),
    "2^60 symbols": (
        lambda: elf(
            [
                CODE,
                lying(
                    Part(".symtab", type=2, entry=24, link=3),
                    size=24 << 60 & (1 << 64) - 1 | 1 << 62,
                ),
            ]
        ),
        "would end at byte",
    ),
    "symbols without names": (
        lambda: elf([CODE, Part(".symtab", SYMBOL.pack(1, 2, 0, 1, 0, 0), type=2, entry=24)]),
        "",
    ),
    "tiny symbols": (
        lambda: elf([CODE, Part(".symtab", bytes(24), type=2, entry=0, link=2)]),
        "symbols have 0 bytes",
    ),
    "tables of symbols": (
        lambda: elf([CODE, *[Part(".symtab", bytes(24), type=2, entry=24, link=1)] * 9]),
        "tables of symbols",
    ),
    "a symbol's name": (
        lambda: elf(with_symbols((0x10000, 64, "main"), names=b"x" * 100_000)),
        "does not end",
    ),
    "a dynamic section": (
        lambda: elf([CODE, lying(Part(".dynamic", bytes(64), type=6, p_type=2), size=1 << 45)]),
        "would end at byte",
    ),
    "libraries without names": (
        lambda: elf([CODE, Part(".dynamic", struct.pack("<QQ", 1, 1) * 3, type=6, p_type=2)]),
        "in no segment",
    ),
    "many libraries": (
        lambda: elf([CODE, Part(".dynamic", struct.pack("<QQ", 1, 1) * 5000, type=6, p_type=2)]),
        "5000 libraries",
    ),
    "an endless dynamic section": (
        lambda: elf([CODE, Part(".dynamic", bytes(2 << 20), type=6, p_type=2)]),
        "its dynamic section",
    ),
    "a linker without an end": (
        lambda: elf([CODE, Part(".interp", b"/" * 9000, p_type=3)]),
        "the dynamic linker's path",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_claims_that_cannot_be_true(tmp_path: Path, lie: str) -> None:
    make, words = LIES[lie]
    assert words in refused(tmp_path / "tool", make())


def test_extended_numbering(tmp_path: Path) -> None:
    """The number of sections is in the first header; it is believed as far as the file goes."""
    content = bytearray(elf(e_shnum=0, e_shstrndx=0xFFFF))
    first = struct.unpack_from("<Q", content, 0x28)[0]
    struct.pack_into("<QI", content, first + 32, 3, 2)
    path = tmp_path / "extended"
    path.write_bytes(content)
    assert read_sections(path) == {".text": 64, ".shstrtab": 17}
    struct.pack_into("<Q", content, first + 32, 1 << 60)
    assert "sections" in refused(path, bytes(content))


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(elf([CODE, Part("a", b"abcd")]).replace(b"\0a\0", b"\0\xff\0"))
    assert "\ufffd" in read_sections(path)


def missing(path: Path, content: bytes, *, megabytes: int, cpu_seconds: float) -> str:
    """Examine a sound file whose code the target cannot run; return what is said."""
    path.write_bytes(content)
    del content
    limit = bounded(megabytes=megabytes, cpu_seconds=cpu_seconds)
    with limit, pytest.raises(ConfigError) as caught:
        examined(path)
    return caught.value.message


def test_hundred_megabytes_of_missing_instructions(tmp_path: Path) -> None:
    code = Part(".text", SVE_ADD * (100 << 18), flags=6, address=0x10000)
    words = missing(tmp_path / "large", elf([code]), megabytes=200, cpu_seconds=30)
    assert "sve in no function is known there (26214400 at 0x10000 and on)" in words


@pytest.mark.parametrize("count", [1 << 16, pytest.param((1 << 20) - 1, marks=pytest.mark.soak)])
def test_each_missing_instruction_is_a_function(tmp_path: Path, count: int) -> None:
    code = Part(".text", SVE_ADD * count, flags=6, address=0x10000)
    rows = b"".join(SYMBOL.pack(1, 2, 0, 1, 0x10000 + 4 * i, 4) for i in range(count))
    tables = [Part(".symtab", rows, type=2, entry=24, link=3), Part(".strtab", b"\0one\0", type=3)]
    words = missing(tmp_path / "many", elf([code, *tables]), megabytes=500, cpu_seconds=60)
    assert f"sve in one ({count} at 0x10000 and on)" in words


def test_more_functions_with_other_instructions_than_a_program_has(tmp_path: Path) -> None:
    count = (1 << 18) + 1
    code = Part(".text", SVE_ADD * count, flags=6, address=0x10000)
    named = [(0x10000 + 4 * i, 4, f"{i}") for i in range(count)]
    table, text = symbols(*named)
    tables = [Part(table.name, table.content, type=2, entry=table.entry, link=3), text]
    words = refused(tmp_path / "many", elf([code, *tables]), megabytes=400, cpu_seconds=30)
    assert "more than 262,144 functions" in words


def test_more_symbols_than_a_program_has(tmp_path: Path) -> None:
    rows = SYMBOL.pack(1, 2, 0, 1, 0x10000, 4) * (4 << 20)
    tables = [Part(".symtab", rows, type=2, entry=24, link=3), Part(".strtab", b"\0one\0", type=3)]
    assert "4,194,304 symbols" in refused(tmp_path / "many", elf([CODE, *tables]))


def test_names_of_symbols_that_overlap(tmp_path: Path) -> None:
    rows = b"".join(SYMBOL.pack(i, 2, 0, 1, 0x10000, 4) for i in range(60_000))
    text = Part(".strtab", b"n" * 60_000 + b"\0", type=3)
    content = elf([CODE, Part(".symtab", rows, type=2, entry=24, link=3), text])
    assert "of names" in refused(tmp_path / "many", content, megabytes=150)


def test_a_hole_in_place_of_the_names_of_symbols(tmp_path: Path) -> None:
    claimed = lying(Part(".strtab", type=3), offset=1 << 20, size=1 << 30)
    rows = SYMBOL.pack(1, 2, 0, 1, 0x10000, 4)
    table = Part(".symtab", rows, type=2, entry=24, link=3)
    path = tmp_path / "tool.map"
    path.write_bytes(elf([CODE, table, claimed]))
    os.truncate(path, (1 << 30) + (1 << 20))
    limit = bounded(megabytes=64, cpu_seconds=5)
    with limit, pytest.raises(CompileError, match=r"its symbols have 1\.07 GB of names"):
        read_functions(path)


def test_a_map_is_no_less_strange(tmp_path: Path) -> None:
    row = "1 1 1 1" + " " * 17
    (tmp_path / "map").write_text(f"{'9' * 50_000_000}\n{row}{'n' * 50_000_000}\n")
    with bounded(megabytes=64, cpu_seconds=5):
        assert len(read_functions(tmp_path / "map").name(1) or "") < 70_000


@pytest.mark.soak
def test_a_map_with_more_functions_than_a_program_has(tmp_path: Path) -> None:
    row = "1 1 1 1" + " " * 17
    (tmp_path / "map").write_text(f"{row}n\n" * (1 << 20) + f"{row}n\n")
    limit = bounded(megabytes=400, cpu_seconds=20)
    with limit, pytest.raises(CompileError, match="1,048,576 functions"):
        read_functions(tmp_path / "map")


def test_what_an_untrusted_source_made_wrongly_is_its_own_fault(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    made = Made(tmp_path / "script", None)
    spec = SimpleNamespace(tools={"tool": ToolSpec()})
    for untrusted, kind in ((True, CompileError), (False, ConfigError)):
        plan: Any = SimpleNamespace(spec=spec, untrusted=untrusted)
        with pytest.raises(kind, match="is not an ELF file"):
            examine(plan, "tool", made)


SEEDS = [
    elf(),
    elf(with_symbols((0x10000, 32, "main"), (0x10020, 32, "$d"))),
    elf([CODE, Part(".dynamic", struct.pack("<QQ", 5, 0x10000) * 2, type=6, p_type=2)]),
]
ODD = (0, 1, 2, 3, 7, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1)


def changed(seed: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Put numbers of 1 to 8 bytes over the file: mostly where headers are."""
    content = bytearray(seed)
    for place, width, value in changes:
        at = place % (len(content) - 8)
        content[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(content)


CHANGES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 1 << 12), st.integers(0, 80)),
        st.sampled_from([1, 2, 4, 8]),
        st.one_of(st.sampled_from(ODD), st.integers(0, (1 << 64) - 1)),
    ),
    min_size=1,
    max_size=6,
)


def _only_typed(folder: Path, content: bytes) -> None:
    path = folder / "tool"
    path.write_bytes(content)
    with bounded(megabytes=64, cpu_seconds=5):
        try:
            examined(path)
        except LabctlError as error:
            assert error.blame in (Blame.JOB, Blame.CONFIG)  # noqa: PT017 - both are right


@settings(max_examples=150)
@given(seed=st.sampled_from(SEEDS), changes=CHANGES, cut=st.integers(0, 64))
def test_any_change_ends_in_an_answer_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory,
    seed: bytes,
    changes: list[tuple[int, int, int]],
    cut: int,
) -> None:
    content = changed(seed, changes)
    _only_typed(tmp_path_factory.getbasetemp(), content[: len(content) - cut])


@pytest.mark.soak
def test_a_hundred_thousand_changes(tmp_path: Path) -> None:
    random = Random(20261128)
    for _ in range(100_000):
        changes = [
            (
                random.randrange(1 << 12),
                random.choice([1, 2, 4, 8]),
                random.choice([*ODD, random.getrandbits(64)]),
            )
            for _ in range(random.randint(1, 8))
        ]
        _only_typed(tmp_path, changed(random.choice(SEEDS), changes))
