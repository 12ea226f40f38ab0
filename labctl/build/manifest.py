"""``manifest.json``: the facts of a build, as models. Schema only; other modules find the facts.

``labctl artifacts list`` reads manifests without the libraries that produce the facts.
"""

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from labctl.config.types import InterruptibleModel

#: Log with all output of a build's programs, in the build's folder.
LOG = "build.log"
#: Prefix of the version of each artifact of an untrusted source; its digest follows.
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
    """Compilers of an SDK that the user supplies; the steps of the build spec call them."""


class Machine(InterruptibleModel):
    """The machine that a builder compiles on."""

    model_config = ConfigDict(frozen=True)

    builder: BuilderKind
    machine: str
    """Output of ``uname -m`` there."""
    system: str | None = None
    """Operating system there, e.g. ``Debian GNU/Linux 12 (bookworm)``."""
    image: str | None = None
    """Digest of the container's image."""
    engine: str | None = None
    """The container engine, with its version."""
    host: str | None = None
    """The build host's name in devices.yaml."""
    network: bool | None = None
    """True if compilers could reach a network; ``None``: nothing prevented it."""

    def __str__(self) -> str:
        where = self.host or (self.image or "")[:19] or "this host"
        return f"{self.builder} ({where}, {self.machine})"


class ToolchainIdentity(InterruptibleModel):
    """The programs that determine an artifact's bytes, and their machine."""

    model_config = ConfigDict(frozen=True)

    compiler: CompilerKind
    version: str | None
    """Version that the compiler prints; ``None`` for an SDK."""
    triple: str | None = None
    """Target triple, if the compiler itself fixes it."""
    libc: str | None = None
    """C library that programs are linked with, with its version if known."""
    cmake: str | None = None
    ninja: str | None = None
    on: Machine

    @property
    def digested(self) -> dict[str, object]:
        """The part that is included in a build's key."""
        return self.model_dump(mode="json", exclude={"on": {"system", "engine", "network"}})

    def __str__(self) -> str:
        parts = [f"{self.compiler} {self.version}" if self.version else "the SDK's own"]
        parts += [f"cmake {self.cmake}"] if self.cmake else []
        return f"{', '.join(parts)}; {self.on}"


class PatchIdentity(InterruptibleModel):
    """A patch that was applied."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Path below the toolchains folder."""
    sha256: str


class SourceIdentity(InterruptibleModel):
    """Identity of a source: ``commit``, ``sha256`` or both; neither for an SDK."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["package", "archive", "git", "folder", "kit"]
    location: str
    """Package and release, address of the archive or repository, or path of the folder."""
    subdirectory: str | None = None
    """Subfolder that is the source."""
    sha256: str | None = None
    """SHA-256 of the archive, or of all files of a folder."""
    commit: str | None = None
    """Git commit."""
    dirty: bool | None = None
    """True if a folder differs from its commit; ``None`` without a commit."""

    committed: datetime | None = None
    """Time of the commit; ``None`` without a commit, or if not looked up."""

    patches: tuple[PatchIdentity, ...] = ()
    """Patches, in the order of their application."""

    @property
    def full_revision(self) -> str:
        """The whole commit of a git repository; for other sources, :attr:`revision`."""
        return self.commit if self.kind == "git" and self.commit else self.revision

    @property
    def revision(self) -> str:
        """Short name of the source: the first digits of the commit or hash."""
        if self.commit:
            changed = "-patched" if self.patches else "-dirty" if self.dirty else ""
            return self.commit[:7] + changed
        if self.kind == "kit":
            return "kit"
        return f"{self.kind}-{self.digest[:8] if self.patches else (self.sha256 or '')[:8]}"

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the source's bytes; excludes its location."""
        content: list[object] = [self.subdirectory, self.sha256 or self.commit]
        if self.kind == "kit":
            content.append(self.location)
        if self.patches:
            content.append([patch.sha256 for patch in self.patches])
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


SCHEMA_VERSION = 2


class Recorded(InterruptibleModel):
    """Base of the parts of a manifest; fields of a newer labctl are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Material(Recorded):
    """One input that determined the bytes of an artifact."""

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
    """Dynamic linker that it requests (PT_INTERP)."""
    dynamic: bool
    """True if it has a dynamic section (PT_DYNAMIC)."""
    needed: tuple[str, ...]
    """Libraries that it needs at run time."""
    stripped: bool
    """True if it has neither a symbol table nor debug information."""

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
    """Extension, named as in /proc/cpuinfo -> number of its instructions."""
    dispatched: tuple[DispatchedUse, ...] = ()
    """Instructions missing on the target, each with the reason why it is allowed."""
    named: bool
    """True if the functions were known; otherwise data between them is read as code."""


class SmokeRun(Recorded):
    """A first start of a tool on this host."""

    done: bool
    """True if it was started."""
    reason: str | None = None
    """Reason why it was not started."""
    argv: tuple[str, ...] = ()
    """The whole command, including the emulator."""
    exit_status: int | None = None
    output: str = ""
    """The first lines that it printed."""

    @property
    def emulated(self) -> bool:
        """True if an emulator started it: the only program with a path in ``argv``."""
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
    """Optional instructions in its code; ``None`` for machines whose code labctl cannot decode."""
    sections: dict[str, int]
    """Bytes of each section of the file."""
    smoke: SmokeRun
    """First start of the tool."""
    infer: SmokeRun | None
    """Run of a tiny model; ``None`` for tools that run no model."""
    options: tuple[str, ...] | None = None
    """Names of its options, from its help; ``None`` if it was not asked."""
    built: datetime
    """Time of the build, UTC."""
    rules: str | None = None
    """SHA-256 of all rules that it was checked against; ``None``: built by an older labctl."""


class Manifest(Recorded):
    """``manifest.json``: everything that determined the tools' bytes, and their checks."""

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
    """All inputs, with versions, hashes and licences where known."""
    why_builder: str
    """Reason for the choice of the builder."""
    labctl_version: str
    tools: dict[str, ToolRecord]
    untrusted: bool = False
    """True if the source is untrusted: none of its programs may start on a host of the lab."""

    def __str__(self) -> str:
        compiler = f"{self.toolchain.compiler} {self.toolchain.version or ''}".strip()
        return f"{self.version} for {self.target} ({compiler})"

    @property
    def commit(self) -> str | None:
        """Git commit of the source, if it has one."""
        return self.source.commit

    @property
    def spec(self) -> str:
        """SHA-256 of compiler, definitions and flags, without the source.

        Two builds with the same value differ only in their source.
        """
        how = [
            self.product,
            self.target,
            self.toolchain.digested,
            sorted(self.definitions.items()),
            self.flags,
        ]
        return hashlib.sha256(json.dumps(how).encode()).hexdigest()
