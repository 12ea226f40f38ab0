"""Source from a git repository, at one commit, without its history."""

import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from labctl import process
from labctl.build.manifest import SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.source import GIT_SECONDS, Source, commit_time, fetching, keep, run_git
from labctl.errors import ConfigError, HostError, tells_full_disk
from labctl.files import state_dir
from labctl.process import without_password

FETCH_SECONDS = 1800.0

_NETWORK = re.compile(
    r"Could not resolve host|Connection (?:refused|timed out|reset)|Network is unreachable"
    r"|Failed to connect|unable to access|early EOF|Could not read from remote",
    re.IGNORECASE,
)
_OF_SERVER = re.compile(r"remote: |(?:fatal: )?remote error: ", re.IGNORECASE)
_NOT_THERE = re.compile(r"does not (?:exist|appear to be a git repository)|not found")


#: The attributes of a tree name filters, which only settings can define. Without settings the files
#: are as committed on every host; of what is in LFS there are the pointers.
_NO_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_PARAMETERS": "",
}


def local_repository(address: str) -> Path | None:
    """Return the folder or bundle of this host that an address means; None for a server's.

    As git reads it: with a colon before any slash it is a URL or ``host:path``, whatever is here.
    """
    if address.startswith("file://"):
        return Path(unquote(address.removeprefix("file://")))
    if ":" in address.partition("/")[0] or not os.path.lexists(address):
        return None
    return Path(address)


class Repository(Source):
    """A repository at a tag, a branch or a full commit; kept in the cache under its commit."""

    def __init__(self, address: str, ref: str):
        for word, what in ((address, "the address of a repository"), (ref, "a git ref")):
            if not word or word.startswith("-") or not word.isprintable() or " " in word:
                raise ConfigError(f"{word!r} is not {what}")
        # A relative path would mean another repository once git runs elsewhere. A bundle is a file.
        folder = None if address.startswith("file://") else local_repository(address)
        self.address = address if folder is None else str(folder.resolve())
        self.shown = without_password(self.address)
        self.ref = ref
        self.identity = SourceIdentity(
            kind="git", location=without_password(address), commit=self._resolve()
        )

    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the checked-out tree. Raises ConfigError, HostError, HostTimeout."""
        home = self.home
        if not home.is_dir():
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
        self._git("init", "--quiet", "--template=", str(tree), timeout=GIT_SECONDS)
        shallow = ["fetch", "--quiet", "--depth", "1", "--", self.address, commit]
        self._git("-C", str(tree), *shallow, timeout=FETCH_SECONDS)
        checkout = ["checkout", "--quiet", "--detach", "FETCH_HEAD"]
        self._git("-C", str(tree), *checkout, timeout=FETCH_SECONDS, settings=_NO_SETTINGS)
        keep(tree, home)

    def _git(
        self, *words: str, timeout: float, settings: Mapping[str, str] | None = None
    ) -> process.Completed:
        # Git runs in a folder of the state, which may lie in a repository.
        unasked = {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_CEILING_DIRECTORIES": str(state_dir()),
        }
        done = run_git(*words, timeout=timeout, settings={**unasked, **(settings or {})})
        if done.exit_status == 0:
            return done
        output = done.tail(8).replace(self.address, self.shown)
        # What the server says is nothing about this host.
        own = "\n".join(line for line in output.splitlines() if not _OF_SERVER.match(line))
        if tells_full_disk(own):
            raise HostError(f"cannot fetch {self.shown}: the disk is full", details=output)
        if _NETWORK.search(own) and not _NOT_THERE.search(own):
            raise HostError(
                f"cannot reach {self.shown}", hint="is the network there?", details=output
            )
        raise ConfigError(f"git cannot fetch {self.ref!r} of {self.shown}", details=output)
