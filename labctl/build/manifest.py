"""``manifest.json``: the facts of a build, as models. Schema only; each is found out elsewhere.

``labctl artifacts list`` reads these without the libraries that produce them.
"""

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from labctl.config.types import InterruptibleModel

#: The whole output of a build's programs, in the build's folder.
LOG = "build.log"
#: Begins the version of each artifact of an untrusted source; its digest follows.
UNTRUSTED = "untrusted-"


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


class Machine(InterruptibleModel):
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


class ToolchainIdentity(InterruptibleModel):
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


class PatchIdentity(InterruptibleModel):
    """A patch that was applied."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Its path below the folder of toolchains."""
    sha256: str


class SourceIdentity(InterruptibleModel):
    """Identity of a source: ``commit``, ``sha256`` or both; neither for an SDK."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["package", "archive", "git", "folder", "kit"]
    location: str
    """Package and release, address of the archive or repository, or path of the folder."""
    subdirectory: str | None = None
    """The part of it that is the source."""
    sha256: str | None = None
    """SHA-256 of the archive, or of all files of a folder."""
    commit: str | None = None
    """Git commit."""
    dirty: bool | None = None
    """True if a folder differs from its commit; ``None``: there is no commit."""

    committed: datetime | None = None
    """Time of the commit; ``None``: there is none, or nobody asked."""

    patches: tuple[PatchIdentity, ...] = ()
    """Changes to it, in this order."""

    @property
    def full_revision(self) -> str:
        """The whole commit of a git repository; of another source its :attr:`revision`."""
        return self.commit if self.kind == "git" and self.commit else self.revision

    @property
    def revision(self) -> str:
        """A short word for it: the commit's first digits, or the hash's."""
        if self.commit:
            changed = "-patched" if self.patches else "-dirty" if self.dirty else ""
            return self.commit[:7] + changed
        if self.kind == "kit":
            return "kit"
        return f"{self.kind}-{self.digest[:8] if self.patches else (self.sha256 or '')[:8]}"

    @property
    def digest(self) -> str:
        """SHA-256 of what the bytes of the source depend on; its place is not among it."""
        content: list[object] = [self.subdirectory, self.sha256 or self.commit]
        if self.kind == "kit":
            content.append(self.location)
        if self.patches:
            content.append([patch.sha256 for patch in self.patches])
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


SCHEMA_VERSION = 2


class Recorded(InterruptibleModel):
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
    """Guarded functions that use instructions missing on the target."""

    extensions: tuple[str, ...]
    functions: tuple[str, ...]
    reason: str


class IsaFacts(Recorded):
    """Optional instructions in a program's code."""

    used: dict[str, int]
    """Extension, in the words of /proc/cpuinfo -> number of its instructions."""
    dispatched: tuple[DispatchedUse, ...] = ()
    """Instructions missing on the target, each with the reason why it may be there."""
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
    untrusted: bool = False
    """True if nobody vouches for the source: nothing of it may be started on a host of the lab."""

    def __str__(self) -> str:
        compiler = f"{self.toolchain.compiler} {self.toolchain.version or ''}".strip()
        return f"{self.version} for {self.target} ({compiler})"

    @property
    def commit(self) -> str | None:
        """The source's git commit, where it has one."""
        return self.source.commit

    @property
    def spec(self) -> str:
        """SHA-256 of how it was built: compiler, definitions and flags, not what was built.

        Two builds with the same one differ in their source alone.
        """
        how = [
            self.product,
            self.target,
            self.toolchain.digested,
            sorted(self.definitions.items()),
            self.flags,
        ]
        return hashlib.sha256(json.dumps(how).encode()).hexdigest()
