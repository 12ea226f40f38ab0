"""Removing from a board what nobody has used for long, and nothing that somebody uses.

Ages are by the board's own clock, from the last time that a run or deploy wanted the content. A
clock that says an impossible time vouches for no age: such content goes only for want of space.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from labctl.board.agent import BoardAgent
from labctl.board.delivery import PARTIAL
from labctl.board.lease import BoardLease
from labctl.board.sections import SECTION, sections
from labctl.errors import ConfigError, printable
from labctl.transport import Transport, remote_words, require

_TIMEOUT_SECONDS = 120.0
#: Clocks that say less have not been set since the board was switched on: 2020-01-01.
_SANE_SECONDS = 1_577_836_800
#: Another controller may be between two trials: for so long what it used is its own.
FOREIGN_SECONDS = 24 * 3600
#: What is younger may be under way: a transfer that is slow, a job that is about to start.
_UNDER_WAY_SECONDS = 3600

_SCRIPT = """\
section clock; date +%s
section free; df -P -k . 2>/dev/null
section lease; stat -c %Y lease 2>/dev/null
section jobs
for job in jobs/*; do
  [ ! -d "$job" ] || echo "$(stat -c %Y "$job") $(du -s -k "$job" | cut -f 1) $job"
done
section pins
for pin in pins/*; do [ ! -f "$pin" ] || echo "$pin"; done
section store
cd store 2>/dev/null && for file in * .part-*; do
  [ -f "$file" ] || continue
  case $file in
    .part-*.journal) ;;
    .part-*) echo "$(stat -c '%Y %b %B' "$file") $file";;
    *.*) ;;
    *) echo "$(stat -c %Y "$file.stamp" 2>/dev/null || echo 0)" \\
         "$(stat -c '%b %B' "$file") $file $(cat "$file.name" 2>/dev/null)";;
  esac
done
:
"""
#: What running jobs hold: every SHA-256 that their started.json names.
_HELD = """\
for job in jobs/*; do
  {agent} wait --dir "$job" --seconds 0 | grep -q '"state":"running"' || continue
  echo "running $job"
  grep -o '[0-9a-f]\\{{64\\}}' "$job/started.json"
done
:
"""


@dataclass(frozen=True)
class Kept:
    """Something on a board. ``age_seconds`` is None where the board's clock does not tell."""

    path: str
    size_bytes: int
    age_seconds: int | None
    sha256: str | None = None
    name: str | None = None

    @property
    def told(self) -> str:
        """What people call it."""
        return self.name or self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Inventory:
    """All that labctl has on a board. ``held`` are paths and SHA-256s that must stay."""

    objects: tuple[Kept, ...]
    partials: tuple[Kept, ...]
    jobs: tuple[Kept, ...]
    pins: frozenset[str]
    held: frozenset[str]
    free_bytes: int | None
    #: The host whose controller, not this one, took the board lately.
    foreign_host: str | None = None


@dataclass(frozen=True)
class PrunePolicy:
    """What may go: what is older, and then the longest unused until so much is free."""

    older_seconds: float | None = None
    free_bytes: int | None = None
    #: Never to go, whatever its age: what the command itself needs.
    needed: Collection[str] = field(default=())


class Pruner:
    """Looks at a board's workdir and removes from it. Every method raises LinkError, BoardError.

    ``our_epoch`` is that of the last lease that this controller took; None if it never did.
    """

    def __init__(
        self,
        transport: Transport,
        workdir: str,
        agent: BoardAgent,
        leases: BoardLease,
        our_epoch: int | None,
    ):
        self._transport = transport
        self._workdir = workdir
        self._agent = agent
        self._leases = leases
        self._our_epoch = our_epoch

    def inventory(self) -> Inventory:
        """Everything there is, and what of it is in use."""
        script = f"cd {remote_words(self._workdir)} || exit 1\n{SECTION}{_SCRIPT}"
        told = sections(self._run(script, "cannot look into the board's workdir"))
        clock = int(told.get("clock", "0").strip() or 0)
        jobs = [
            _kept(int(kilobytes) * 1024, path, _age(clock, when))
            for when, kilobytes, path in _lines(told.get("jobs", ""), 3)
        ]
        objects: list[Kept] = []
        partials: list[Kept] = []
        for when, blocks, unit, rest in _lines(told.get("store", ""), 4):
            name, _, called = rest.partition(" ")
            kept = _kept(int(blocks) * int(unit), f"store/{name}", _age(clock, when), called)
            (partials if name.startswith(PARTIAL) else objects).append(kept)
        free = [line.split() for line in told.get("free", "").strip().splitlines()[1:]]
        return Inventory(
            objects=tuple(objects),
            partials=tuple(partials),
            jobs=tuple(jobs),
            pins=frozenset(line.strip()[5:] for line in told.get("pins", "").split()),
            held=self._held() if jobs else frozenset(),
            free_bytes=int(free[-1][3]) * 1024 if free and len(free[-1]) > 3 else None,
            foreign_host=self._foreign(_age(clock, told.get("lease", "").strip())),
        )

    def pin(self, item: Kept) -> None:
        """Let nobody's prune remove it, until :meth:`unpin`."""
        pins = remote_words(f"{self._workdir}/pins")
        path = remote_words(f"{self._workdir}/pins/{item.sha256}")
        self._run(f"umask 022; mkdir -p {pins} && : >{path}", "cannot pin")

    def unpin(self, item: Kept) -> None:
        """Undo :meth:`pin`."""
        self._run(remote_words("rm", "-f", f"{self._workdir}/pins/{item.sha256}"), "cannot unpin")

    def remove(self, items: Collection[Kept]) -> None:
        """Delete files and folders of jobs, with what belongs to them."""
        for item in items:
            path = remote_words(f"{self._workdir}/{item.path}")
            self._run(
                f"rm -rf {path} {path}.stamp {path}.name {path}.journal", f"cannot remove {path}"
            )

    def _held(self) -> frozenset[str]:
        script = f"cd {remote_words(self._workdir)} || exit 1\n"
        script += _HELD.format(agent=remote_words(self._agent.path))
        said = self._run(script, "cannot ask for running jobs").splitlines()
        return frozenset(line.removeprefix("running ").strip() for line in said)

    def _foreign(self, age_seconds: int | None) -> str | None:
        lease = self._leases.read()
        if lease is None or lease.epoch == self._our_epoch:
            return None
        return None if age_seconds is not None and age_seconds > FOREIGN_SECONDS else lease.host

    def _run(self, script: str, what: str) -> str:
        return require(self._transport.run(script, timeout=_TIMEOUT_SECONDS), what).text


def choose(there: Inventory, policy: PrunePolicy) -> list[Kept]:
    """What goes, oldest first. Nothing that is in use, pinned, or needed by the policy."""
    old = policy.older_seconds

    def is_old(item: Kept) -> bool:
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


def find(there: Inventory, wanted: str) -> Kept:
    """The object of that name, or whose SHA-256 begins so. Raises ConfigError: none, or several."""
    found = [
        item
        for item in there.objects
        if item.name == wanted
        or (len(wanted) >= _LEAST_DIGITS and (item.sha256 or "").startswith(wanted))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        hashes = ", ".join((item.sha256 or "")[:12] for item in found)
        raise ConfigError(
            f"{len(found)} files on the board are called {wanted}",
            hint=f"say which by its SHA-256: {hashes}",
        )
    known = ", ".join(sorted({item.told for item in there.objects})) or "nothing"
    raise ConfigError(f"no {wanted} on the board", hint=f"there is: {known}")


#: Of a SHA-256, to be found by it.
_LEAST_DIGITS = 6


def _may(item: Kept, there: Inventory) -> bool:
    if item.path in there.held or item.sha256 in there.held or item.sha256 in there.pins:
        return False
    lately = item.age_seconds is None or item.age_seconds < FOREIGN_SECONDS
    return not (there.foreign_host and lately)


def _bytes(items: Collection[Kept]) -> int:
    return sum(item.size_bytes for item in items)


def _kept(size_bytes: int, path: str, age: int | None, called: str = "") -> Kept:
    name = path.rpartition("/")[2].removeprefix(PARTIAL)
    is_object = path.startswith("store/")
    told = printable(called.strip()) or None
    return Kept(path, size_bytes, age, name if is_object else None, told)


def _age(clock: int, when: str) -> int | None:
    """Seconds since then; None where one of the times cannot be true."""
    then = int(when) if when.isdigit() else 0
    return clock - then if _SANE_SECONDS <= then <= clock else None


def _lines(text: str, count: int) -> Iterator[list[str]]:
    """The lines that have so many words, the last of them being the rest."""
    for line in text.splitlines():
        words = line.split(" ", count - 1)
        if len(words) == count and all(word.isdigit() for word in words[:-1]):
            yield words
