"""A job of the queue, as it is submitted and as the database has it."""

import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from labctl.errors import Blame, ConfigError
from labctl.files import user_name
from labctl.state import sql
from labctl.state.job_order import Waiting
from labctl.state.tables import checked, read, short_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: ``run``: a dispatcher runs it. ``untrusted``: it does so as ``labctl run --untrusted`` does; a
#: separate kind, so that a labctl that does not know it leaves the job alone. ``foreground``: a
#: ``labctl run`` that waits for a board itself.
JobKind = Literal["run", "untrusted", "foreground", "health", "nightly"]
JobState = Literal["waiting", "running", "done", "cancelled"]

COLUMNS = (
    "id, kind, name, request, boards, tried, priority, position, submitter, submitted_at,"
    " expected_seconds, max_seconds, state, board, worker, attempts, failures, expires, stop, run,"
    " started_at, ended_at, exit_status, blame, reason, broken, uses"
)
NAMES = COLUMNS.split(", ")
#: Query for jobs that run, or of which nobody can read if they do.
RUNNING = (
    f"SELECT {COLUMNS} FROM job WHERE COALESCE(state, '') NOT IN ('waiting', 'done', 'cancelled')"
)
ORDER = "id, name, boards, tried, uses, priority, position, submitter, kind, max_seconds, reason"
_ORDER_NAMES = ORDER.split(", ")


def new_job_id() -> str:
    """Make the id of a new job: in a million, two are equal with a chance of 1 in 500."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class NewJob:
    """A job to submit. ``request`` has everything that its run needs; JSON."""

    #: For people: the recipe's name.
    name: str
    request: Mapping[str, Any]
    #: Boards on which it may run, best first.
    boards: tuple[str, ...]
    kind: JobKind = "run"
    priority: int = 0
    expected_seconds: float | None = None
    #: Maximum duration; the board must not be kept for another user before that is over.
    max_seconds: float = 0.0
    #: Shared limits that it uses besides those of its board.
    uses: tuple[str, ...] = ()
    submitter: str = field(default_factory=lambda: f"{user_name()}@{socket.gethostname()}")
    #: Submitted twice, it is one job.
    id: str = field(default_factory=new_job_id)


@dataclass(frozen=True)
class Job:
    """A job of the queue. Times are seconds since 1970 by the database's clock."""

    id: str
    kind: JobKind
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
    board: str | None
    worker: str | None
    #: Number of the current or last attempt; 0 before the first.
    attempts: int
    #: Number of attempts that infrastructure interrupted.
    failures: int
    #: When the attempt counts as lost unless it is renewed.
    expires: float | None
    #: Reason to stop it while it runs.
    stop: str | None
    run: str | None
    started_at: float | None
    ended_at: float | None
    exit_status: int | None
    blame: Blame | None
    reason: str | None
    #: Boards that broke under it -> the first time, in seconds since 1970.
    broken: Mapping[str, float]
    #: Shared limits that it uses besides those of its board.
    uses: tuple[str, ...]
    #: Why its row cannot be read: nobody runs it, and its board counts as taken. None: it can.
    damaged: str | None = None

    @property
    def waits(self) -> bool:
        """True if it waits, and can be run."""
        return self.state == "waiting" and self.damaged is None

    @property
    def may_have(self) -> tuple[str, ...]:
        """Boards that it may have if it is damaged and runs, or nobody can read if it does."""
        if self.damaged is None or self.state != "running":
            return ()
        own = () if self.board is None else (self.board,)
        return own if self.board in self.boards else (*own, *self.boards)

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The request."""
        found: Mapping[str, Any] = json.loads(self.request)
        return found

    def document(self) -> dict[str, object]:
        """Return it as JSON, without the request."""
        document = asdict(self)
        del document["request"]
        return document


def worker_name(host: str | None = None) -> str:
    """Make a name for this process as a worker; ``host``: as the lab names this host."""
    return f"{host or socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def job_of(row: Sequence[Any]) -> Job:
    """Return the job of a row of COLUMNS."""
    values, why = read("job", NAMES, row)
    values["blame"] = Blame(values["blame"]) if values["blame"] else None
    missing = [name for name in ("board", "worker", "expires") if values[name] is None]
    if why is None and values["state"] == "running" and missing:
        cure = f"to remove it: `labctl queue cancel {values['id']}`"
        why = f"damaged: it runs without {', '.join(missing)}; {cure}"
    return Job(**values, damaged=why)


def update(connection: "Connection", job: str, **values: object) -> None:
    """Give columns of a job new values. Raises ConfigError."""
    changes = ", ".join(f"{column} = :{column}" for column in checked("job", values))
    sql.run(connection, f"UPDATE job SET {changes} WHERE id = :id", {"id": job, **values})


def job_in(connection: "Connection", job: str) -> Job:
    """Return a job, in an open transaction. Raises ConfigError if there is none."""
    rows = sql.rows(connection, f"SELECT {COLUMNS} FROM job WHERE id = :id", {"id": job})
    if not rows:
        raise ConfigError(f"no job {job!r}", hint="`labctl queue` shows the jobs")
    return job_of(tuple(rows[0].values()))


def end(
    connection: "Connection",
    job: Job,
    now: float,
    reason: str | None,
    *,
    state: Literal["done", "cancelled"] = "done",
    exit_status: int | None = None,
    blame: Blame | None = None,
) -> None:
    """End a job, in an open transaction."""
    update(
        connection,
        job.id,
        state=state,
        ended_at=now,
        exit_status=exit_status,
        blame=blame,
        reason=short_line(reason),
        expires=None,
    )


def waiting_of(job: Job) -> Waiting:
    """Return the facts of a job that the order needs."""
    return _waiting({name: getattr(job, name) for name in _ORDER_NAMES})


def waiting_row(row: Mapping[str, Any]) -> Waiting | None:
    """Return the facts that the order needs, from a row of ORDER; None for a damaged one."""
    values, damaged = read("job", list(row), list(row.values()))
    return None if damaged else _waiting(values)


def _waiting(values: Mapping[str, Any]) -> Waiting:
    return Waiting(
        values["id"],
        tuple(board for board in values["boards"] if board not in values["tried"]),
        values["priority"],
        values["position"],
        values["submitter"],
        is_foreground=values["kind"] == "foreground",
        max_seconds=values["max_seconds"],
        kind=values["kind"],
        uses=values["uses"],
        name=values["name"],
    )
