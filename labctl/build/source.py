"""Sources of code, the proof of their identity, and their patches.

Patches lie beside the build specs: ``<toolchains>/<target>/patches/<product>/*.patch`` and, for
every target, ``<toolchains>/products/patches/<product>/*.patch``; in a folder below that has a
version's label, for that version alone. Shared ones are applied first, each kind in the order of
the names; of several files of one name the nearest to the lab wins.
"""

import hashlib
import json
import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from labctl import process
from labctl.build.manifest import PatchIdentity, SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.spec import SHARED
from labctl.config.target import toolchain_folders
from labctl.errors import ConfigError
from labctl.files import (
    cache_dir,
    host_reads,
    host_writes,
    locked,
    remove_tree,
    settled_stamp,
    sha256_file,
    sync_directory,
)

GIT_SECONDS = 60.0
#: Time (s) to wait for another process that patches the same source.
_PATCH_SECONDS = 900.0


class Source(ABC):
    """A source that is identified, and fetched only when something has to be built."""

    identity: SourceIdentity

    @property
    def home(self) -> Path:
        """Its folder, also before it is fetched."""
        return sources_dir() / self.identity.digest

    @abstractmethod
    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the folder with the source, fetched and verified if it is not here yet."""

    def committed(self) -> datetime | None:
        """Return the time of its commit, once it is fetched; None if unknown."""
        return None

    def verify_unchanged(self) -> None:  # noqa: B027 - nothing changes what lies in the cache
        """Raise ConfigError when the source is no longer what it was when identified."""


def sources_dir() -> Path:
    """Folder of the fetched sources."""
    return cache_dir() / "sources"


@contextmanager
def fetching(home: Path, *, timeout: float) -> Iterator[Path | None]:
    """Give the first comer a scratch folder to make ``home`` in; the others wait, and get ``None``.

    The source made there is moved to ``home`` by :func:`keep`. What a killed fetch left is removed.
    """
    with locked(home.with_name(f"{home.name}.lock"), timeout=timeout, holder="another fetch"):
        if home.is_dir():
            yield None
            return
        scratch = home.with_name(f".fetch-{home.name}")
        with host_writes(home):
            remove_tree(scratch)
            scratch.mkdir()
            try:
                yield scratch
            finally:
                remove_tree(scratch)


def keep(tree: Path, home: Path) -> None:
    """Make a whole source tree appear at ``home``, at once."""
    tree.rename(home)
    sync_directory(home.parent)


class Sdk(Source):
    """A tree that the user supplies on the machine that builds. labctl neither reads nor sends it.

    What is in it cannot be known by a hash (an OpenHarmony tree has a hundred gigabytes), so a
    build from it is never taken from the cache.
    """

    def __init__(self, path: str):
        self.identity = SourceIdentity(kind="kit", location=path)

    def fetch(self, on_progress: OnProgress) -> Path:  # noqa: ARG002 - nothing to wait for
        """Return an empty folder: a builder must have something to send."""
        with host_writes(self.home):
            self.home.mkdir(parents=True, exist_ok=True)
        return self.home


class Folder(Source):
    """A folder of the user's, built where it is.

    ``read_git``: ask git which files belong to it, if it is a work tree.
    """

    def __init__(self, path: Path, *, read_git: bool = True):
        self._read_git = read_git
        with host_reads(path):
            if not path.is_dir():
                raise ConfigError(
                    f"no source folder {path}" if not path.exists() else f"{path} is not a folder"
                )
        self.path = path.resolve()
        self.identity = self._identify()

    @property
    def home(self) -> Path:
        """Return the folder itself."""
        return self.path

    def fetch(self, on_progress: OnProgress) -> Path:  # noqa: ARG002 - nothing to wait for
        """Return the folder itself."""
        return self.path

    def committed(self) -> datetime | None:
        """Return the time of the commit that it is at, or that it was changed after."""
        return commit_time(self.path) if self.identity.commit else None

    def verify_unchanged(self) -> None:
        """Raise ConfigError when a file was edited during the build."""
        if self._identify().sha256 != self.identity.sha256:
            raise ConfigError(
                f"{self.path} was changed while it was being built",
                hint="build again when the source is at rest",
            )

    def _identify(self) -> SourceIdentity:
        if not self._read_git:
            sha256 = _tree_hash(self.path, _walk(self.path))
            return SourceIdentity(kind="folder", location=str(self.path), sha256=sha256)
        commit = _git_commit(self.path)
        dirty = None if commit is None else bool(_git(self.path, "status", "--porcelain"))
        return SourceIdentity(
            kind="folder",
            location=str(self.path),
            sha256=_tree_hash(self.path, source_files(self.path)),
            commit=commit,
            dirty=dirty,
        )


def source_files(root: Path) -> list[str]:
    """Relative names of what makes a source; of a git work tree, what git does not ignore."""
    return _tracked(root) if _git_commit(root) else _walk(root)


@lru_cache(maxsize=4096)
def _known_sha256(path: Path, _stamp: tuple[int, ...]) -> str:
    return sha256_file(path)


def _tree_hash(root: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        path = root / name
        if path.is_symlink():
            content = f"-> {path.readlink()}"
        elif path.is_file():
            stamp = settled_stamp(path)
            content = _known_sha256(path, stamp) if stamp else sha256_file(path)
            if path.stat().st_mode & stat.S_IXUSR:
                content += " may run"
        else:
            continue  # a folder, or deleted in the work tree
        digest.update(json.dumps([name, content]).encode())
    return digest.hexdigest()


def _walk(root: Path) -> list[str]:
    """List the files below a folder, which may be deeper than ``rglob`` recurses."""
    found, waiting = [], [str(root)]
    with host_reads(root):
        while waiting:
            with suppress(PermissionError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_symlink() or entry.is_file():
                        found.append(os.path.relpath(entry.path, root))
    return found


def _tracked(root: Path) -> list[str]:
    """Files that belong to the source: tracked, or new and not ignored; those of submodules too."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    found: list[str] = []
    for name in listed.decode(errors="surrogateescape").split("\0"):
        path = root / name
        if path.is_dir() and not path.is_symlink():
            # git names a repository within a repository, and says nothing of what is in it.
            found += [f"{name.rstrip('/')}/{inner}" for inner in source_files(path)] if name else []
        elif name:
            found.append(name)
    return found


def _git(folder: Path, *words: str) -> bytes:
    # "git status" would otherwise write into the user's repository
    argv = ["git", "--no-optional-locks", "-C", str(folder), *words]
    done = process.run(argv, timeout=GIT_SECONDS)
    if done.exit_status != 0:
        raise ConfigError(f"git cannot read {folder}", details=done.tail())
    return done.stdout


def _git_commit(folder: Path) -> str | None:
    """Return the commit of a work tree whose root is ``folder``, else ``None``."""
    if not (folder / ".git").exists():
        return None
    done = process.run(["git", "-C", folder, "rev-parse", "--verify", "HEAD"], timeout=GIT_SECONDS)
    return done.text.strip() if done.exit_status == 0 else None


def commit_time(folder: Path) -> datetime | None:
    """Return the time of the commit that is checked out; None without git. Raises ConfigError."""
    if shutil.which("git") is None:
        return None  # a tree that is in the cache needs none
    shown = _git(folder, "show", "--no-patch", "--format=%cI", "HEAD")
    return datetime.fromisoformat(shown.decode().strip())


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
        with fetching(self.home, timeout=_PATCH_SECONDS) as scratch:
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
