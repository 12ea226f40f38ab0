"""``manifest.json``: the facts of a build, as models. Schema only; each is found out elsewhere.

``labctl artifacts list`` reads these without the libraries that produce them.
"""

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from labctl.build.source import SourceIdentity
from labctl.build.toolchain import ToolchainIdentity

SCHEMA_VERSION = 2


class Recorded(BaseModel):
    """Base of what a manifest says; fields of a newer labctl are kept out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Material(Recorded):
    """One thing that decided on the bytes of an artifact."""

    kind: Literal["source", "patch", "compiler", "library", "build-tool", "image", "kit"]
    name: str
    version: str | None = None
    sha256: str | None = None
    licence: str | None = None
    """SPDX expression."""
    linked: bool
    """True if its code or data is in the artifact."""


class ElfFacts(Recorded):
    """Facts of one ELF file."""

    machine: str
    """``e_machine``, e.g. ``EM_AARCH64``."""
    bits: int
    """Class of the file: 32 or 64."""
    type: str
    """``e_type``, e.g. ``ET_EXEC``."""
    interpreter: str | None
    """The dynamic linker that it asks for (PT_INTERP)."""
    dynamic: bool
    """True if it has a dynamic section (PT_DYNAMIC)."""
    needed: tuple[str, ...]
    """Libraries that it needs at run time."""
    stripped: bool
    """Neither a symbol table nor debug information."""

    def __str__(self) -> str:
        kind = "dynamic" if self.dynamic else "static"
        state = "stripped" if self.stripped else "with symbols"
        return f"{self.machine.removeprefix('EM_')} {self.bits}-bit, {kind}, {state}"


class DispatchedUse(Recorded):
    """Functions that use what the target lacks, behind a guard."""

    extensions: tuple[str, ...]
    functions: tuple[str, ...]
    reason: str


class IsaFacts(Recorded):
    """Optional instructions in a program's code."""

    used: dict[str, int]
    """Extension, in the words of /proc/cpuinfo -> number of its instructions."""
    dispatched: tuple[DispatchedUse, ...] = ()
    """Instructions that the target lacks, each with the reason why it may be there."""
    named: bool
    """True if the functions were known; otherwise data between them is read as code."""


class SmokeRun(Recorded):
    """A first start of a tool on this host."""

    done: bool
    """True if it was started."""
    reason: str | None = None
    """Reason why it was not started."""
    argv: tuple[str, ...] = ()
    """The whole command, the emulator with it."""
    exit_status: int | None = None
    output: str = ""
    """The first lines that it printed."""

    @property
    def emulated(self) -> bool:
        """True if an emulator, the only program with a path in ``argv``, started it."""
        return self.done and Path(self.argv[0]).is_absolute()

    def __str__(self) -> str:
        if not self.done:
            return f"not done: {self.reason}"
        return "good (emulated)" if self.emulated else "good"


class ToolRecord(Recorded):
    """One tool."""

    sha256: str
    size_bytes: int
    elf: ElfFacts
    isa: IsaFacts | None
    """Optional instructions in its code; ``None`` for machines whose code is not decoded."""
    sections: dict[str, int]
    """Bytes of each section of the file."""
    smoke: SmokeRun
    """Its first start."""
    infer: SmokeRun | None
    """Its run of a tiny model; ``None`` for tools that run none."""
    built: datetime
    """Time of the build, UTC."""
    rules: str | None = None
    """SHA-256 of all rules that it was checked against; ``None``: built by an older labctl."""


class Manifest(Recorded):
    """``manifest.json``: everything that decided on the tools' bytes, and what proves them."""

    schema_version: int = SCHEMA_VERSION
    product: str
    version: str
    """Label of the version, e.g. ``new``."""
    target: str
    key: str
    """SHA-256 of all inputs of the build."""
    source: SourceIdentity
    toolchain: ToolchainIdentity
    definitions: dict[str, bool | int | str]
    """CMake definitions."""
    flags: tuple[str, ...]
    """Flags of every call of the compiler."""
    materials: tuple[Material, ...]
    """All that went into it, with versions, hashes and licences where they are known."""
    why_builder: str
    """Reason for the choice of the builder."""
    labctl_version: str
    tools: dict[str, ToolRecord]

    def __str__(self) -> str:
        compiler = f"{self.toolchain.compiler} {self.toolchain.version or ''}".strip()
        return f"{self.version} for {self.target} ({compiler})"

    @property
    def commit(self) -> str | None:
        """The source's git commit, where it has one."""
        return self.source.commit
