"""Real ELF files, made by zig without any C library, and what is said of them."""

from pathlib import Path

import pytest

from labctl import process
from labctl.build import zig
from labctl.build.elf import prove, read_elf
from labctl.build.spec import ElfKind, ToolSpec
from labctl.config.target import load_target
from labctl.errors import ConfigError

SOURCE = "void _start(void) { for (;;) {} }\n"
LIBRARY = "int add(int a, int b) { return a + b; }\n"


def compiled(folder: Path, text: str, *flags: str, target: str = "aarch64-linux-musl") -> Path:
    (folder / "a.c").write_text(text)
    program = str(zig.locate().zig)
    words = [program, "cc", "-target", target, "-O2", "-nostdlib", *flags, "a.c", "-o", "a.out"]
    done = process.run(words, timeout=120, cwd=folder, env=zig.environment())
    assert done.exit_status == 0, done.tail()
    return folder / "a.out"


def complaint(path: Path, kind: ElfKind = ElfKind.STATIC_EXECUTABLE) -> str:
    with pytest.raises(ConfigError) as caught:
        prove("tool", read_elf(path), ToolSpec(elf=kind), load_target("rk3568"))
    return caught.value.message


def test_a_static_stripped_program_passes(tmp_path: Path) -> None:
    facts = read_elf(compiled(tmp_path, SOURCE, "-static", "-s"))
    assert (facts.machine, facts.bits, facts.type) == ("EM_AARCH64", 64, "ET_EXEC")
    assert facts.interpreter is None
    assert not facts.dynamic
    prove("tool", facts, ToolSpec(elf=ElfKind.STATIC_EXECUTABLE), load_target("rk3568"))


def test_a_program_for_another_machine(tmp_path: Path) -> None:
    path = compiled(tmp_path, SOURCE, "-static", "-s", target="x86_64-linux-musl")
    assert complaint(path) == (
        "tool is not a static executable for target rk3568: it is for EM_X86_64, not EM_AARCH64"
    )


def test_a_program_of_another_width(tmp_path: Path) -> None:
    path = compiled(tmp_path, SOURCE, "-static", "-s", target="arm-linux-musleabihf")
    said = complaint(path)
    assert "it is for EM_ARM, not EM_AARCH64" in said
    assert "it has 32 bits, not 64" in said


def test_a_program_with_symbols(tmp_path: Path) -> None:
    assert "it is not stripped" in complaint(compiled(tmp_path, SOURCE, "-static", "-g"))


def test_a_position_independent_program_needs_relocation(tmp_path: Path) -> None:
    said = complaint(compiled(tmp_path, SOURCE, "-pie", "-s"))
    assert "its type is ET_DYN, not ET_EXEC" in said


def test_a_library(tmp_path: Path) -> None:
    path = compiled(tmp_path, LIBRARY, "-shared", "-fPIC", "-s")
    prove("lib", read_elf(path), ToolSpec(elf=ElfKind.SHARED_OBJECT), load_target("rk3568"))
    assert "it has a dynamic section" in complaint(path)


def test_a_program_is_no_library(tmp_path: Path) -> None:
    path = compiled(tmp_path, SOURCE, "-static", "-s")
    assert "it is not a shared object" in complaint(path, ElfKind.SHARED_OBJECT)


def test_what_is_not_elf(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match="is not an ELF file"):
        read_elf(tmp_path / "script")
    (tmp_path / "cut").write_bytes(b"\x7fELF\x02\x01")
    with pytest.raises(ConfigError, match="is not an ELF file"):
        read_elf(tmp_path / "cut")
