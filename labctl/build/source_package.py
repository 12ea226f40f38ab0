"""Source archives of the Python package index.

pip checks the pinned hash before it opens the archive; labctl checks it again before unpacking.
"""

import os
from pathlib import Path

from labctl import pip, process
from labctl.build.manifest import SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.source import Source, fetching, keep
from labctl.build.source_archive import unpack
from labctl.build.spec import PackageSource
from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.file_hashes import sha256_file

FETCH_SECONDS = 900.0
#: Time (s) to wait for another labctl that fetches the same archive.
LOCK_SECONDS = FETCH_SECONDS + 300


class Package(Source):
    """A pinned release of a package; kept unpacked in the cache under its hash."""

    def __init__(self, pinned: PackageSource):
        self.pinned = pinned
        self.identity = SourceIdentity(
            kind="package",
            location=f"{pinned.package}=={pinned.release}",
            subdirectory=pinned.subdirectory,
            sha256=pinned.sha256,
            commit=pinned.commit,
        )

    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the unpacked source.

        Raises ToolMissing, HostError, HostTimeout, IntegrityError if the archive is not the pinned
        one, ConfigError if it lacks what the spec names.
        """
        home = self.home
        if not home.is_dir():
            on_progress(BuildProgress(Step.SOURCE, f"fetch {self.identity.location}"))
        with fetching(home, timeout=LOCK_SECONDS) as scratch:
            if scratch is not None:
                self._fetch_into(home, scratch, on_progress)
        return home

    def _fetch_into(self, home: Path, scratch: Path, on_progress: OnProgress) -> None:
        archive = self._download(scratch)
        found = sha256_file(archive)
        if found != self.pinned.sha256:
            raise self._wrong_hash(f"it has {found}")
        on_progress(BuildProgress(Step.SOURCE, f"unpack {archive.name}"))
        tree = unpack(archive, scratch / "tree", archive.name) / (self.pinned.subdirectory or "")
        if not tree.is_dir():
            raise ConfigError(f"{archive.name} has no folder {self.pinned.subdirectory!r}")
        self._prove_commit(tree)
        if (tree / ".git").is_file():
            (tree / ".git").unlink()  # a submodule's .git: the folder that it names is not kept
        keep(tree, home)

    def _download(self, scratch: Path) -> Path:
        pinned = self.pinned
        wanted = scratch / "wanted.txt"
        wanted.write_text(
            f"{self.identity.location} --hash=sha256:{pinned.sha256}\n", encoding="utf-8"
        )
        checked = ("--require-hashes", "--progress-bar", "off", "--no-binary", pinned.package)
        where = ("--dest", str(scratch / "archive"), "--requirement", str(wanted))
        done = process.run(
            pip.download(*checked, *where),
            timeout=FETCH_SECONDS,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(scratch)},
        )
        if done.exit_status != 0:
            raise self._explain(done)
        archives = list((scratch / "archive").glob("*.tar.gz"))
        if len(archives) != 1:
            raise HostError(
                f"pip fetched {len(archives)} archives of {self.identity.location}, not 1",
                details=done.tail(),
            )
        return archives[0]

    def _explain(self, done: process.Completed) -> HostError | IntegrityError:
        output = (done.stdout + done.stderr).decode(errors="replace")
        what = f"cannot fetch {self.identity.location} with pip"
        if "DO NOT MATCH THE HASHES" in output:
            return self._wrong_hash(None, done.tail(12))
        return pip.host_fault(output, what) or HostError(
            what,
            hint="is the network there? pip's configured index is used (`pip config list`)",
            details=done.tail(12),
        )

    def _wrong_hash(self, found: str | None, details: str | None = None) -> IntegrityError:
        detail = f": {found}" if found else ""
        return IntegrityError(
            f"the archive of {self.identity.location} is not the pinned one, "
            f"sha256 {self.pinned.sha256}{detail}",
            hint="the download is damaged, or the index serves another file under this name",
            details=details,
        )

    def _prove_commit(self, tree: Path) -> None:
        if self.pinned.commit is None:
            return
        found = head_commit(tree)
        if found != self.pinned.commit:
            raise ConfigError(
                f"{self.identity.location} holds commit {found or 'unknown'}, "
                f"but the build spec says {self.pinned.commit}"
            )


def head_commit(tree: Path) -> str | None:
    """Return the HEAD commit of a work tree; read without git, which may be missing.

    Format: gitrepository-layout(5). In a submodule, ``.git`` is a file that names the folder.
    """
    try:
        git = tree / ".git"
        if git.is_file():
            git = tree / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (git / name).is_file():
            return (git / name).read_text(encoding="utf-8").strip()
        packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
