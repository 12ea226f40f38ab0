"""Install builds of another host of the lab on this host."""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from labctl.build.artifact import Artifact, artifacts_dir, publish, read_artifact
from labctl.build.builder import LOCK_SECONDS
from labctl.build.manifest import Manifest
from labctl.build.plan import KEY_DIGITS
from labctl.errors import ConfigError
from labctl.files import host_writes
from labctl.folders import cache_dir
from labctl.locks import locked

#: Copies the file with a SHA-256 to a path.
Fetch = Callable[[str, Path], None]


def manifest_with(artifact: Artifact, tools: Iterable[str]) -> Manifest:
    """Return the manifest of an artifact, with these tools only."""
    kept = {name: artifact.manifest.tools[name] for name in tools}
    return artifact.manifest.model_copy(update={"tools": kept})


def version_of(manifest: Manifest) -> str:
    """Return the version label for this build only, as in a recipe: ``new-0123456789ab``."""
    return f"{manifest.version}-{manifest.key[:KEY_DIGITS]}"


def is_installed(manifest: Manifest) -> bool:
    """Return True if this host has the build, with all tools that the manifest names."""
    there = read_artifact(_folder(manifest))
    return there is not None and not _missing(manifest, there)


def installed(manifest: Manifest) -> Artifact:
    """Return this host's artifact of a build. Raises ConfigError if there is none."""
    artifact = read_artifact(_folder(manifest))
    if artifact is None:
        raise ConfigError(f"{manifest.product} {version_of(manifest)} is gone from this host")
    return artifact


def install(manifest: Manifest, fetch: Fetch) -> Artifact:
    """Add a build of another host to this host's builds; existing tools stay.

    ``fetch`` verifies the bytes that it copies. Raises ConfigError if this host's build of the same
    key has other bytes; HostError, HostTimeout, and the errors of ``fetch``.
    """
    folder = _folder(manifest)
    lock = cache_dir() / "locks" / f"build-{manifest.key[:KEY_DIGITS]}.lock"
    with locked(lock, timeout=LOCK_SECONDS, holder=f"a build of {manifest.product}"):
        there = read_artifact(folder)
        known = {} if there is None else there.manifest.tools
        for name, tool in manifest.tools.items():
            if name in known and known[name].sha256 != tool.sha256:
                raise ConfigError(
                    f"{name} of {folder.name} has other bytes here than where it was submitted",
                    hint=f"build it again on one of them; the one of this host is in {folder}",
                )
        missing = _missing(manifest, there)
        with host_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(dir=folder, prefix=".install-")
        with scratch:
            files = {name: Path(scratch.name) / name for name in missing}
            for name, file in files.items():
                fetch(manifest.tools[name].sha256, file)
            tools = {**manifest.tools, **known}
            return publish(folder, manifest.model_copy(update={"tools": tools}), files)


def _missing(manifest: Manifest, there: Artifact | None) -> list[str]:
    known = {} if there is None else there.manifest.tools
    return [
        name
        for name, tool in manifest.tools.items()
        if there is None
        or name not in known
        or known[name].sha256 != tool.sha256
        or not there.has([name])
    ]


def _folder(manifest: Manifest) -> Path:
    name = f"{manifest.product}-{version_of(manifest)}"
    folder = artifacts_dir() / manifest.target / name
    if folder.parent.parent != artifacts_dir() or folder.name != name or ".." in folder.parts:
        raise ConfigError(f"{manifest.target}/{name} is no name of a build")
    return folder
