"""Toolchains: the programs that compile, their versions and machine, and the flags for a target.

A builder offers a :class:`Toolchain` for a target. What it says of itself goes into the manifest,
and what of that decides on the bytes into the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from labctl.build.manifest import CompilerKind, Machine, ToolchainIdentity

#: The environment of all build programs, on every machine.
BUILD_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": "315532800",  # 1980-01-01, the earliest that zip files can hold
        "NINJA_STATUS": "[%f/%t] ",
    }
)


@dataclass(frozen=True)
class Needs:
    """Requirements of a build for its toolchain."""

    cmake: bool
    """CMake and Ninja."""
    compiler: bool = True
    """A compiler for the target; by default the SDK's own."""
    zig: bool = False
    """Only zig can build it: it needs another version of the C library than the machine's."""
    asked: CompilerKind | None = None
    """The compiler that the user wants."""


@dataclass(frozen=True)
class Toolchain:
    """Programs of one machine, in the words with which they are called there."""

    identity: ToolchainIdentity
    c: tuple[str, ...] = ()
    cxx: tuple[str, ...] = ()
    ar: tuple[str, ...] = ()
    ranlib: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()
    """Removes symbols; empty for zig, which links without them and prints them in a map."""
    cmake: str = ""
    ninja: str = ""
    ccache: str | None = None
    """A program that runs the compilers and caches their output."""
    jobs: int | None = None
    """Number of compilers that the machine's cores and memory allow; ``None``: as on this host."""
    environment: Mapping[str, str] = field(default_factory=lambda: BUILD_ENVIRONMENT)


def kit_toolchain(on: Machine) -> Toolchain:
    """For builds with an SDK's compilers: none of the machine's is needed."""
    return Toolchain(ToolchainIdentity(compiler=CompilerKind.SDK, version=None, on=on))
