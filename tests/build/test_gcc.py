from collections.abc import Sequence

import pytest

from labctl.build.gcc import find_gcc, gcc_flags
from labctl.build.manifest import BuilderKind, CompilerKind, Machine
from labctl.build.toolchain import Needs
from labctl.config.target import load_target
from labctl.errors import ToolMissing

TARGET = load_target("rk3568")
CROSS = "aarch64-linux-gnu-"
MACROS = "#define __GLIBC__ 2\n#define __x86_64__ 1\n#define __GLIBC_MINOR__ 36\n"


def machine(kind: str, host: str | None = None) -> Machine:
    builder = BuilderKind.SSH if host else BuilderKind.LOCAL
    return Machine(builder=builder, machine=kind, host=host)


class Asked:
    """A machine that has some programs."""

    def __init__(self, prefix: str, *others: str):
        self.programs = {f"{prefix}{name}" for name in ("gcc", "g++", "ar", "ranlib", "strip")}
        self.programs |= set(others)

    def __call__(self, words: Sequence[str]) -> str | None:
        if words[0] not in self.programs:
            return None
        if "-dM" in words:
            return MACROS
        if words[1] == "-dumpmachine":
            return "aarch64-linux-gnu\n"
        said = {"cmake": "cmake version 3.25.1\n", "ninja": "1.11.1\n"}
        return said.get(words[0], f"{words[0]} (Debian 12.2.0-14) 12.2.0\nCopyright\n")


def test_a_cross_gcc_is_taken_with_its_versions() -> None:
    ask = Asked(CROSS, "cmake", "ninja", "ccache")
    found = find_gcc(ask, TARGET, Needs(cmake=True), on=machine("x86_64"))
    assert (found.c, found.strip) == ((f"{CROSS}gcc",), (f"{CROSS}strip",))
    identity = found.identity
    assert identity.compiler is CompilerKind.GCC
    assert identity.version == "(Debian 12.2.0-14) 12.2.0"
    assert (identity.libc, identity.cmake, identity.ninja) == ("glibc 2.36", "3.25.1", "1.11.1")
    assert found.ccache == "ccache"
    assert gcc_flags(TARGET)[0] == "-march=armv8.2-a+dotprod+fp16"


def test_a_machine_of_the_targets_kind_needs_no_cross_gcc() -> None:
    ask = Asked("", "cmake", "ninja")
    found = find_gcc(ask, TARGET, Needs(cmake=True), on=machine("aarch64", "pi"))
    assert (found.c, found.ccache) == (("gcc",), None)


def test_all_that_is_missing_is_told_at_once() -> None:
    ask = Asked("", "ninja")
    with pytest.raises(ToolMissing) as caught:
        find_gcc(ask, TARGET, Needs(cmake=True), on=machine("x86_64", "big"))
    missing = caught.value.message.removeprefix("not installed on big: ").split(", ")
    programs = ("gcc", "g++", "ar", "ranlib", "strip")
    assert sorted(missing) == sorted([*(f"{CROSS}{name}" for name in programs), "cmake"])
    assert "apt-get install g++-aarch64-linux-gnu" in (caught.value.hint or "")


def test_one_call_of_a_compiler_needs_no_cmake() -> None:
    found = find_gcc(Asked(CROSS), TARGET, Needs(cmake=False), on=machine("x86_64"))
    assert found.identity.cmake is None


def test_what_only_zig_can_do() -> None:
    with pytest.raises(ToolMissing, match="only zig can build this product"):
        find_gcc(Asked(CROSS), TARGET, Needs(cmake=False, zig=True), on=machine("x86_64"))
    kit = find_gcc(Asked("nothing"), TARGET, Needs(cmake=False, compiler=False), on=machine("x"))
    assert kit.identity.compiler is CompilerKind.SDK
