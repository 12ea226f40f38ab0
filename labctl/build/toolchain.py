"""Toolchains: the programs that compile, their versions and machine, and the flags for a target.

A builder offers a :class:`Toolchain` for a target. What it says of itself goes into the manifest,
and what of that decides on the bytes into the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

#: The environment of all build programs, on every machine.
BUILD_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": "315532800",  # 1980-01-01, the earliest that zip files can hold
        "NINJA_STATUS": "[%f/%t] ",
    }
)


class BuilderKind(StrEnum):
    """Kind of machine on which compilers run."""

    LOCAL = "local"
    CONTAINER = "container"
    SSH = "ssh"


class CompilerKind(StrEnum):
    """Compilers that labctl can call."""

    ZIG = "zig"
    GCC = "gcc"
    SDK = "kit"
    """Those of an SDK that the user supplies; the steps of the build spec call them."""


class Machine(BaseModel):
    """The machine that a builder compiles on."""

    model_config = ConfigDict(frozen=True)

    builder: BuilderKind
    machine: str
    """Output of ``uname -m`` there."""
    system: str | None = None
    """Its operating system, e.g. ``Debian GNU/Linux 12 (bookworm)``."""
    image: str | None = None
    """Digest of the container's image."""
    engine: str | None = None
    """The container engine, with its version."""
    host: str | None = None
    """The build host's name in devices.yaml."""
    network: bool | None = None
    """True if compilers could reach a network; ``None``: nothing kept them from it."""

    def __str__(self) -> str:
        where = self.host or (self.image or "")[:19] or "this host"
        return f"{self.builder} ({where}, {self.machine})"


class ToolchainIdentity(BaseModel):
    """The programs that decide on an artifact's bytes, and where they run."""

    model_config = ConfigDict(frozen=True)

    compiler: CompilerKind
    version: str | None
    """Version that the compiler prints; ``None`` for an SDK's."""
    triple: str | None = None
    """The triple that it compiles for, where the compiler itself fixes it."""
    libc: str | None = None
    """The C library that programs are linked with, with its version where it is known."""
    cmake: str | None = None
    ninja: str | None = None
    on: Machine

    @property
    def digested(self) -> dict[str, object]:
        """The part that belongs to a build's key."""
        return self.model_dump(mode="json", exclude={"on": {"system", "engine", "network"}})

    def __str__(self) -> str:
        parts = [f"{self.compiler} {self.version}" if self.version else "the SDK's own"]
        parts += [f"cmake {self.cmake}"] if self.cmake else []
        return f"{', '.join(parts)}; {self.on}"


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
    """Removes symbols; empty for zig, which links without them and tells them in a map."""
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
