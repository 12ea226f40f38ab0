"""A job of the queue, as submitted and as stored."""

import json
import os
import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from labctl.database.questions import select
from labctl.errors import Blame, BoardBusy, ConfigError
from labctl.state import sql
from labctl.state.group_shares import deal
from labctl.state.job_parts import boards_of, contents_of, store_boards, store_content
from labctl.state.tables import COLUMNS, checked, read, short_line, stored_names
from labctl.state.uses import Runner, UseKind
from labctl.state.waiting import Waiting
from labctl.user import user_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask

JobState = Literal["waiting", "running", "done", "cancelled"]

_NAMES = tuple(COLUMNS["job"])
_WAITING_NAMES = (
    "id", "name", "boards", "tried", "uses", "priority", "position", "submitter", "kind", "runner",
    "max_seconds", "expected_seconds", "failures", "group_id", "unit", "board", "request",
    "reason", "home",
)  # fmt: skip
#: True for jobs without a group, and in groups without an owner or whose owner is alive at
#: ``:now``.
IN_FORCE = (
    "(group_id IS NULL OR group_id NOT IN"
    " (SELECT id FROM job_group WHERE owner IS NOT NULL AND expires < :now))"
)
_WAITING = ("state = 'waiting' AND worker IS NULL", IN_FORCE)
_DEALT = select(
    "home, SUM(expected_seconds)",
    "job",
    "group_id = :group AND state = 'waiting' AND home IS NOT NULL",
    group="home",
)
_REMAINING = ("board", "started_at", "expected_seconds")


def new_job_id() -> str:
    """Make the id of a new job: the chance of two equal ids in a million is 1 in 500."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class NewJob:
    """A job to submit. ``request``: JSON with everything that its run needs."""

    #: For people: the recipe's name.
    name: str
    request: Mapping[str, Any]
    #: Boards on which it may run, best first.
    boards: tuple[str, ...]
    kind: UseKind = "run"
    priority: int = 0
    expected_seconds: float | None = None
    #: Maximum duration; during this time the board must not be kept for another user.
    max_seconds: float = 0.0
    #: Shared limits that it uses in addition to its board's limits.
    uses: tuple[str, ...] = ()
    #: Id of its group, see :mod:`labctl.state.groups`.
    group_id: str | None = None
    #: Jobs of one unit run on one board in the order of their submission, without other jobs
    #: between.
    unit: str | None = None
    runner: Runner = "worker"
    submitter: str = field(default_factory=lambda: f"{user_name()}@{socket.gethostname()}")
    #: A second submission with this id adds no job.
    id: str = field(default_factory=new_job_id)


@dataclass(frozen=True)
class Job:
    """A job of the queue. Times are seconds since 1970 by the database's clock."""

    id: str
    kind: UseKind
    runner: Runner
    name: str
    #: JSON.
    request: str
    boards: tuple[str, ...]
    #: Boards on which infrastructure interrupted it.
    tried: tuple[str, ...]
    priority: int
    position: float
    #: ``USER@HOST``
    submitter: str
    submitted_at: float
    expected_seconds: float | None
    max_seconds: float
    state: JobState
    #: Its board; for a waiting job, the board kept for it after the last job of its unit.
    board: str | None
    worker: str | None
    #: Number of the current or last attempt; 0 before the first.
    attempts: int
    #: Number of attempts that infrastructure interrupted.
    failures: int
    #: Time at which the attempt counts as lost unless it is renewed.
    expires: float | None
    #: Reason to stop the running job.
    stop: str | None
    run: str | None
    started_at: float | None
    ended_at: float | None
    exit_status: int | None
    blame: Blame | None
    reason: str | None
    #: Boards that broke under it -> the first time, in seconds since 1970.
    broken: Mapping[str, float]
    #: Shared limits that it uses in addition to its board's limits.
    uses: tuple[str, ...]
    group_id: str | None
    unit: str | None
    #: The board to which it was dealt; see :mod:`labctl.state.group_shares`.
    home: str | None
    #: Why its row cannot be read: it does not run, and its board counts as taken. None if it can.
    damaged: str | None = None

    @property
    def waits(self) -> bool:
        """True if the job waits, and is not damaged."""
        return self.state == "waiting" and self.damaged is None

    @property
    def may_have(self) -> tuple[str, ...]:
        """Boards that a damaged job may be using: it runs, or its state is unreadable."""
        if self.damaged is None or self.state != "running":
            return ()
        own = () if self.board is None else (self.board,)
        return own if self.board in self.boards else (*own, *self.boards)

    @property
    def host(self) -> str:
        """Host that runs it or ran it last; its name in the lab."""
        return str(self.worker).rsplit(":", 2)[0]

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The request."""
        found: Mapping[str, Any] = json.loads(self.request)
        return found

    def document(self) -> dict[str, object]:
        """Return the job as JSON, without the request and the home."""
        document = asdict(self)
        del document["request"], document["home"]
        return document


def homes_of(ask: "Ask", jobs: Sequence[NewJob]) -> Mapping[str, str]:
    """Deal jobs that are submitted together; return the home of each dealt job.

    Raises ConfigError for an invalid length of a job.
    """
    groups: dict[str, dict[str, list[NewJob]]] = {}
    for job in jobs:
        checked("job", {"expected_seconds": job.expected_seconds})  # NaN never compares equal
        if job.group_id is not None:
            groups.setdefault(job.group_id, {}).setdefault(job.unit or job.id, []).append(job)
    found: dict[str, str] = {}
    for group, units in groups.items():
        whole = [
            Waiting(
                unit,
                members[0].boards,
                members[0].priority,
                0.0,
                members[0].submitter,
                expected_seconds=sum(job.expected_seconds or 0.0 for job in members),
            )
            for unit, members in units.items()
        ]
        loads = {
            str(home): float(seconds)
            for home, seconds in ask(_DEALT, {"group": group})
            if isinstance(seconds, int | float) and isfinite(seconds)
        }
        for unit, home in deal(whole, loads).items():
            found |= {job.id: home for job in units[unit]}
    return found


def add(
    connection: "Connection",
    job: NewJob,
    now: float,
    position: float,
    expires: float | None,
    *,
    home: str | None = None,
) -> None:
    """Store a waiting job, unless its id exists already. Raises ConfigError."""
    if not job.boards:
        raise ConfigError(f"job {job.name}: no board is given")
    if sql.asker(connection)("SELECT 1 FROM job WHERE id = :id", {"id": job.id}):
        return
    values: dict[str, Any] = dict.fromkeys(_NAMES) | {
        "id": job.id,
        "kind": job.kind,
        "runner": job.runner,
        "name": short_line(job.name) or "",
        "request": store_content(connection, job.request),
        "boards": store_boards(connection, job.boards),
        "tried": stored_names(()),
        "broken": "{}",
        "uses": stored_names(job.uses),
        "group_id": job.group_id,
        "unit": job.unit,
        "home": home,
        "priority": job.priority,
        "position": position,
        "submitter": job.submitter,
        "submitted_at": now,
        "expected_seconds": job.expected_seconds,
        "max_seconds": job.max_seconds,
        "state": "waiting",
        "attempts": 0,
        "failures": 0,
        "expires": expires,
    }
    sql.insert(connection, "job", values)


def begin(
    connection: "Connection", job: Job, board: str, now: float, *, worker: str, seconds: float
) -> Job:
    """Let a job run, in an open transaction; not renewed, it is lost after ``seconds``."""
    changes: dict[str, Any] = {
        "state": "running",
        "board": board,
        "worker": worker,
        "attempts": job.attempts + 1,
        "started_at": now,
        "expires": now + seconds,
        "reason": None,
    }
    update(connection, job.id, **changes)
    return replace(job, **changes)


def follows(ask: "Ask", job: Job) -> bool:
    """Return True if a job of the same unit has ended on the job's board."""
    ended = "SELECT 1 FROM job WHERE state = 'done' AND unit = :unit AND board = :board LIMIT 1"
    asked = {"unit": job.unit, "board": job.board}
    return job.unit is not None and bool(ask(ended, asked))


def claimed_by(job: Job) -> BoardBusy:
    """Return the error for a board that a job has claimed but may not have leased yet."""
    from labctl.units import local_time

    return BoardBusy(
        f"board {job.board} is in use by {job.submitter} since {local_time(job.started_at or 0.0)}:"
        f" job {job.id} ({job.name}) on {job.host}",
        hint="`labctl queue` shows who waits for what",
    )


def worker_name(host: str | None = None) -> str:
    """Make a name for this process as a worker; ``host``: name of this host in the lab."""
    return f"{host or socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def jobs_where(
    ask: "Ask",
    where: str,
    values: Mapping[str, object] | None = None,
    *,
    order: str = "",
    limit: int | None = None,
) -> list[Job]:
    """Return the jobs for which the SQL ``where`` is true."""
    return _whole(ask, ask(select(_NAMES, "job", where, order=order, limit=limit), values or {}))


def jobs_of(ask: "Ask", ids: Collection[str]) -> Mapping[str, Job]:
    """Return the jobs with these ids, by id."""
    rows = sql.rows_of(ask, select(_NAMES, "job", "id IN"), ids)
    return {job.id: job for job in _whole(ask, rows)}


def damaged_jobs(ask: "Ask") -> list[Job]:
    """Return the damaged jobs that run, or whose state is unreadable."""
    rows = ask(select(_NAMES, "job", "state NOT IN ('waiting', 'done', 'cancelled')"), {})
    found = [
        (values, why)
        for values, why in (_read(row) for row in rows if not _is_sound(*row))
        if why is not None
    ]
    lists = boards_of(ask, {values["boards"] for values, _ in found})
    return [_job(values, why, lists.get(values["boards"], ()), "{}") for values, why in found]


def _whole(ask: "Ask", rows: Sequence[Sequence[Any]]) -> list[Job]:
    """Return the jobs of complete rows, with the contents and boards that they share."""
    found = [_read(row) for row in rows]
    lists = boards_of(ask, {values["boards"] for values, _ in found})
    contents = contents_of(ask, {values["request"] for values, _ in found})
    jobs = []
    for values, damaged in found:
        why = damaged
        boards, content = lists.get(values["boards"], ()), contents.get(values["request"])
        what = "boards are" if not boards else "request is" if content is None else None
        if why is None and what is not None:
            why = _damaged(values, f"its {what} missing or damaged")
        jobs.append(_job(values, why, boards, content or "{}"))
    return jobs


def _read(row: Sequence[Any]) -> tuple[dict[str, Any], str | None]:
    """Return the values of a job's row, and its damage."""
    values, why = read("job", _NAMES, row)
    missing = [name for name in ("board", "worker", "expires") if values[name] is None]
    if why is None and values["state"] == "running" and missing:
        why = _damaged(values, f"it runs without {', '.join(missing)}")
    return values, why


@lru_cache(maxsize=4096, typed=True)
def _is_sound(*row: object) -> bool:
    """Return True if a job's row is not damaged. Cached: most rows are checked many times."""
    return _read(row)[1] is None


def _damaged(values: Mapping[str, Any], what: str) -> str:
    return f"damaged: {what}; to remove it: `labctl queue cancel {values['id']}`"


def _job(values: Mapping[str, Any], why: str | None, boards: tuple[str, ...], content: str) -> Job:
    blame = Blame(values["blame"]) if values["blame"] else None
    return Job(**{**values, "blame": blame, "boards": boards, "request": content}, damaged=why)


def update(connection: "Connection", job: str, **values: object) -> None:
    """Set columns of a job. Raises ConfigError."""
    sql.update(connection, "job", {"id": job}, values)


def job_in(connection: "Connection", job: str) -> Job:
    """Return a job, in an open transaction. Raises ConfigError if the id is unknown."""
    found = jobs_of(sql.asker(connection), {job})
    if job not in found:
        raise ConfigError(f"no job {job!r}", hint="`labctl queue` shows the jobs")
    return found[job]


def end(
    connection: "Connection",
    job: Job,
    now: float,
    reason: str | None,
    *,
    state: Literal["done", "cancelled"] = "done",
    exit_status: int | None = None,
    blame: Blame | None = None,
) -> Job:
    """End a job, in an open transaction; return it."""
    changes: dict[str, Any] = {
        "state": state,
        "ended_at": now,
        "exit_status": exit_status,
        "blame": blame,
        "reason": short_line(reason),
        "expires": None,
    }
    update(connection, job.id, **changes)
    return replace(job, **changes)


def waiting_of(job: Job) -> Waiting:
    """Return a job's facts that the order needs."""
    values = {name: getattr(job, name) for name in _WAITING_NAMES}
    return _waiting({**values, "request": ""}, job.boards)


def waiting_for(
    ask: "Ask", now: float, boards: Collection[str], jobs: Collection[str] | None = None
) -> list[tuple[Waiting, str | None]]:
    """Return the jobs that may begin on any of these boards, with the reason why each waits.

    With ``jobs``, only jobs of these ids. A unit is represented by its next job, with the length
    and contents of all its remaining jobs, and left out while one of its jobs runs. Also left out:
    damaged jobs, jobs of groups whose owner is gone, and jobs whose process still fetches inputs.
    """
    named = sql.rows_of(ask, "SELECT DISTINCT sha256 FROM board_list WHERE board IN", boards)
    wanted = {digest for (digest,) in named}
    if not wanted:
        return []
    if jobs is None:
        rows = ask(select(_WAITING_NAMES, "job", *_WAITING), {"now": now})
    else:
        of_jobs, of_units = (
            select(_WAITING_NAMES, "job", *_WAITING, named) for named in ("id IN", "unit IN")
        )
        rows = sql.rows_of(ask, of_jobs, jobs, {"now": now})
        units = {row[_WAITING_NAMES.index("unit")] for row in rows} - {None}
        others = sql.rows_of(ask, of_units, units, {"now": now})
        rows = [*{row[0]: row for row in (*rows, *others)}.values()]
    place = _WAITING_NAMES.index("boards")
    found = [_read_waiting(*row) for row in rows if row[place] in wanted]
    lists = boards_of(ask, {values["boards"] for values, _ in found})
    begun = {unit for (unit,) in ask(_BEGUN_UNITS, {})}
    units_left: dict[str, list[tuple[Waiting, str | None]]] = {}
    ready = []
    for values, damaged in found:
        if damaged or values["boards"] not in lists or values["unit"] in begun:
            continue
        one = (_waiting(values, lists[values["boards"]]), values["reason"])
        if values["unit"] is None:
            ready.append(one)
        else:
            units_left.setdefault(values["unit"], []).append(one)
    return [*ready, *map(_whole_unit, units_left.values())]


def remaining(ask: "Ask", now: float) -> Mapping[str, float]:
    """Return board -> expected time (s) until the job that runs on it ends."""
    found = {}
    for row in ask(select(_REMAINING, "job", "state = 'running'"), {}):
        one, damaged = read("job", _REMAINING, row)
        if damaged is None and one["board"] and one["started_at"] is not None:
            ends = one["started_at"] + (one["expected_seconds"] or 0.0)
            found[one["board"]] = max(0.0, ends - now)
    return found


_BEGUN_UNITS = "SELECT DISTINCT unit FROM job WHERE state = 'running' AND unit IS NOT NULL"


def _whole_unit(jobs: list[tuple[Waiting, str | None]]) -> tuple[Waiting, str | None]:
    """Return the next job of a unit, with the length and the contents of all its jobs."""
    first, reason = min(jobs, key=lambda one: (one[0].position, one[0].id))
    whole = replace(
        first,
        max_seconds=sum(job.max_seconds for job, _ in jobs),
        expected_seconds=sum(job.expected_seconds for job, _ in jobs),
        contents=tuple(sorted({one for job, _ in jobs for one in job.contents})),
    )
    return whole, reason


@lru_cache(maxsize=8192, typed=True)
def _read_waiting(*row: object) -> tuple[Mapping[str, Any], str | None]:
    """Read a row of a waiting job. Cached, because most rows are read many times."""
    return read("job", _WAITING_NAMES, row)


def _waiting(values: Mapping[str, Any], boards: tuple[str, ...]) -> Waiting:
    tried, kept = values["tried"], values["board"]
    own = boards if kept is None else (kept,)
    return Waiting(
        values["id"],
        tuple(board for board in own if board not in tried) if tried else own,
        values["priority"],
        values["position"],
        values["submitter"],
        is_foreground=values["runner"] == "process",
        max_seconds=values["max_seconds"],
        kind=values["kind"],
        uses=values["uses"],
        name=values["name"],
        expected_seconds=values["expected_seconds"] or 0.0,
        failures=values["failures"],
        group=values["group_id"],
        unit=values["unit"],
        kept=kept,
        contents=(values["request"],),
        home=values["home"],
    )
