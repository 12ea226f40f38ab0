from pathlib import Path

import pytest

from labctl.build import zig
from labctl.build.local import _kept_environment
from labctl.build.plan import default_jobs
from labctl.build.script import cmake_quoted, cmake_value


def test_the_programs_are_those_of_this_environment() -> None:
    programs = zig.locate()
    for path in (programs.zig, programs.cmake, programs.ninja):
        assert path.is_file()


def test_nothing_that_changes_a_build_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS", "CC", "CMAKE_GENERATOR", "ZIG_LIB_DIR"):
        monkeypatch.setenv(name, "x")
    environment = {**_kept_environment(), **zig.environment()}
    assert {"CFLAGS", "CC", "CMAKE_GENERATOR", "ZIG_LIB_DIR"}.isdisjoint(environment)
    assert environment["SOURCE_DATE_EPOCH"].isdigit()


@pytest.mark.parametrize(
    ("cores", "available_kib", "jobs"),
    [(8, 32 << 20, 8), (8, 3 << 20, 3), (8, 100_000, 1), (1, 32 << 20, 1)],
)
def test_jobs_fit_cores_and_memory(
    monkeypatch: pytest.MonkeyPatch, cores: int, available_kib: int, jobs: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    said = f"MemTotal: 1 kB\nMemAvailable:   {available_kib} kB\n"
    monkeypatch.setattr(Path, "read_text", lambda _, **__: said)
    assert default_jobs() == jobs


def test_cmake_gets_text_as_it_is() -> None:
    assert cmake_quoted('a "b" $c \\ d') == '"a \\"b\\" \\$c \\\\ d"'
    assert (cmake_value(True), cmake_value(False), cmake_value(7)) == ("ON", "OFF", "7")
