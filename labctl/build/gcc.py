"""GCC as the compiler: a cross GCC, or the machine's own if its kind is the target's."""

import re
from collections.abc import Callable, Sequence

from labctl.build.manifest import CompilerKind, Machine, ToolchainIdentity
from labctl.build.toolchain import Needs, Toolchain, kit_toolchain
from labctl.config.target import Target
from labctl.errors import ToolMissing

#: Runs a short program on a machine; returns its standard output, or ``None`` if it is missing or
#: fails.
Ask = Callable[[Sequence[str]], str | None]

#: Programs that one call of the compiler for C files needs.
_C_PROGRAMS = ("gcc", "ar", "ranlib", "strip")
#: Programs that CMake projects need in addition.
_CXX_PROGRAMS = ("g++",)


def find_gcc(
    ask: Ask,
    target: Target,
    needs: Needs,
    *,
    on: Machine,
    cmake: str = "cmake",
    ninja: str = "ninja",
) -> Toolchain:
    """Find a machine's GCC for a target, and its CMake, Ninja and ccache.

    Raises ToolMissing, which names every missing program.
    """
    if not needs.compiler:
        return kit_toolchain(on)
    where = f"on {on.host}" if on.host else "in the container" if on.image else "on this host"
    if needs.zig:
        raise ToolMissing(f"only zig can build this product, and there is none {where}")
    if needs.asked is CompilerKind.ZIG:
        raise ToolMissing(f"there is no zig {where}: it is a compiler of the local builder")
    prefix = _prefix(ask, target, on)
    wanted = _C_PROGRAMS + (_CXX_PROGRAMS if needs.cmake else ())
    missing = [
        f"{prefix}{name}" for name in wanted if ask([f"{prefix}{name}", "--version"]) is None
    ]
    cmake_version = ninja_version = None
    if needs.cmake:
        cmake_version, ninja_version = (
            _number(ask([name, "--version"])) for name in (cmake, ninja)
        )
        missing += [
            name
            for name, version in ((cmake, cmake_version), (ninja, ninja_version))
            if not version
        ]
    if missing:
        raise ToolMissing(
            f"not installed {where}: {', '.join(missing)}",
            hint=f"Debian, Ubuntu: apt-get install {_packages(prefix, target, needs)}",
        )
    compiler = f"{prefix}gcc"
    printed = (ask([compiler, "--version"]) or "").splitlines()
    return Toolchain(
        identity=ToolchainIdentity(
            compiler=CompilerKind.GCC,
            version=printed[0].partition(" ")[2] if printed else None,
            triple=(ask([compiler, "-dumpmachine"]) or "").strip() or None,
            libc=_libc(
                ask([compiler, "-E", "-dM", "-include", "features.h", "-x", "c", "/dev/null"])
            ),
            cmake=cmake_version,
            ninja=ninja_version,
            on=on,
        ),
        c=(compiler,),
        cxx=(f"{prefix}g++",),
        ar=(f"{prefix}ar",),
        ranlib=(f"{prefix}ranlib",),
        strip=(f"{prefix}strip",),
        cmake=cmake,
        ninja=ninja,
        ccache="ccache" if needs.cmake and ask(["ccache", "--version"]) is not None else None,
    )


def _packages(prefix: str, target: Target, needs: Needs) -> str:
    of_target = f"-{target.triple}" if prefix else ""
    if needs.cmake:
        return f"g++{of_target} cmake ninja-build"
    return f"gcc{of_target}" if of_target else "gcc libc6-dev"


def gcc_flags(target: Target) -> tuple[str, ...]:
    """Return GCC's flags for a target, for every call."""
    return target.cpu_flags


def _prefix(ask: Ask, target: Target, on: Machine) -> str:
    """Return the prefix of the compiler's name; empty if the machine's kind is the target's."""
    cross = f"{target.triple}-"
    if on.machine == target.machine and ask([f"{cross}gcc", "--version"]) is None:
        return ""
    return cross


def _number(printed: str | None) -> str | None:
    found = re.search(r"\d+(?:\.\d+)+", printed or "")
    return found[0] if found else None


def _libc(macros: str | None) -> str | None:
    """Return the C library's version from the predefined macros; None for musl."""
    defined = dict(re.findall(r"#define (__GLIBC(?:_MINOR)?__) (\d+)", macros or ""))
    if len(defined) != 2:
        return None
    return f"glibc {defined['__GLIBC__']}.{defined['__GLIBC_MINOR__']}"
