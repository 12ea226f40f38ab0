"""Source from a git repository, at one commit, without its history."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from labctl import process
from labctl.build.manifest import SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.source import GIT_SECONDS, Source, commit_time, fetching, keep, run_git
from labctl.errors import ConfigError, HostError, ServiceAway, tells_full_disk
from labctl.folders import state_dir
from labctl.process import without_password

FETCH_SECONDS = 1800.0

_NETWORK = re.compile(
    r"Could not resolve host|Connection (?:refused|timed out|reset)|Network is unreachable"
    r"|Failed to connect|unable to access|early EOF|Could not read from remote",
    re.IGNORECASE,
)
_OF_SERVER = re.compile(r"remote: |(?:fatal: )?remote error: ", re.IGNORECASE)
_NOT_THERE = re.compile(r"does not (?:exist|appear to be a git repository)|not found")


#: Attributes of a tree name filters, which only settings can define. Without settings, files are as
#: committed on every host; files in LFS are pointers.
_NO_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_PARAMETERS": "",
}
#: The commit names the addresses of its submodules: forbid folders of this host, and programs.
_OF_SUBMODULE = {"GIT_PROTOCOL_FROM_USER": "0"}
_MOST_SUBMODULES = 200
_FILE_REFUSED = "transport 'file' not allowed"
_FILE_HINT = (
    "git fetches submodules from folders of this host only after `git config --global"
    " protocol.file.allow always`"
)


def local_repository(address: str) -> Path | None:
    """Return the folder or bundle of this host that an address names; None for a server.

    Follows git: an address with a colon before any slash is a URL or ``host:path``, even if such a
    path exists here.
    """
    if address.startswith("file://"):
        return Path(unquote(address.removeprefix("file://")))
    if ":" in address.partition("/")[0] or not os.path.lexists(address):
        return None
    return Path(address)


class Repository(Source):
    """A repository at a tag, a branch or a full commit; kept in the cache under its commit.

    It includes its submodules. Without ``submodules``, a commit with submodules is refused, since
    the author of the commit chose their addresses.
    """

    def __init__(self, address: str, ref: str, *, submodules: bool = True):
        for word, what in ((address, "the address of a repository"), (ref, "a git ref")):
            if not word or word.startswith("-") or not word.isprintable() or " " in word:
                raise ConfigError(f"{word!r} is not {what}")
        # A relative path would name another repository when git runs elsewhere. A bundle is a file.
        folder = None if address.startswith("file://") else local_repository(address)
        self.address = address if folder is None else str(folder.resolve())
        self.shown = without_password(self.address)
        self.ref = ref
        self._has_submodules = submodules
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
        """Return the commit that the ref now points at."""
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
        try:
            _check_out(self.address, commit, tree)
        except ConfigError as error:
            raise self._explained(error) from None
        self._fetch_submodules(tree)
        keep(tree, home)

    def _fetch_submodules(self, tree: Path) -> None:
        """Check out all submodules, recursively. Raises ConfigError with the name of a bad one."""
        waiting, fetched = [(tree, self.address)], 0
        while waiting:
            outer, address = waiting.pop()
            for one in submodules(outer, address):
                name = os.path.relpath(outer / one.path, tree)
                what = f"submodule {name} of {self.shown} at {self.ref!r}"
                fetched += 1
                if not self._has_submodules or fetched > _MOST_SUBMODULES:
                    raise ConfigError(
                        f"{what} is not fetched: "
                        + (
                            f"it has more than {_MOST_SUBMODULES}"
                            if self._has_submodules
                            else "nobody vouches for its address"
                        )
                    )
                inside = _folder_of(outer, one.path)
                if inside is None or not one.address:
                    why = "its folder is not empty" if one.address else ".gitmodules has no url"
                    raise ConfigError(f"{what} cannot be fetched: {why}")
                try:
                    _check_out(one.address, one.commit, inside, settings=_OF_SUBMODULE)
                except ConfigError as error:
                    raise ConfigError(
                        f"{what} cannot be fetched from {without_password(one.address)}",
                        hint=_FILE_HINT if _FILE_REFUSED in (error.details or "") else error.hint,
                        details=error.details,
                    ) from None
                waiting.append((inside, one.address))

    def _explained(self, error: ConfigError) -> ConfigError:
        """Return the error of a fetch; for a shallow clone, say that history is missing."""
        folder = local_repository(self.address)
        if folder is None or not is_shallow(folder):
            return ConfigError(
                f"git cannot fetch {self.ref!r} of {self.shown}",
                hint=error.hint,
                details=error.details,
            )
        return shallow_error(folder, f"it does not have {self.ref!r}", error.details)

    def _git(self, *words: str, timeout: float) -> process.Completed:
        try:
            return fetching_git(self.address, *words, timeout=timeout)
        except ConfigError as error:
            raise self._explained(error) from None


def fetching_git(
    address: str, *words: str, timeout: float, settings: Mapping[str, str] | None = None
) -> process.Completed:
    """Run git with a remote address.

    Raises ServiceAway if the address is unreachable now, HostError, ConfigError if it refuses.
    """
    # Run in a folder outside of any repository; the state may lie inside one.
    unasked = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_CEILING_DIRECTORIES": str(state_dir()),
    }
    done = run_git(*words, timeout=timeout, settings={**unasked, **(settings or {})})
    if done.exit_status == 0:
        return done
    shown = without_password(address)
    output = done.tail(8).replace(address, shown)
    # The server's messages say nothing about this host.
    own = "\n".join(line for line in output.splitlines() if not _OF_SERVER.match(line))
    if tells_full_disk(own):
        raise HostError(f"cannot fetch {shown}: the disk is full", details=output)
    if _NETWORK.search(own) and not _NOT_THERE.search(own):
        raise ServiceAway(f"cannot reach {shown}", hint="is the network there?", details=output)
    raise ConfigError(f"git cannot fetch {shown}", details=output)


def _check_out(
    address: str, commit: str, tree: Path, *, settings: Mapping[str, str] | None = None
) -> None:
    """Fetch only one commit, and check it out into a folder. Raises as :func:`fetching_git`."""
    fetching_git(address, "init", "--quiet", "--template=", str(tree), timeout=GIT_SECONDS)
    shallow = ["fetch", "--quiet", "--depth", "1", "--", address, commit]
    fetching_git(address, "-C", str(tree), *shallow, timeout=FETCH_SECONDS, settings=settings)
    checkout = ["checkout", "--quiet", "--detach", "FETCH_HEAD"]
    fetching_git(address, "-C", str(tree), *checkout, timeout=FETCH_SECONDS, settings=_NO_SETTINGS)


@dataclass(frozen=True)
class Submodule:
    """A submodule of a tree; ``address`` is empty if ``.gitmodules`` has none."""

    path: str
    commit: str
    address: str


def submodules(tree: Path, address: str) -> list[Submodule]:
    """Return the submodules of the checked-out commit; ``address``: its repository's.

    Leaves out submodules that git does not check out by default (``update = none``). Format:
    gitmodules(5). Raises ConfigError.
    """
    listed = _asked(tree, "ls-tree", "-r", "-z", "--full-tree", "HEAD")
    # "160000 commit SHA\tPATH" refers to a commit of another repository.
    links = [entry.split("\t", 1) for entry in listed.split("\0") if entry.startswith("160000 ")]
    if not links:
        return []
    known: dict[str, dict[str, str]] = {}
    if _asked(tree, "ls-tree", "--full-tree", "HEAD", ".gitmodules"):
        words = ["config", "--blob", "HEAD:.gitmodules", "-z", "--get-regexp", r"^submodule\."]
        for entry in filter(None, _asked(tree, *words).split("\0")):
            key, _, value = entry.partition("\n")
            name, _, what = key.removeprefix("submodule.").rpartition(".")
            known.setdefault(name, {})[what] = value
    by_path = {one.get("path", ""): one for one in known.values()}
    found = []
    for facts, path in links:
        one = by_path.get(path, {})
        if one.get("update") != "none":
            url = absolute_address(one.get("url", ""), address)
            found.append(Submodule(path, facts.split()[2], url))
    return found


def _asked(tree: Path, *words: str) -> str:
    done = run_git("-C", str(tree), *words, settings=_NO_SETTINGS)
    if done.exit_status != 0:
        raise ConfigError(f"git cannot read the submodules of {tree}", details=done.tail())
    return done.stdout.decode(errors="surrogateescape")


def absolute_address(url: str, address: str) -> str:
    """Return a submodule's address; a relative one starts at the outer repository's address."""
    if not url.startswith(("./", "../")):
        return url
    base, between = address.rstrip("/"), "/"
    while url.startswith(("./", "../")):
        if url.startswith("../"):
            between = "/" if "/" in base else ":"  # HOST:PATH
            base = base.rpartition(between)[0]
        url = url.partition("/")[2]
    return f"{base}{between}{url}"


def _folder_of(tree: Path, path: str) -> Path | None:
    """Return the empty folder of a submodule. None if it is missing, not empty or outside."""
    folder = tree / path
    is_own = folder.is_dir() and folder.resolve() == tree.resolve() / path
    has_git = any(part.lower() == ".git" for part in Path(path).parts)
    return folder if is_own and not has_git and not any(folder.iterdir()) else None


def is_shallow(folder: Path) -> bool:
    """Return True if a local repository has only part of its history."""
    done = run_git("-C", str(folder.absolute()), "rev-parse", "--is-shallow-repository")
    return done.exit_status == 0 and done.text.strip() == "true"


def shallow_error(folder: Path, lacks: str, details: str | None = None) -> ConfigError:
    """Return the error for data that a shallow clone lacks."""
    return ConfigError(
        f"the clone {folder} is shallow, it has only a part of the history: {lacks}",
        hint=f"fetch the rest: git -C {folder} fetch --unshallow",
        details=details,
    )
