from pathlib import Path

import pytest

from labctl.build.plan import BuildRequest
from labctl.folders import cache_dir

TINY_SPEC = """\
product: tiny
description: Two small programs
builder: cmake
default_version: first
versions:
  first:
    source: {folder: ../../tiny}
definitions:
  CMAKE_BUILD_TYPE: Release
  TINY_REVISION: "{revision}"
tools:
  one: {smoke: [--version]}
  two: {smoke: [--version]}
"""

TINY_CMAKE = """\
cmake_minimum_required(VERSION 3.14)
set(CMAKE_C_COMPILER_ID_RUN TRUE)
set(CMAKE_C_COMPILER_ID Clang)
set(CMAKE_C_COMPILER_FORCED TRUE)
project(tiny C)
add_library(shared STATIC shared.c)
foreach(tool one two)
  add_executable(${tool} ${tool}.c)
  target_compile_definitions(${tool} PRIVATE REVISION="${TINY_REVISION}")
  target_link_libraries(${tool} PRIVATE shared)
endforeach()
"""

TINY_PROGRAM = """\
#include <stdio.h>
int add(int a, int b);
int main(void) { return printf("%s NAME %d " REVISION "\\n", __FILE__, add(1, 2)) < 0; }
"""


class TinyLab:
    """A lab with a product of its own that compiles in about a second."""

    def __init__(self, root: Path):
        self.root = root
        self.source = root / "tiny"
        self.source.mkdir(parents=True)
        self.spec = root / "toolchains" / "rk3568" / "tiny.yaml"
        self.spec.parent.mkdir(parents=True)
        self.spec.write_text(TINY_SPEC)
        (self.source / "CMakeLists.txt").write_text(TINY_CMAKE)
        (self.source / "shared.c").write_text("int add(int a, int b) { return a + b; }\n")
        for name in ("one", "two"):
            (self.source / f"{name}.c").write_text(TINY_PROGRAM.replace("NAME", name))

    def change_spec(self, old: str, new: str) -> None:
        text = self.spec.read_text()
        assert old in text
        self.spec.write_text(text.replace(old, new))

    def request(self, *tools: str, **options: object) -> BuildRequest:
        return BuildRequest(
            target="rk3568",
            product="tiny",
            tools=tools or None,
            lab_root=self.root,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture
def tiny_lab(tmp_path: Path) -> TinyLab:
    return TinyLab(tmp_path / "lab")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, but for zig's C library, which takes a minute to make."""
    zig = cache_dir() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    own = tmp_path / "cache"
    own.mkdir()
    (own / "zig").symlink_to(zig)
    monkeypatch.setenv("LABCTL_CACHE", str(own))
    return own
