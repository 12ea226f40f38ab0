"""Build specs: description of a product's build, as data.

A spec is ``toolchains/<target>/<product>.yaml``, for this target only, or
``toolchains/products/<product>.yaml``, for every target without its own file. A lab's own folder
overrides the one in labctl. ``source:`` names the origin of its source.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from labctl.config.target import toolchain_folders
from labctl.config.types import Duration, Line, Name, Sha256
from labctl.config.yaml.document import StrictModel, load, refuse_all
from labctl.errors import ConfigError
from labctl.suggestions import unknown
from labctl.text_types import HostPath, Word

Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


def _archive_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http", "file") or not parts.path.strip("/"):
        raise ValueError("must be the address of a file: https://..., http://... or file:///...")
    if "@" in parts.netloc:
        raise ValueError("must hold no user name or password: manifests would show it")
    return text


class PackageSource(StrictModel):
    """A source archive of the Python package index, pinned by its hash."""

    package: Word
    """Name of the package."""
    release: Word
    """Release number."""
    sha256: Sha256
    """SHA-256 of the release's source archive."""
    subdirectory: HostPath | None = None
    """Subfolder of the archive that is the source."""
    commit: Commit | None = None
    """Git commit that the archive's own .git must confirm."""


class ArchiveSource(StrictModel):
    """An archive at an address, pinned by its hash: tar (gzip, bzip2, xz) or zip."""

    archive: Annotated[Line, AfterValidator(_archive_url)]
    """Address of the archive."""
    sha256: Sha256
    """SHA-256 of the archive."""
    subdirectory: HostPath | None = None
    """Subfolder that is the source, below the single top folder."""


class GitSource(StrictModel):
    """A git repository at one commit, tag or branch."""

    git: Line
    """Address of the repository."""
    ref: Line
    """Tag, branch or full commit."""


class FolderSource(StrictModel):
    """A folder beside the spec."""

    folder: HostPath
    """The folder; a relative path starts at the spec's own folder."""


class SdkSource(StrictModel):
    """A source tree that the user supplies, on the build machine."""

    kit: Word
    """Parameter that names the tree."""


AnySource = PackageSource | ArchiveSource | GitSource | FolderSource | SdkSource


#: Folder of specs for every target.
SHARED = "products"

Definition = bool | int | str
Problem = tuple[tuple[str | int, ...], str]


#: Names for ``{...}`` in steps, outputs and definitions, besides parameters and versions.
PLACEHOLDERS = ("source", "tree", "jobs", "version", "revision")
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")


class ElfKind(StrEnum):
    """Required kind of a built file."""

    STATIC_EXECUTABLE = "static-executable"
    DYNAMIC_EXECUTABLE = "dynamic-executable"
    SHARED_OBJECT = "shared-object"


class Version(StrictModel):
    """One version of a product."""

    source: AnySource
    """Origin of its source."""
    description: Line | None = None
    """Differences from the version that it is based on."""
    elf_machine: Literal["EM_AARCH64", "EM_ARM"] | None = None
    """Machine of its files if it differs from the target's: an SDK's for a 32-bit userland."""
    definitions: dict[Word, Definition] = Field(default_factory=dict)
    """CMake definitions of this version only."""
    infer: dict[Word, tuple[Line, ...]] = Field(default_factory=dict)
    """``infer`` of tools, if this version needs other arguments."""
    tools: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    """Tools of this version, in the order of the summary; by default all tools of the product."""


class Parameter(StrictModel):
    """A value that the user must supply, with ``--param NAME=VALUE``."""

    description: Line
    """Description of the value, and where to get it."""
    kind: Literal["path", "word"] = "path"
    """``path``: a folder on the machine that builds; ``word``: one word."""
    default: Word | None = None
    """Default value; without it, a value is required."""
    check: HostPath | None = None
    """File that must exist below the path."""


class StepSpec(StrictModel):
    """One command of the builder ``steps``."""

    run: Annotated[tuple[Line, ...], Field(min_length=1)]
    """Program and arguments, each one word for the program; no shell is used."""
    cwd: Line = "{source}"
    """Working folder."""
    timeout: Duration = 4 * 3600.0
    """Maximum duration."""


class Dispatched(StrictModel):
    """Functions that may use instructions missing on the target, guarded by run-time checks."""

    functions: Annotated[tuple[Line, ...], Field(min_length=1)]
    """Names of the functions; ``*`` matches anything."""
    extensions: Annotated[tuple[Word, ...], Field(min_length=1)]
    """Extensions that they may use, named as in /proc/cpuinfo."""
    reason: Line
    """Reason why they run on no other CPU; written to the manifest."""


class ToolSpec(StrictModel):
    """One file to build."""

    by_default: bool = True
    """True if it is built when the request names no tools."""
    smoke: tuple[Line, ...] | None = None
    """Arguments with which it ends quickly and successfully; without them it is not started."""
    smoke_status: int = 0
    """Exit status that the smoke run must have."""
    help: tuple[Line, ...] | None = None
    """Arguments with which it prints its options; an engine may use no others."""
    infer: tuple[Line, ...] | None = None
    """Arguments with which it runs a tiny model, the file ``{model}``, for a few tokens."""
    elf: ElfKind = ElfKind.STATIC_EXECUTABLE
    """Required kind of the file."""
    stripped: bool = True
    """True if it must have no symbols and no debug information."""
    sources: tuple[HostPath, ...] = ()
    """C files of the source, for the builder ``compile``."""
    flags: tuple[Line, ...] = ()
    """The compiler's flags, for the builder ``compile``."""
    output: Line | None = None
    """Path of the file after the steps, for the builder ``steps``."""


class BuildSpec(StrictModel):
    """Build specification of a product."""

    product: Word
    """Name of the product: the file name without .yaml."""
    description: Line
    """Short description of the product."""
    licence: Word | None = None
    """SPDX identifier of the source's licence, unless it is labctl's own source."""
    builder: Literal["cmake", "compile", "steps"]
    """``cmake``: CMake and Ninja; ``compile``: one call of the compiler for each tool; ``steps``:
    the commands of ``steps``, with the compilers of an SDK that the user supplies."""
    default_version: Name
    """Version that is built by default."""
    versions: Annotated[dict[Name, Version], Field(min_length=1)]
    """Versions by label."""
    definitions: dict[Word, Definition] = Field(default_factory=dict)
    """CMake definitions; ``{revision}`` stands for the short commit or content hash."""
    zig_target: Word | None = None
    """Zig's target triple, if it differs from the target's (a library for the host's libc)."""
    parameters: dict[Name, Parameter] = Field(default_factory=dict)
    """Values that the user supplies, by name."""
    steps: tuple[StepSpec, ...] = ()
    """Commands of the builder ``steps``, in their order. ``{source}``, ``{tree}``, ``{jobs}``,
    ``{version}`` and ``{PARAMETER}`` in their words are replaced.
    """
    dispatched: tuple[Dispatched, ...] = ()
    """Functions that run only on machines with the extensions that they use."""
    tools: Annotated[dict[Word, ToolSpec], Field(min_length=1)]
    """Tools that can be built, by name."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problems = [*self._unknown_names(), *self._misplaced(), *self._unknown_placeholders()]
        if problems:
            raise refuse_all(problems)
        return self

    def _unknown_names(self) -> Iterator[Problem]:
        if self.default_version not in self.versions:
            what = unknown("version", self.default_version, self.versions)
            yield ("default_version",), what
        for label, version in self.versions.items():
            for index, tool in enumerate(version.tools or ()):
                if tool not in self.tools:
                    yield ("versions", label, "tools", index), unknown("tool", tool, self.tools)
            for tool in version.infer:
                if tool not in self.tools:
                    yield ("versions", label, "infer", tool), unknown("tool", tool, self.tools)
            if isinstance(version.source, SdkSource) and version.source.kit not in self.paths:
                what = unknown("parameter of kind path", version.source.kit, self.paths)
                yield ("versions", label, "source", "kit"), what

    def _misplaced(self) -> Iterator[Problem]:
        for name, tool in self.tools.items():
            if (self.builder == "compile") != bool(tool.sources):
                what = "are what the builder 'compile' needs, and it alone"
                yield ("tools", name, "sources"), what
            if (self.builder == "steps") != (tool.output is not None):
                what = "is what the builder 'steps' needs, and it alone"
                yield ("tools", name, "output"), what
        if (self.builder == "steps") != bool(self.steps):
            yield ("steps",), "are what the builder 'steps' needs, and it alone"
        for label, version in self.versions.items():
            if self.builder == "steps":
                continue
            if isinstance(version.source, SdkSource):
                where = ("versions", label, "source")
                yield where, "an SDK's own tree can be built by the builder 'steps' only"
            if version.elf_machine is not None:
                what = "another machine than the target's needs the builder 'steps'"
                yield ("versions", label, "elf_machine"), what

    def _unknown_placeholders(self) -> Iterator[Problem]:
        known = (*PLACEHOLDERS, *self.parameters)
        for name in set(PLACEHOLDERS) & set(self.parameters):
            yield ("parameters", name), "this name is reserved"
        texts: list[Problem] = []
        for number, step in enumerate(self.steps):
            texts += [(("steps", number, "run", at), word) for at, word in enumerate(step.run)]
            texts.append((("steps", number, "cwd"), step.cwd))
        texts += [(("tools", n, "output"), t.output) for n, t in self.tools.items() if t.output]
        for where, text in texts:
            for name in _PLACEHOLDER.findall(text):
                if name not in known:
                    yield where, unknown("placeholder", name, known)

    @property
    def paths(self) -> tuple[str, ...]:
        """Parameters that name folders."""
        return tuple(name for name, given in self.parameters.items() if given.kind == "path")

    def version(self, label: str | None) -> tuple[str, Version]:
        """Return the version with this label, or the default, and its label. Raises ConfigError."""
        label = label or self.default_version
        if label not in self.versions:
            raise ConfigError(unknown("version", label, self.versions, where=f" of {self.product}"))
        return label, self.versions[label]

    def tools_of(self, version: Version) -> tuple[str, ...]:
        """Return the tools of a version."""
        return version.tools or tuple(self.tools)


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Replace ``{name}`` by its value. Unknown names stay unchanged."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def find_spec(target: str, product: str, lab_root: Path | None) -> tuple[BuildSpec, Path]:
    """Find the spec of a product for a target; return it with its file.

    Raises ConfigError with the most similar name, or if the file is wrong.
    """
    paths = _spec_paths(target, lab_root)
    if product not in paths:
        raise ConfigError(
            unknown("product", product, paths, where=f" for target {target}"),
            hint=f"a product is a file toolchains/{SHARED}/PRODUCT.yaml",
        )
    path = paths[product]
    spec = load(path, BuildSpec)
    if spec.product != product:
        raise ConfigError(f"{path}: product: must be '{product}', the file's name")
    return spec, path


def _spec_paths(target: str, lab_root: Path | None) -> dict[str, Path]:
    """Product -> file; of several files, the nearest to the lab and the target."""
    found: dict[str, Path] = {}
    for folder in toolchain_folders(lab_root):
        for place in (folder / target, folder / SHARED):
            for path in sorted(place.glob("*.yaml")):
                if path.name != "target.yaml":
                    found.setdefault(path.stem, path)
    return found
