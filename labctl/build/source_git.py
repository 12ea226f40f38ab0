"""Source from a git repository, at one commit, without its history."""

import os
import re
from datetime import datetime
from pathlib import Path

from labctl import process
from labctl.build.manifest import SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.source import GIT_SECONDS, Source, commit_time, fetching, keep
from labctl.errors import ConfigError, HostError, tells_full_disk
from labctl.process import without_password

FETCH_SECONDS = 1800.0

_NETWORK = re.compile(
    r"Could not resolve host|Connection (?:refused|timed out|reset)|Network is unreachable"
    r"|Failed to connect|unable to access|early EOF|Could not read from remote",
    re.IGNORECASE,
)
_NOT_THERE = re.compile(r"does not (?:exist|appear to be a git repository)|not found")


class Repository(Source):
    """A repository at a tag, a branch or a full commit; kept in the cache under its commit."""

    def __init__(self, address: str, ref: str):
        for word, what in ((address, "the address of a repository"), (ref, "a git ref")):
            if not word or word.startswith("-") or not word.isprintable() or " " in word:
                raise ConfigError(f"{word!r} is not {what}")
        # A relative path would mean another repository once git runs elsewhere.
        self.address = str(Path(address).resolve()) if Path(address).is_dir() else address
        self.shown = without_password(self.address)
        self.ref = ref
        self.identity = SourceIdentity(
            kind="git", location=without_password(address), commit=self._resolve()
        )

    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the checked-out tree. Raises ConfigError, HostError, HostTimeout."""
        home = self.home
        if home.is_dir():
            return home
        on_progress(BuildProgress(Step.SOURCE, f"fetch {self.ref} of {self.shown}"))
        with fetching(home, timeout=FETCH_SECONDS) as scratch:
            if scratch is not None:
                self._fetch_into(home, scratch / "tree")
        return home

    def committed(self) -> datetime | None:
        """Return the time of the commit, once it is fetched."""
        return commit_time(self.home) if self.home.is_dir() else None

    def _resolve(self) -> str:
        """Return the ref's present commit."""
        if re.fullmatch(r"[0-9a-f]{40}", self.ref):
            return self.ref
        # "^{}" is the commit that an annotated tag points at.
        patterns = (self.ref, f"{self.ref}^{{}}")
        listed = self._git("ls-remote", "--", self.address, *patterns, timeout=GIT_SECONDS).text
        found: dict[str, str] = {}
        for line in listed.splitlines():
            commit, _, name = line.partition("\t")
            found[name] = commit
        for name in (f"refs/tags/{self.ref}", f"refs/heads/{self.ref}", self.ref):
            if meant := found.get(f"{name}^{{}}") or found.get(name):
                return meant
        raise ConfigError(
            f"{self.shown} has no tag or branch {self.ref!r}",
            hint="a commit has to be given with all its 40 digits",
        )

    def _fetch_into(self, home: Path, tree: Path) -> None:
        commit = self.identity.commit
        assert commit is not None
        self._git("init", "--quiet", str(tree), timeout=GIT_SECONDS)
        shallow = ["fetch", "--quiet", "--depth", "1", "--", self.address, commit]
        self._git("-C", str(tree), *shallow, timeout=FETCH_SECONDS)
        checkout = ["checkout", "--quiet", "--detach", "FETCH_HEAD"]
        self._git("-C", str(tree), *checkout, timeout=FETCH_SECONDS)
        keep(tree, home)

    def _git(self, *words: str, timeout: float) -> process.Completed:
        # What lies in LFS would be fetched from wherever the repository says.
        quiet = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
        environment = {**os.environ, **quiet}
        done = process.run(["git", *words], timeout=timeout, env=environment)
        if done.exit_status == 0:
            return done
        output = done.tail(8).replace(self.address, self.shown)
        if tells_full_disk(output):
            raise HostError(f"cannot fetch {self.shown}: the disk is full", details=output)
        if _NETWORK.search(output) and not _NOT_THERE.search(output):
            raise HostError(
                f"cannot reach {self.shown}", hint="is the network there?", details=output
            )
        raise ConfigError(f"git cannot fetch {self.ref!r} of {self.shown}", details=output)
