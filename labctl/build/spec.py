"""Build specs: what a product is made of, as data.

A spec is ``toolchains/<target>/<product>.yaml``, for this target alone, or
``toolchains/products/<product>.yaml``, for every target that has none of its own. A lab's own
folder wins over the one that comes with labctl.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from labctl.config.document import StrictModel, load, refuse_all
from labctl.config.names import unknown
from labctl.config.target import toolchain_folders
from labctl.config.types import HostPath, Line, Name, Sha256, Word
from labctl.errors import ConfigError

#: The folder of specs that suit every target.
SHARED = "products"

Definition = bool | int | str
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class ElfKind(StrEnum):
    """What a built file has to be."""

    STATIC_EXECUTABLE = "static-executable"
    SHARED_OBJECT = "shared-object"


class PackageSource(StrictModel):
    """A source archive of the Python package index, pinned by its hash."""

    package: Word
    """Name of the package."""
    release: Word
    """Its release."""
    sha256: Sha256
    """SHA-256 of the release's source archive."""
    subdirectory: HostPath | None = None
    """The part of the archive that is the source."""
    commit: Commit | None = None
    """Git commit that the archive's own .git must prove."""


class GitSource(StrictModel):
    """A git repository at one commit, tag or branch."""

    git: Line
    """Address of the repository."""
    ref: Line
    """Tag, branch or full commit."""


class FolderSource(StrictModel):
    """A folder that lies beside the spec."""

    folder: HostPath
    """The folder; a relative path begins at the spec's own folder."""


class Version(StrictModel):
    """One version of a product."""

    source: PackageSource | GitSource | FolderSource
    """Where its source comes from."""
    definitions: dict[Word, Definition] = Field(default_factory=dict)
    """CMake definitions of this version alone."""
    tools: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    """The tools that it has, in the order of the summary; without it, all tools of the product."""


class ToolSpec(StrictModel):
    """One file that is built."""

    smoke: tuple[Line, ...] | None = None
    """Arguments with which it ends quickly and well; without them it is not started."""
    smoke_status: int = 0
    """The exit status that the smoke run has to have."""
    elf: ElfKind = ElfKind.STATIC_EXECUTABLE
    """What the file has to be."""
    sources: tuple[HostPath, ...] = ()
    """C files of the source, for the builder ``compile``."""
    flags: tuple[Line, ...] = ()
    """The compiler's flags, for the builder ``compile``."""


class BuildSpec(StrictModel):
    """How a product is built."""

    product: Word
    """The name of the product: that of the file."""
    description: Line
    """The product in a few words."""
    licence: Word | None = None
    """SPDX identifier of the source's licence, where it is not labctl's own source."""
    builder: Literal["cmake", "compile"]
    """``cmake``: CMake and Ninja; ``compile``: one call of the compiler for each tool."""
    default_version: Name
    """The version that is built when none is named."""
    versions: Annotated[dict[Name, Version], Field(min_length=1)]
    """Versions by label."""
    definitions: dict[Word, Definition] = Field(default_factory=dict)
    """CMake definitions; ``{revision}`` stands for the short commit or content hash."""
    zig_target: Word | None = None
    """Zig's target triple where it is not that of the target (a library for the host's libc)."""
    tools: Annotated[dict[Word, ToolSpec], Field(min_length=1)]
    """What can be built, by name."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.default_version not in self.versions:
            what = unknown("version", self.default_version, self.versions)
            problems.append((("default_version",), what))
        for label, version in self.versions.items():
            for index, tool in enumerate(version.tools or ()):
                if tool not in self.tools:
                    where = ("versions", label, "tools", index)
                    problems.append((where, unknown("tool", tool, self.tools)))
        for name, tool_spec in self.tools.items():
            if (self.builder == "compile") != bool(tool_spec.sources):
                what = "are what the builder 'compile' needs, and it alone"
                problems.append((("tools", name, "sources"), what))
        if problems:
            raise refuse_all(problems)
        return self

    def version(self, label: str | None) -> tuple[str, Version]:
        """The version of that label, or the default, with its label. Raises ConfigError."""
        label = label or self.default_version
        if label not in self.versions:
            raise ConfigError(unknown(f"version of {self.product}", label, self.versions))
        return label, self.versions[label]

    def tools_of(self, version: Version) -> tuple[str, ...]:
        """The tools that a version has."""
        return version.tools or tuple(self.tools)


def find_spec(target: str, product: str, lab_root: Path | None) -> tuple[BuildSpec, Path]:
    """The spec of a product for a target, and its file.

    Raises ConfigError with the nearest name, or when the file is wrong.
    """
    paths = _spec_paths(target, lab_root)
    if product not in paths:
        raise ConfigError(
            unknown(f"product for target {target}", product, paths),
            hint=f"a product is a file toolchains/{SHARED}/PRODUCT.yaml",
        )
    path = paths[product]
    spec = load(path, BuildSpec)
    if spec.product != product:
        raise ConfigError(f"{path}: product: must be '{product}', the file's name")
    return spec, path


def product_names(target: str, lab_root: Path | None) -> list[str]:
    """All products that can be built for a target, sorted."""
    return sorted(_spec_paths(target, lab_root))


def _spec_paths(target: str, lab_root: Path | None) -> dict[str, Path]:
    """Product -> file; of several files the nearest to the lab and the target."""
    found: dict[str, Path] = {}
    for folder in toolchain_folders(lab_root):
        for place in (folder / target, folder / SHARED):
            for path in sorted(place.glob("*.yaml")):
                if path.name != "target.yaml":
                    found.setdefault(path.stem, path)
    return found
