"""Sources of code, the proof of their identity, and their patches.

Patches lie beside the build specs: ``<toolchains>/<target>/patches/<product>/*.patch`` and, for
every target, ``<toolchains>/products/patches/<product>/*.patch``. A subfolder with the label of a
version has patches for that version only. Shared patches are applied first, each kind in the order
of the names. Of files with the same name, the one nearest to the lab wins.
"""

import hashlib
import json
import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
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
from labctl.file_hashes import settled_stamp, sha256_file
from labctl.files import host_reads, host_writes, open_whole, sync_directory
from labctl.folders import cache_dir
from labctl.locks import locked
from labctl.removal import remove_tree

GIT_SECONDS = 60.0
#: git without hooks and fsmonitor: a repository's settings can name programs for them. Without the
#: first option, "git status" would write into the user's repository.
_GIT = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
)
#: Variables by which the caller (e.g. a hook) may name another repository, or a part of it: those
#: of "git rev-parse --local-env-vars", except settings.
_OF_ONE_REPOSITORY = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_TEMPLATE_DIR"),
    *("GIT_PREFIX", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_REPLACE_REF_BASE"),
    *("GIT_INTERNAL_SUPER_PREFIX", "GIT_IMPLICIT_WORK_TREE", "GIT_NO_REPLACE_OBJECTS"),
}
#: Maximum length of a path.
PATH_BYTES = 4096
#: Time (s) to wait for another process that patches the same source.
_PATCH_SECONDS = 900.0


class Source(ABC):
    """A source with a known identity; it is fetched only when something has to be built."""

    identity: SourceIdentity

    @property
    def home(self) -> Path:
        """Folder of the source, also before it is fetched."""
        return sources_dir() / self.identity.digest

    @abstractmethod
    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the folder with the source; fetch and verify the source if it is missing here."""

    def committed(self) -> datetime | None:
        """Return the time of its commit, once it is fetched; None if unknown."""
        return None

    def verify_unchanged(self) -> None:  # noqa: B027 - a source in the cache does not change
        """Raise ConfigError if the source has changed since it was identified."""


def sources_dir() -> Path:
    """Folder of the fetched sources."""
    return cache_dir() / "sources"


@contextmanager
def fetching(home: Path, *, timeout: float) -> Iterator[Path | None]:
    """Give the first caller a scratch folder to make ``home`` in; others wait and get ``None``.

    :func:`keep` moves the finished source to ``home``. What a killed fetch left is removed. A build
    takes its own lock before it calls this, also if the source exists: to remove a source, labctl
    locks the source and then looks for locks of builds.
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
    """Move a complete source tree to ``home``, in one step."""
    tree.rename(home)
    sync_directory(home.parent)


class Sdk(Source):
    """A tree that the user supplies on the build machine. labctl neither reads nor sends it.

    Hashing it would take too long (an OpenHarmony tree has a hundred gigabytes), so a build from it
    is never taken from the cache.
    """

    def __init__(self, path: str):
        self.identity = SourceIdentity(kind="kit", location=path)

    def fetch(self, on_progress: OnProgress) -> Path:  # noqa: ARG002 - nothing to wait for
        """Return an empty folder, since a builder must have something to send."""
        with fetching(self.home, timeout=_PATCH_SECONDS) as scratch, host_writes(self.home):
            if scratch is not None:
                self.home.mkdir()
        return self.home


class Folder(Source):
    """A folder of the user, built in place.

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
        """Return the time of the commit that is checked out, also if files were changed since."""
        return commit_time(self.path) if self.identity.commit else None

    def verify_unchanged(self) -> None:
        """Raise ConfigError if a file was edited during the build."""
        if self._identify().sha256 != self.identity.sha256:
            raise ConfigError(
                f"{self.path} was changed while it was being built",
                hint="build again when the source is at rest",
            )

    def _identify(self) -> SourceIdentity:
        if not self._read_git:
            sha256 = _tree_hash(self.path, _walk(self.path, repositories(self.path)))
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
    """Relative names of a source's files; in a git work tree, without files that git ignores."""
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


def _walk(root: Path, without: Sequence[str] = ()) -> list[str]:
    """List the files below a folder; ``without``: relative names to leave out."""
    entries = entries_below(root, {f"{root}/{name}" for name in without})
    found = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return [os.path.relpath(e.path, root) for e in found if e.is_symlink() or e.is_file()]


def entries_below(root: Path, without: Container[str] = ()) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder, which may be nested too deep for ``rglob``."""
    waiting = [str(root)]
    with host_reads(root):
        while waiting:
            with suppress(PermissionError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.path not in without:
                        yield entry
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)


def _copy(tree: Path, copy: Path) -> None:
    """Copy a source unchanged, without git's own files; ``shutil.copytree`` would recurse."""
    copy.mkdir()
    for entry in entries_below(tree):
        name = os.path.relpath(entry.path, tree)
        if ".git" in name.split("/"):
            continue
        if entry.is_dir(follow_symlinks=False):
            (copy / name).mkdir()
        else:
            shutil.copy2(entry.path, copy / name, follow_symlinks=False)


def repositories(root: Path) -> list[str]:
    """Return the relative names of git's own files and folders in a folder, outermost only.

    Their settings hold the tokens with which a CI fetched a source. ``.git`` may be a link, or a
    file that names the folder: gitrepository-layout(5).
    """
    found = {
        name for entry in entries_below(root) if entry.name == ".git" for name in _meant(entry.path)
    }
    inside = {os.path.relpath(path, os.path.realpath(root)) for path in found}
    return sorted(
        name
        for name in inside
        if name.partition("/")[0] not in (".", "..")
        and not any(str(parent) in inside for parent in Path(name).parents)
    )


def _meant(git: str) -> set[str]:
    """Return the real paths that a ``.git`` refers to."""
    found: set[str] = set()
    waiting = [git]
    while waiting:
        path = os.path.realpath(waiting.pop())
        if path in found or not os.path.exists(path):  # noqa: PTH110 - False also for a loop
            continue
        found.add(path)
        for file, before in ((path, b"gitdir:"), (f"{path}/commondir", b"")):
            with suppress(OSError), open_whole(Path(file)) as opened:
                text = opened.read(PATH_BYTES)
                if text.startswith(before) and b"\0" not in text:
                    named = os.fsdecode(text.removeprefix(before).strip())
                    waiting.append(f"{Path(file).parent}/{named}")
    return found


def _tracked(root: Path) -> list[str]:
    """Files of the source, also of submodules: tracked, or new and not ignored."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    found: list[str] = []
    for name in listed.decode(errors="surrogateescape").split("\0"):
        path = root / name
        if path.is_dir() and not path.is_symlink():
            # For a repository inside a repository, git lists its name, but not its files.
            found += [f"{name.rstrip('/')}/{inner}" for inner in source_files(path)] if name else []
        elif name:
            found.append(name)
    return found


def run_git(
    *words: str, timeout: float = GIT_SECONDS, settings: Mapping[str, str] | None = None
) -> process.Completed:
    """Run git on the repository that its words name, and on no other.

    ``settings``: additional variables. Raises ToolMissing, HostTimeout, HostError.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in _OF_ONE_REPOSITORY
    }
    environment |= {"LC_ALL": "C", **(settings or {})}
    return process.run([*_GIT, *words], timeout=timeout, env=environment)


def _git(folder: Path, *words: str) -> bytes:
    done = run_git("-C", str(folder.absolute()), *words)
    if done.exit_status != 0:
        raise ConfigError(f"git cannot read {folder}", details=done.tail())
    return done.stdout


def _git_commit(folder: Path) -> str | None:
    """Return the commit of a work tree with root ``folder``; ``None`` if it has none."""
    if not (folder / ".git").exists():
        return None
    done = run_git("-C", str(folder.absolute()), "rev-parse", "--verify", "HEAD")
    return done.text.strip() if done.exit_status == 0 else None


def commit_time(folder: Path) -> datetime | None:
    """Return the time of the commit that is checked out; None without git. Raises ConfigError."""
    if shutil.which("git") is None:
        return None  # a tree in the cache is used without git
    shown = _git(folder, "show", "--no-patch", "--format=%cI", "HEAD")
    return datetime.fromisoformat(shown.decode().strip())


@dataclass(frozen=True)
class Patch:
    """One patch file."""

    path: Path
    name: str
    """Name below the toolchains folder."""
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
    """A source with patches; a patched copy is kept in the cache."""

    def __init__(self, inner: Source, patches: Sequence[Patch]):
        self.inner = inner
        self.patches = patches
        names = tuple(PatchIdentity(name=patch.name, sha256=patch.sha256) for patch in patches)
        self.identity: SourceIdentity = inner.identity.model_copy(update={"patches": names})

    def committed(self) -> datetime | None:
        """Return the time of the commit of the patched source; None if unknown."""
        return self.inner.committed()

    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the patched tree. Raises ConfigError if a patch does not apply, ToolMissing."""
        if not self.home.is_dir():
            self.inner.fetch(on_progress)  # slow; other processes need not wait for it
        with fetching(self.home, timeout=_PATCH_SECONDS) as scratch:
            if scratch is not None:
                tree = self.inner.fetch(on_progress)
                copy = scratch / "tree"
                with host_writes(copy):
                    _copy(tree, copy)
                for patch in self.patches:
                    on_progress(BuildProgress(Step.SOURCE, f"apply {patch.name}"))
                    _apply(patch, copy)
                self.inner.verify_unchanged()
                keep(copy, self.home)
        return self.home

    def verify_unchanged(self) -> None:
        """Do nothing: a source in the cache does not change."""


def _apply(patch: Patch, tree: Path) -> None:
    # Inside a repository, git would read the paths of a patch relative to that repository.
    outside = {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    words = ["-C", str(tree), "apply", "--whitespace=nowarn", str(patch.path)]
    done = run_git(*words, settings=outside)
    if done.exit_status != 0:
        raise ConfigError(
            f"patch {patch.path} does not apply to the source",
            hint="a patch for one version alone belongs into a folder with the version's label",
            details=done.tail(12) or None,
        )
