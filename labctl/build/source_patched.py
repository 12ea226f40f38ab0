"""Patches: changes of a source that lie beside the build specs.

``<toolchains>/<target>/patches/<product>/*.patch`` and, for every target,
``<toolchains>/products/patches/<product>/*.patch``; in a folder below that has a version's label,
for that version alone. Shared ones are applied first, each kind in the order of the names; of
several files of one name the nearest to the lab wins.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from labctl import process
from labctl.build.manifest import PatchIdentity, SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.source import GIT_SECONDS, Source, fetching, keep
from labctl.build.spec import SHARED
from labctl.config.target import toolchain_folders
from labctl.errors import ConfigError
from labctl.files import host_reads, host_writes, sha256_file

LOCK_SECONDS = 900.0


@dataclass(frozen=True)
class Patch:
    """One patch file."""

    path: Path
    name: str
    """Its name below the folder of toolchains."""
    sha256: str


def find_patches(target: str, product: str, label: str, lab_root: Path | None) -> list[Patch]:
    """Return the patches of a product's version for a target, in the order of their application."""
    found: list[Patch] = []
    for owner in (SHARED, target):
        for part in ((product,), (product, label)):
            below = Path(owner, "patches", *part)
            named: dict[str, Path] = {}
            for folder in toolchain_folders(lab_root):
                for path in (folder / below).glob("*.patch"):
                    named.setdefault(path.name, path)
            for name in sorted(named):
                with host_reads(named[name]):
                    found.append(Patch(named[name], str(below / name), sha256_file(named[name])))
    return found


class Patched(Source):
    """A source with patches; a copy of it that is kept in the cache."""

    def __init__(self, inner: Source, patches: Sequence[Patch]):
        self.inner = inner
        self.patches = patches
        names = tuple(PatchIdentity(name=patch.name, sha256=patch.sha256) for patch in patches)
        self.identity: SourceIdentity = inner.identity.model_copy(update={"patches": names})

    def committed(self) -> datetime | None:
        """Return that of the source that is patched."""
        return self.inner.committed()

    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the patched tree. Raises ConfigError if a patch does not apply, ToolMissing."""
        if self.home.is_dir():
            return self.home
        tree = self.inner.fetch(on_progress)
        with fetching(self.home, timeout=LOCK_SECONDS) as scratch:
            if scratch is not None:
                copy = scratch / "tree"
                with host_writes(copy):
                    shutil.copytree(
                        tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".git")
                    )
                for patch in self.patches:
                    on_progress(BuildProgress(Step.SOURCE, f"apply {patch.name}"))
                    _apply(patch, copy)
                self.inner.verify_unchanged()
                keep(copy, self.home)
        return self.home

    def verify_unchanged(self) -> None:
        """Nothing changes what lies in the cache."""


def _apply(patch: Patch, tree: Path) -> None:
    # Inside a repository git would take the paths of a patch for that repository's.
    environment = {"GIT_CEILING_DIRECTORIES": str(tree.parent), "LC_ALL": "C"}
    words = ["git", "-C", str(tree), "apply", "--whitespace=nowarn", str(patch.path)]
    done = process.run(words, timeout=GIT_SECONDS, env={**os.environ, **environment})
    if done.exit_status != 0:
        raise ConfigError(
            f"patch {patch.path} does not apply to the source",
            hint="a patch for one version alone belongs into a folder with the version's label",
            details=done.tail(12) or None,
        )
