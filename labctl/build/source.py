"""Where source code comes from, and what proves which source it is."""

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from labctl import process
from labctl.build.progress import OnProgress
from labctl.errors import ConfigError
from labctl.files import cache_dir, host_reads, host_writes, locked, sha256_file, sync_directory

GIT_SECONDS = 60.0


class SourceIdentity(BaseModel):
    """Which source it is. ``commit`` or ``sha256`` is there, or both."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    kind: Literal["package", "git", "folder"]
    location: str
    """Package and release, address of the repository, or path of the folder."""
    subdirectory: str | None = None
    """The part of it that is the source."""
    sha256: str | None = None
    """Of the archive, or of all of a folder's files."""
    commit: str | None = None
    """Git commit."""
    dirty: bool | None = None
    """Whether a folder differs from its commit; ``None`` where there is no commit."""

    @property
    def revision(self) -> str:
        """A short word for it: the commit's first digits, or the hash's."""
        if self.commit:
            return self.commit[:7] + ("-dirty" if self.dirty else "")
        return f"{self.kind}-{(self.sha256 or '')[:8]}"

    @property
    def digest(self) -> str:
        """SHA-256 of what the bytes of the source depend on; its place is not among it."""
        content = [self.subdirectory, self.sha256 or self.commit]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class Source(ABC):
    """A source that is identified, and fetched only when something has to be built."""

    identity: SourceIdentity

    @property
    def home(self) -> Path:
        """Where its folder is, or will be once it is fetched."""
        return sources_dir() / self.identity.digest

    @abstractmethod
    def fetch(self, on_progress: OnProgress) -> Path:
        """The folder with the source, fetched and verified when it is not here yet."""

    def verify_unchanged(self) -> None:  # noqa: B027 - nothing changes what lies in the cache
        """Raise ConfigError when the source is no longer what it was when identified."""


def sources_dir() -> Path:
    """Where fetched sources are kept."""
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
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)


def keep(tree: Path, home: Path) -> None:
    """Make a whole source tree appear at ``home``, at once."""
    tree.rename(home)
    sync_directory(home.parent)


class Folder(Source):
    """A folder of the user's, built where it is."""

    def __init__(self, path: Path):
        with host_reads(path):
            if not path.is_dir():
                raise ConfigError(
                    f"no source folder {path}" if not path.exists() else f"{path} is not a folder"
                )
        self.path = path.resolve()
        self.identity = self._identify()

    @property
    def home(self) -> Path:
        """The folder itself."""
        return self.path

    def fetch(self, on_progress: OnProgress) -> Path:  # noqa: ARG002 - nothing to wait for
        """The folder itself."""
        return self.path

    def verify_unchanged(self) -> None:
        """Raise ConfigError when a file was edited during the build."""
        if self._identify().sha256 != self.identity.sha256:
            raise ConfigError(
                f"{self.path} was changed while it was being built",
                hint="build again when the source is at rest",
            )

    def _identify(self) -> SourceIdentity:
        commit = _git_commit(self.path)
        dirty = None if commit is None else bool(_git(self.path, "status", "--porcelain"))
        names = _tracked(self.path) if commit else _walk(self.path)
        return SourceIdentity(
            kind="folder",
            location=str(self.path),
            sha256=_tree_hash(self.path, names),
            commit=commit,
            dirty=dirty,
        )


def _tree_hash(root: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        path = root / name
        if path.is_symlink():
            content = f"-> {path.readlink()}"
        elif path.is_file():
            content = sha256_file(path)
        else:
            continue  # a folder, or deleted in the work tree
        digest.update(json.dumps([name, content]).encode())
    return digest.hexdigest()


def _walk(root: Path) -> list[str]:
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    ]


def _tracked(root: Path) -> list[str]:
    """Files that belong to the source: tracked, or new and not ignored."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.decode(errors="surrogateescape").split("\0") if name]


def _git(folder: Path, *words: str) -> bytes:
    # "git status" would otherwise write into the user's repository
    argv = ["git", "--no-optional-locks", "-C", str(folder), *words]
    done = process.run(argv, timeout=GIT_SECONDS)
    if done.exit_status != 0:
        raise ConfigError(f"git cannot read {folder}", details=done.tail())
    return done.stdout


def _git_commit(folder: Path) -> str | None:
    """The commit of a work tree whose root is ``folder``, else ``None``."""
    if not (folder / ".git").exists():
        return None
    done = process.run(["git", "-C", folder, "rev-parse", "--verify", "HEAD"], timeout=GIT_SECONDS)
    return done.text.strip() if done.exit_status == 0 else None
