"""The result of a build: a folder of tools with a manifest that describes them.

    <cache>/artifacts/<target>/<product>-<version>-<key>/
        bin/<tool>
        manifest.json
    <cache>/artifacts/<target>/<product>-<version> -> the folder of the last build

The manifest is written last: a tool that is not in it does not exist.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from labctl.build.manifest import SCHEMA_VERSION, CompilerKind, Manifest
from labctl.errors import ConfigError, IntegrityError
from labctl.file_hashes import settled_stamp, sha256_file
from labctl.files import appearing, host_writes, write_atomic
from labctl.folders import cache_dir
from labctl.suggestions import listed, unknown

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artifact:
    """A finished build."""

    path: Path
    manifest: Manifest

    def document(self) -> dict[str, object]:
        """Return path and manifest as JSON."""
        return {"path": str(self.path), **self.manifest.model_dump(mode="json")}

    @property
    def built(self) -> datetime:
        """Time when the newest tool was built, UTC."""
        return max(tool.built for tool in self.manifest.tools.values())

    def tool(self, name: str) -> Path:
        """Return the file of a tool.

        Raises ConfigError if the artifact does not have it. Raises IntegrityError if its file is
        missing or has changed since the build.
        """
        if name not in self.manifest.tools:
            what = unknown("tool", name, self.manifest.tools, where=f" in {self.path.name}")
            raise ConfigError(what, hint=self._rebuild(name))
        if not self.has([name]):
            raise IntegrityError(f"{self._file(name)} is gone or damaged", hint=self._rebuild(name))
        return self._file(name)

    def has(self, names: Iterable[str]) -> bool:
        """Return True if the artifact has all these tools, with unchanged files."""
        return all(self._is_there(name) for name in names)

    def verify(self) -> None:
        """Raise IntegrityError unless every tool has the hash in the manifest."""
        for name in self.manifest.tools:
            self.tool(name)

    def _file(self, name: str) -> Path:
        return self.path / "bin" / name

    def _is_there(self, name: str) -> bool:
        record = self.manifest.tools.get(name)
        path = self._file(name)
        return (
            record is not None
            and path.is_file()
            and path.stat().st_size == record.size_bytes
            and sha256_file(path) == record.sha256
        )

    def _rebuild(self, tool: str) -> str:
        manifest = self.manifest
        return build_command(manifest.target, manifest.product, manifest.version, [tool])


def artifacts_dir() -> Path:
    """Folder of the artifacts."""
    return cache_dir() / "artifacts"


def read_artifact(path: Path) -> Artifact | None:
    """Read the artifact in a folder; ``None`` if it is missing or has an unknown format."""
    file = path / MANIFEST
    try:
        stamp = settled_stamp(file)
        manifest = _known_manifest(file, stamp) if stamp else _manifest(file)
    except (OSError, ValidationError):
        return None
    return Artifact(path, manifest) if manifest.schema_version == SCHEMA_VERSION else None


def _manifest(file: Path) -> Manifest:
    return Manifest.model_validate_json(file.read_bytes())


@lru_cache(maxsize=1024)
def _known_manifest(file: Path, _stamp: tuple[int, ...]) -> Manifest:
    return _manifest(file)


def publish(path: Path, manifest: Manifest, files: Mapping[str, Path]) -> Artifact:
    """Add tools to the artifact in ``path``. They exist as soon as its manifest is written.

    The caller holds the build's lock. Raises HostError.
    """
    for name, file in files.items():
        with (
            host_writes(path),
            file.open("rb") as content,
            appearing(path / "bin" / name, mode=0o755) as placed,
        ):
            shutil.copyfileobj(content, placed)
    write_atomic(path / MANIFEST, manifest.model_dump_json(indent=2) + "\n")
    return Artifact(path, manifest)


def mark_current(artifact: Artifact) -> None:
    """Make this artifact the default of its version, for :func:`find_artifact`."""
    name = f"{artifact.manifest.product}-{artifact.manifest.version}"
    link = artifact.path.parent / name
    if link.is_symlink() and link.readlink() == Path(artifact.path.name):
        return
    with (
        host_writes(link),
        tempfile.TemporaryDirectory(dir=link.parent, prefix=".link-") as scratch,
    ):
        fresh = Path(scratch) / name
        fresh.symlink_to(artifact.path.name)
        fresh.replace(link)


def find_artifact(
    target: str, product: str, version: str | None = None, *, lab_root: Path | None = None
) -> Artifact:
    """Return the artifact built last for a target, product and version (default: the spec's).

    Raises ConfigError if there is none, with the command that builds it.
    """
    return find_artifacts(target, product, version, lab_root=lab_root)[0]


def find_artifacts(
    target: str,
    product: str,
    version: str | None = None,
    *,
    lab_root: Path | None = None,
    untrusted: bool = False,
) -> list[Artifact]:
    """Return all artifacts of a target, product and version, the newest first.

    They differ in source or toolchain, and may have different tools. A version that ends with the
    first digits of a key, as the folder does (``new-0123456789ab``), selects that one artifact.
    Artifacts of untrusted sources are returned only for ``untrusted`` recipes. Raises ConfigError
    if there is none, with the existing builds of the product and the build command.
    """
    from labctl.build.spec import find_spec  # listing artifacts must not load a YAML parser
    from labctl.config.target import load_target

    load_target(target, lab_root)
    spec, _ = find_spec(target, product, lab_root)
    label = version or spec.default_version
    labelled = _in_folders(f"{target}/{product}-{label}-*")
    named = _in_folders(f"{target}/{product}-{label}")
    named = named or [a for a in labelled if a.manifest.version == label]
    current = (artifacts_dir() / target / f"{product}-{label}").resolve().name
    if named:
        if named[0].manifest.untrusted and not untrusted:
            raise ConfigError(
                f"{product} {label} is built from a source that nobody vouches for",
                hint="run it on a board that you can spare: labctl run RECIPE --untrusted",
            )
        return sorted(named, key=lambda a: (a.path.name == current, a.built), reverse=True)
    others = sorted({str(a.manifest) for a in list_artifacts() if a.manifest.product == product})
    there = f"; there is {listed(others, joiner='and')}" if others else ""
    raise ConfigError(
        f"no {product} ({label}) is built for target {target}{there}",
        hint=build_command(target, product, version)
        if label in spec.versions
        else f"the build spec has {listed(spec.versions, joiner='and')}",
    )


def other_compiler(artifact: Artifact) -> str | None:
    """Describe the difference if this host now builds with another compiler; None if it does not.

    None for an SDK, which brings its own compiler, and on a host without zig.
    """
    now = _zig_version()
    if now is None:
        return None
    toolchain = artifact.manifest.toolchain
    own = toolchain.compiler is CompilerKind.ZIG and toolchain.version == now
    if own or toolchain.compiler is CompilerKind.SDK:
        return None
    return f"with {toolchain.compiler} {toolchain.version}, and this host has zig {now}"


@lru_cache(maxsize=1)
def _zig_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ziglang")
    except PackageNotFoundError:
        return None


def build_command(
    target: str, product: str, version: str | None = None, tools: Iterable[str] = ()
) -> str:
    """Return the command that builds a product, for messages."""
    words = ["labctl", "build", "--target", target, "--product", product]
    words += ["--version", version] if version else []
    return " ".join([*words, *(word for tool in tools for word in ("--tool", tool))])


def list_artifacts() -> list[Artifact]:
    """All finished artifacts, sorted by target and name."""
    return _in_folders("*/*")


def builds_stamp() -> frozenset[tuple[str, int]]:
    """Return a value that changes whenever a build on this host is finished or removed."""
    stamps = set()
    for manifest in artifacts_dir().glob(f"*/*/{MANIFEST}"):
        with suppress(OSError):  # being removed
            stamps.add((str(manifest), manifest.stat().st_mtime_ns))
    return frozenset(stamps)


def _in_folders(pattern: str) -> list[Artifact]:
    folders = sorted(artifacts_dir().glob(f"{pattern}/{MANIFEST}"))
    found = (read_artifact(path.parent) for path in folders if not path.parent.is_symlink())
    return [artifact for artifact in found if artifact is not None]
