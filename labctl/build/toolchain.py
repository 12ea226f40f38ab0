"""The compiler and build programs of this Python environment: PyPI's cmake, ninja and ziglang.

They are taken from the packages of the running interpreter, never from PATH: what built an artifact
is then what its manifest says.
"""

import importlib
import importlib.metadata
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from labctl import process
from labctl.config.target import Target
from labctl.errors import ToolMissing
from labctl.files import cache_dir, write_atomic

HINT = "run `pip install 'labctl[build]'` in this Python environment"

#: The runtime is some 1,300 small files; 100 s of one core here.
RUNTIME_SECONDS = 1800.0

#: For all languages. ``-s``: no debug information (also none in zig's own libraries, which it would
#: build a second time). Without the sanitizer's flag zig traps undefined behaviour in programs that
#: are compiled without ``-O``, CMake's tests for instance, and builds a library for that.
COMMON_FLAGS = ("-s", "-fno-sanitize=undefined")

_RUNTIME_C = "int main(void) { return 0; }\n"
_RUNTIME_CXX = """#include <string>
int main(int, char **argv) { std::string s(argv[0]); if (s.empty()) throw s; return 0; }
"""


class ToolchainIdentity(BaseModel):
    """The versions that decide on an artifact's bytes."""

    model_config = ConfigDict(frozen=True)

    zig: str
    cmake: str

    def __str__(self) -> str:
        return f"zig {self.zig}, cmake {self.cmake}"


@dataclass(frozen=True)
class Programs:
    """Where the build programs are."""

    zig: Path
    cmake: Path
    ninja: Path


def identify() -> ToolchainIdentity:
    """The versions that are installed. Raises ToolMissing."""
    return ToolchainIdentity(zig=_version("ziglang"), cmake=_version("cmake"))


def locate() -> Programs:
    """The programs that are installed. Raises ToolMissing."""
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
    """Where a package keeps its programs, by its own documented constant."""
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
    """The environment of all build programs.

    Nothing of the user's that could change the result (CFLAGS, CC, CMAKE_GENERATOR, ...) gets in.
    """
    kept = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")
    zig_cache = str(cache_dir() / "zig")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": "315532800",  # 1980-01-01, the earliest that zip files can hold
        "ZIG_GLOBAL_CACHE_DIR": zig_cache,
        "ZIG_LOCAL_CACHE_DIR": zig_cache,
        # Builds ask git for versions; a repository around the cache is not the source's.
        "GIT_CEILING_DIRECTORIES": str(cache_dir()),
        "NINJA_STATUS": "[%f/%t] ",
    }


def target_flags(target: Target, zig_target: str | None) -> tuple[str, ...]:
    """What makes zig compile for a target, in every call."""
    if zig_target is not None:
        return ("-target", zig_target, *COMMON_FLAGS)
    return ("-target", target.zig.target, f"-mcpu={target.zig.cpu}", *COMMON_FLAGS)


def prefix_maps(source: Path, build: Path) -> tuple[str, ...]:
    """Flags that keep this host's folders out of the programs."""
    return (f"-ffile-prefix-map={source}=.", f"-ffile-prefix-map={build}=./build")


def prepare_runtime(
    programs: Programs, flags: tuple[str, ...], scratch: Path
) -> process.Completed | None:
    """Make zig build its C and C++ runtime for a target, if its cache does not have them.

    zig builds one library at a time; started for C and for C++ at once, it builds two. What failed,
    or ``None``. Raises HostError, HostTimeout.
    """
    sources = {"cc": ("runtime.c", _RUNTIME_C), "c++": ("runtime.cpp", _RUNTIME_CXX)}

    def prepare(language: str) -> process.Completed:
        name, text = sources[language]
        write_atomic(scratch / name, text)
        words = [str(programs.zig), language, *flags, "-O2", name, "-o", f"{name}.out"]
        return process.run(words, timeout=RUNTIME_SECONDS, cwd=scratch, env=environment())

    with ThreadPoolExecutor(len(sources)) as pool:
        return next((done for done in pool.map(prepare, sources) if done.exit_status != 0), None)


def default_jobs() -> int:
    """Compilers to run at once: one a core, but no more than one for each GB of free memory."""
    cores = len(os.sched_getaffinity(0))
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available_kib = int(fields["MemAvailable"].split()[0])
    return max(1, min(cores, available_kib >> 20))
