"""zig as a C and C++ compiler for every target, with cmake and ninja of PyPI.

The programs come from the packages of the running interpreter, never from PATH, so the versions in
the manifest are right.
"""

import importlib
import importlib.metadata
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from labctl.build.manifest import CompilerKind, Machine, ToolchainIdentity
from labctl.build.toolchain import BUILD_ENVIRONMENT, Needs, Toolchain
from labctl.config.target import Target
from labctl.distribution import install_extra
from labctl.errors import ToolMissing
from labctl.folders import cache_dir

HINT = f"run `{install_extra('build')}` in this Python environment"

#: For all languages. ``-s``: no debug information, also in zig's own libraries, which zig would
#: otherwise build a second time. With its default sanitizer, zig traps undefined behaviour in
#: programs compiled without ``-O`` (e.g. CMake's tests), and builds a library for that.
COMMON_FLAGS = ("-s", "-fno-sanitize=undefined")

#: Programs whose build makes zig build its C and C++ runtime for a target.
RUNTIME = {
    "runtime.c": "int main(void) { return 0; }\n",
    "runtime.cpp": """#include <string>
int main(int, char **argv) { std::string s(argv[0]); if (s.empty()) throw s; return 0; }
""",
}
#: Ninja's file with the rules to build them.
RUNTIME_NINJA = "runtime.ninja"
#: Makes the linker print its map on stdout: the names of symbols that it then strips.
PRINT_MAP = "-Wl,--print-map"


@dataclass(frozen=True)
class Programs:
    """Paths of the build programs."""

    zig: Path
    cmake: Path
    ninja: Path


def offer_zig(needs: Needs, on: Machine, target: Target) -> Toolchain:
    """Return the toolchain of this Python environment. Raises ToolMissing."""
    programs = locate()
    version = _version("ziglang")
    libc = f"musl of zig {version}" if "musl" in target.zig.target and not needs.zig else None
    zig = str(programs.zig)
    return Toolchain(
        identity=ToolchainIdentity(
            compiler=CompilerKind.ZIG,
            version=version,
            libc=libc,
            cmake=_version("cmake") if needs.cmake else None,
            ninja=_version("ninja") if needs.cmake else None,
            on=on,
        ),
        c=(zig, "cc"),
        cxx=(zig, "c++"),
        ar=(zig, "ar"),
        ranlib=(zig, "ranlib"),
        cmake=str(programs.cmake),
        ninja=str(programs.ninja),
        environment=environment(),
    )


def locate() -> Programs:
    """Find the installed programs. Raises ToolMissing."""
    _version("ziglang")
    spec = importlib.util.find_spec("ziglang")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise _missing("ziglang")
    return Programs(
        zig=_program("ziglang", Path(places[0]), "zig"),
        cmake=_program("cmake", _folder("cmake", "CMAKE_BIN_DIR"), "cmake"),
        ninja=_program("ninja", _folder("ninja", "BIN_DIR"), "ninja"),
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise _missing(package) from error


def _folder(package: str, constant: str) -> Path:
    """Return the folder of a package's programs, from the package's documented constant."""
    try:
        return Path(getattr(importlib.import_module(package), constant))
    except (ImportError, AttributeError) as error:
        raise _missing(package) from error


def _program(package: str, folder: Path, name: str) -> Path:
    path = folder / name
    if not os.access(path, os.X_OK):
        raise _missing(package)
    return path


def _missing(package: str) -> ToolMissing:
    return ToolMissing(f"the Python package {package!r} is not installed", hint=HINT)


def environment() -> dict[str, str]:
    """Return the variables that zig's calls add to the environment: zig's cache is in labctl's."""
    zig_cache = str(cache_dir() / "zig")
    return {
        **BUILD_ENVIRONMENT,
        "ZIG_GLOBAL_CACHE_DIR": zig_cache,
        "ZIG_LOCAL_CACHE_DIR": zig_cache,
    }


def zig_flags(target: Target, zig_target: str | None) -> tuple[str, ...]:
    """Return zig's flags for a target, for every call."""
    if zig_target is not None:
        return ("-target", zig_target, *COMMON_FLAGS)
    return ("-target", target.zig.target, f"-mcpu={target.zig.cpu}", *COMMON_FLAGS)
