"""Removal of files from a board that were not used for long; files in use are never removed.

Ages are measured by the board's own clock, since a run or deploy last needed the content. If a time
is impossible, the age is unknown: such content is removed only to free space. While another
controller holds the board (see :mod:`labctl.board.lease`), content that it may need stays; a dead
controller does not hold it.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from labctl.board.agent import BoardAgent
from labctl.board.facts import SECTION, sections
from labctl.board.lease import BoardLease, Lease
from labctl.board.running_jobs import running_jobs
from labctl.board.upload.resumable import PARTIAL
from labctl.errors import ConfigError, printable
from labctl.transport.base import Transport, remote_words, require

_TIMEOUT_SECONDS = 120.0
#: A clock before 2020-01-01 has not been set since the board was switched on.
_SANE_SECONDS = 1_577_836_800
#: Maximum time (s) between sending files and taking the lease, for a controller.
_BROUGHT_SECONDS = 24 * 3600
#: Younger content may belong to a slow transfer or to a job that is about to start.
_UNDER_WAY_SECONDS = 3600

#: Names are printed with printf: mksh's echo makes line ends of backslashes in them.
_SCRIPT = """\
section clock; date +%s
section free; df -P -k . 2>/dev/null
section lease; stat -c %Y lease 2>/dev/null
section jobs
for job in jobs/*; do
  [ ! -d "$job" ] || printf '%s\\n' "$(stat -c %Y "$job") $(du -s -k "$job" | cut -f 1) $job"
done
section pins
for pin in pins/*; do [ ! -f "$pin" ] || printf '%s\\n' "$pin"; done
section store
cd store 2>/dev/null && for file in * .part-*; do
  [ -f "$file" ] || continue
  case $file in
    .part-*.journal) ;;
    .part-*) printf '%s\\n' "$(stat -c '%Y %b %B' "$file") $file";;
    *.*) ;;
    *) printf '%s %s\\n' "$(stat -c %Y "$file.stamp" 2>/dev/null || echo 0)" \\
         "$(stat -c '%b %B' "$file") $file $(head -n 1 "$file.name" 2>/dev/null)";;
  esac
done
:
"""


@dataclass(frozen=True)
class StoreEntry:
    """A file or folder on a board. ``age_seconds`` is None if the board's clock is unreliable."""

    path: str
    size_bytes: int
    age_seconds: int | None
    sha256: str | None = None
    name: str | None = None
    #: Time of its last use, as printed by the board.
    wanted: str | None = None

    @property
    def label(self) -> str:
        """Name of the object for users."""
        return self.name or self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Verified:
    """Result of reading files of a store again; ``unread``: names with the reason."""

    checked: int
    damaged: Sequence[str]
    unread: Mapping[str, str]

    def document(self) -> dict[str, object]:
        """Return the result as JSON."""
        return {"checked": self.checked, "damaged": self.damaged, "unread": self.unread}


@dataclass(frozen=True)
class Inventory:
    """All files of labctl on a board. ``held`` are paths and SHA-256s that must stay."""

    objects: tuple[StoreEntry, ...]
    partials: tuple[StoreEntry, ...]
    jobs: tuple[StoreEntry, ...]
    pins: frozenset[str]
    held: frozenset[str]
    free_bytes: int | None
    holder: "Holder | None" = None

    @property
    def pinned(self) -> list[str]:
        """Labels of the pinned objects."""
        return sorted(item.label for item in self.objects if item.sha256 in self.pins)

    def document(self) -> dict[str, object]:
        """Return the inventory as JSON."""
        return {
            "objects": [
                {
                    "name": item.name,
                    "sha256": item.sha256,
                    "bytes": item.size_bytes,
                    "age_seconds": item.age_seconds,
                    "pinned": item.sha256 in self.pins,
                }
                for item in sorted(self.objects, key=lambda item: item.label)
            ],
            "partials": [{"path": p.path, "bytes": p.size_bytes} for p in self.partials],
            "jobs": [{"path": j.path, "bytes": j.size_bytes} for j in self.jobs],
            "free_bytes": self.free_bytes,
        }

    def document_without(self, gone: Sequence[StoreEntry], *, dry_run: bool) -> dict[str, object]:
        """Return as JSON the removed objects, or objects to remove, and the remaining ones."""
        freed = sum(item.size_bytes for item in gone)
        return {
            "removed": [
                {"path": item.path, "name": item.name, "bytes": item.size_bytes} for item in gone
            ],
            "dry_run": dry_run,
            "pinned": self.pinned,
            "free_bytes": None if self.free_bytes is None else self.free_bytes + freed,
            "in_use_by": self.holder and self.holder.host,
        }


@dataclass(frozen=True)
class Holder:
    """Another controller that uses the board, and since when (s); None: unknown."""

    host: str
    age_seconds: int | None


@dataclass(frozen=True)
class PrunePolicy:
    """Objects that may be removed: old ones, then the least recently used until enough is free."""

    older_seconds: float | None = None
    free_bytes: int | None = None
    #: Never removed, at any age: objects that the command itself needs.
    needed: Collection[str] = field(default=())


class Pruner:
    """Lists a board's workdir and removes files. Every method raises LinkError, BoardError.

    Removes under the epoch of the agent's fence. Raises LeaseLost if a newer epoch came to the
    board since the inventory, because then another controller may need the files. ``is_own``
    returns True for a lease that this controller took.
    """

    def __init__(
        self,
        transport: Transport,
        workdir: str,
        agent: BoardAgent,
        leases: BoardLease,
        is_own: Callable[[Lease], bool],
    ):
        self._transport = transport
        self._workdir = workdir
        self._agent = agent
        self._leases = leases
        self._is_own = is_own

    def inventory(self) -> Inventory:
        """Return all files and the files in use."""
        script = f"cd {remote_words(self._workdir)} || exit 1\n{SECTION}{_SCRIPT}"
        answers = sections(self._run(script, "cannot look into the board's workdir"))
        clock = int(answers.get("clock", "0").strip() or 0)
        jobs = [
            StoreEntry(path, int(kilobytes) * 1024, _age(clock, when))
            for when, kilobytes, path in _lines(answers.get("jobs", ""), 3)
            if _JOB.fullmatch(path)
        ]
        objects: list[StoreEntry] = []
        partials: list[StoreEntry] = []
        for when, blocks, unit, rest in _lines(answers.get("store", ""), 4):
            name, _, called = rest.partition(" ")
            if not _STORED.fullmatch(name):
                continue  # not labctl's: never removed
            kept = StoreEntry(
                f"store/{name}",
                int(blocks) * int(unit),
                _age(clock, when),
                name.removeprefix(PARTIAL),
                printable(called.strip()) or None,
                None if name.startswith(PARTIAL) else when,
            )
            (partials if name.startswith(PARTIAL) else objects).append(kept)
        free = [line.split() for line in answers.get("free", "").strip().splitlines()[1:]]
        running = running_jobs(self._transport, self._workdir, self._agent)
        return Inventory(
            objects=tuple(objects),
            partials=tuple(partials),
            jobs=tuple(jobs),
            pins=frozenset(re.findall(r"(?m)^pins/([0-9a-f]{64})\r?$", answers.get("pins", ""))),
            held=running.jobs | running.hashes,
            free_bytes=int(free[-1][3]) * 1024 if free and len(free[-1]) > 3 else None,
            holder=self._holder(_age(clock, answers.get("lease", "").strip()), bool(running.jobs)),
        )

    def pin(self, item: StoreEntry) -> None:
        """Protect an object from pruning, until :meth:`unpin`."""
        pins = remote_words(f"{self._workdir}/pins")
        path = remote_words(f"{self._workdir}/pins/{item.sha256}")
        self._change(f"umask 022; mkdir -p {pins} && rm -f {path} && : >{path}", "cannot pin")

    def unpin(self, item: StoreEntry) -> None:
        """Undo :meth:`pin`."""
        self._change(
            remote_words("rm", "-f", f"{self._workdir}/pins/{item.sha256}"), "cannot unpin"
        )

    def remove(self, items: Collection[StoreEntry]) -> list[StoreEntry]:
        """Delete files and job folders, with their side files; return the deleted items.

        Files used since the inventory stay.
        """
        return [item for item in items if self._remove(item)]

    def _remove(self, item: StoreEntry) -> bool:
        path = remote_words(f"{self._workdir}/{item.path}")
        unwanted = ":"
        if item.wanted is not None:
            unwanted = f'[ "$(stat -c %Y {path}.stamp 2>/dev/null || echo 0)" = {item.wanted} ]'
        script = f"{unwanted} || exit 0\nrm -rf {path} {path}.stamp {path}.name {path}.journal"
        return self._change(f"{script} && echo gone", f"cannot remove {path}").strip() == "gone"

    def _holder(self, age_seconds: int | None, job_runs: bool) -> Holder | None:
        status = self._leases.status()
        if status is None or self._is_own(status.lease):
            return None
        if not (status.alive or job_runs):
            return None
        return Holder(status.lease.host, age_seconds)

    def _change(self, script: str, what: str) -> str:
        return self._agent.fence.run(script, what, timeout=_TIMEOUT_SECONDS)

    def _run(self, script: str, what: str) -> str:
        return require(self._transport.run(script, timeout=_TIMEOUT_SECONDS), what).text


def choose(there: Inventory, policy: PrunePolicy) -> list[StoreEntry]:
    """Return the objects to remove, oldest first.

    Objects in use, pinned, or needed by the policy are not returned.
    """
    old = policy.older_seconds

    def is_old(item: StoreEntry) -> bool:
        return old is not None and item.age_seconds is not None and item.age_seconds > old

    gone = [
        item
        for item in (*there.jobs, *there.partials)
        if is_old(item) and (item.age_seconds or 0) > _UNDER_WAY_SECONDS and _may(item, there)
    ]
    candidates = sorted(
        (i for i in there.objects if i.sha256 not in policy.needed and _may(i, there)),
        key=lambda item: -1 if item.age_seconds is None else item.age_seconds,
        reverse=True,
    )
    free = None if there.free_bytes is None else there.free_bytes + _bytes(gone)
    for item in candidates:
        short = policy.free_bytes is not None and free is not None and free < policy.free_bytes
        if is_old(item) or short:
            gone.append(item)
            free = None if free is None else free + item.size_bytes
    return gone


def find(there: Inventory, wanted: str) -> StoreEntry:
    """Return the object with this name or SHA-256 prefix; also if only its pin is left.

    Raises ConfigError: none, or several.
    """
    present = {item.sha256 for item in there.objects}
    pins = [StoreEntry(f"store/{sha256}", 0, None, sha256) for sha256 in there.pins - present]
    found = [
        item
        for item in (*there.objects, *pins)
        if item.name == wanted
        or (len(wanted) >= _LEAST_DIGITS and (item.sha256 or "").startswith(wanted))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        hashes = ", ".join((item.sha256 or "")[:12] for item in found)
        raise ConfigError(
            f"{len(found)} files on the board are called {wanted}",
            hint=f"name one by its SHA-256: {hashes}",
        )
    known = ", ".join(sorted({item.label for item in there.objects})) or "nothing"
    raise ConfigError(f"no {wanted} on the board", hint=f"there is: {known}")


_STORED = re.compile(rf"({re.escape(PARTIAL)})?[0-9a-f]{{64}}")
_JOB = re.compile(r"jobs/(?!\.{1,2}$)[^/]+")
#: Minimum digits of a SHA-256 prefix.
_LEAST_DIGITS = 6


def _may(item: StoreEntry, there: Inventory) -> bool:
    if item.path in there.held or item.sha256 in there.held or item.sha256 in there.pins:
        return False
    if there.holder is None:
        return True
    taken = there.holder.age_seconds
    if taken is None or item.age_seconds is None:
        return False
    return item.age_seconds > taken + _BROUGHT_SECONDS


def _bytes(items: Collection[StoreEntry]) -> int:
    return sum(item.size_bytes for item in items)


def _age(clock: int, when: str) -> int | None:
    """Return the seconds since ``when``; None if one of the times is impossible."""
    then = int(when) if when.isdigit() else 0
    return clock - then if _SANE_SECONDS <= then <= clock else None


def _lines(text: str, count: int) -> Iterator[list[str]]:
    """Yield lines split into ``count`` words; the last is the rest of the line."""
    for line in text.split("\n"):  # names may contain Python's other line ends
        words = line.split(" ", count - 1)
        if len(words) == count and all(word.isdigit() for word in words[:-1]):
            yield words
