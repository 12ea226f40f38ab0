from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from labctl.build.diagnose import ErrorLines, explain
from labctl.errors import CompileError, ConfigError, HostError, LabctlError
from labctl.process import Completed


@pytest.fixture(autouse=True)
def space(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how much space is free; plenty, until told otherwise."""

    def have(free: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))

    have(1 << 40)
    return have


def test_on_a_full_disk_no_failure_is_the_sources_fault(space: Callable[[int], None]) -> None:
    """CMake on a full disk says: ``Unknown extension ".c" for file``."""
    output = 'CMake Error at x.cmake:123 (try_compile):\n  Unknown extension ".c" for file\n'
    assert isinstance(explained(output), CompileError)
    space(44_000)
    error = explained(output)
    assert isinstance(error, HostError)
    assert "the disk is full" in error.message


def explained(output: str, *, untrusted: bool = False) -> LabctlError:
    errors = ErrorLines()
    for line in output.splitlines():
        errors.see(line)
    done = Completed(("ninja",), 1, output.encode(), b"", 0)
    log = Path("/cache/build.log")
    return explain("tiny for rk3568", done, errors, log, untrusted=untrusted)


@pytest.mark.parametrize(
    "printed",
    [
        "error: No space left on device",
        "error: unable to spawn zig clang: OutOfMemory",
        "c++: fatal error: Killed signal terminated program cc1plus",
        "g++: error: Cannot allocate memory",
        "ninja: error: unknown target 'x'",
        'CMake Error: The source directory "/source" does not appear to contain CMakeLists.txt.',
    ],
)
def test_what_a_source_prints_does_not_blame_the_host(
    printed: str, space: Callable[[int], None]
) -> None:
    error = explained(printed, untrusted=True)
    assert type(error) is CompileError
    assert printed in (error.details or "")
    space(44_000)
    assert isinstance(explained(printed, untrusted=True), HostError)


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        ("a.c:1:1: error: no\n", CompileError, "does not compile"),
        ("ld.lld: error: undefined symbol: foo\n", CompileError, "does not compile"),
        ("LLVM ERROR: IO failure: No space left on device\n", HostError, "the disk is full"),
        ("error: unable to spawn zig clang: OutOfMemory\n", HostError, "too little memory"),
        ("ninja: error: unknown target 'x', did you mean 'y'?\n", ConfigError, "no tool 'x'"),
    ],
)
def test_blame(output: str, kind: type[LabctlError], message: str) -> None:
    error = explained(output)
    assert type(error) is kind
    assert message in error.message
    assert "/cache/build.log" in (error.hint or "")


def test_only_the_first_errors_are_shown() -> None:
    noise = "[1/2] Building\nFAILED: x\nwarning: w\n"
    error = explained(noise + "".join(f"a.c:{n}:1: error: e{n}\n" for n in range(1, 40)))
    lines = (error.details or "").splitlines()
    assert lines[0] == "a.c:1:1: error: e1"
    assert len(lines) == 12


def test_cmake_says_what_is_wrong_below_its_first_line() -> None:
    said = 'CMake Error at CMakeLists.txt:2 (nonsense):\n  Unknown CMake command "nonsense".\n'
    assert 'Unknown CMake command "nonsense".' in (explained(said).details or "")


def test_without_an_error_line_the_end_of_the_output_is_shown() -> None:
    assert explained("one\ntwo\n").details == "one\ntwo"
