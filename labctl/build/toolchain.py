"""Toolchains: the compilers, their versions and machine, and the flags for a target.

A builder offers a :class:`Toolchain` for a target. The manifest records the toolchain's identity;
the parts that determine the bytes go into the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from labctl.build.manifest import CompilerKind, Machine, ToolchainIdentity

#: Environment of all build programs, on every machine.
BUILD_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": "315532800",  # 1980-01-01, the earliest time in a zip file
        "NINJA_STATUS": "[%f/%t] ",
    }
)


@dataclass(frozen=True)
class Needs:
    """Requirements of a build for its toolchain."""

    cmake: bool
    """True if CMake and Ninja are needed."""
    compiler: bool = True
    """True if a compiler for the target is needed; False if the SDK has its own."""
    zig: bool = False
    """True if only zig can build it: it needs another C library version than the machine's."""
    asked: CompilerKind | None = None
    """Compiler that the user requested."""


@dataclass(frozen=True)
class Toolchain:
    """Programs of one machine, with the words that call them there."""

    identity: ToolchainIdentity
    c: tuple[str, ...] = ()
    cxx: tuple[str, ...] = ()
    ar: tuple[str, ...] = ()
    ranlib: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()
    """Command that removes symbols; empty for zig, which links without symbols and prints a map."""
    cmake: str = ""
    ninja: str = ""
    ccache: str | None = None
    """Program that runs the compilers and caches their output."""
    jobs: int | None = None
    """Number of parallel compilers that cores and memory allow; ``None``: as on this host."""
    environment: Mapping[str, str] = field(default_factory=lambda: BUILD_ENVIRONMENT)


def kit_toolchain(on: Machine) -> Toolchain:
    """Return the toolchain for builds that use only an SDK's compilers."""
    return Toolchain(ToolchainIdentity(compiler=CompilerKind.SDK, version=None, on=on))
