"""A job of the queue, as it is submitted and as the database has it."""

import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from labctl.errors import Blame
from labctl.files import user_name
from labctl.state.job_order import Waiting

#: ``run``: a dispatcher runs it. ``untrusted``: it does so as ``labctl run --untrusted`` does; a
#: separate kind, so that a labctl that does not know it leaves the job alone. ``foreground``: a
#: ``labctl run`` that waits for a board itself.
JobKind = Literal["run", "untrusted", "foreground", "health", "nightly"]
JobState = Literal["waiting", "running", "done", "cancelled"]

COLUMNS = (
    "id, kind, name, request, boards, tried, priority, position, submitter, submitted_at,"
    " expected_seconds, max_seconds, state, board, worker, attempts, failures, expires, stop, run,"
    " started_at, ended_at, exit_status, blame, reason, broken"
)
NAMES = COLUMNS.split(", ")
ORDER = "id, boards, tried, priority, position, submitter, kind, max_seconds, reason"


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


def worker_name() -> str:
    """Make a name for this process as a worker."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def job_of(row: Sequence[Any]) -> Job:
    """Return the job of a row of COLUMNS."""
    values = dict(zip(NAMES, row, strict=True))
    values["boards"] = tuple(json.loads(values["boards"]))
    values["tried"] = tuple(json.loads(values["tried"]))
    values["broken"] = json.loads(values["broken"])
    values["blame"] = Blame(values["blame"]) if values["blame"] else None
    return Job(**values)


def waiting_of(job: Job) -> Waiting:
    """Return the facts of a job that the order needs."""
    boards = tuple(board for board in job.boards if board not in job.tried)
    is_foreground = job.kind == "foreground"
    place = (job.priority, job.position, job.submitter)
    return Waiting(job.id, boards, *place, is_foreground, job.max_seconds, job.kind)


def waiting_row(row: Mapping[str, Any]) -> Waiting:
    """Return the facts that the order needs, from a row of ORDER."""
    tried = json.loads(row["tried"])
    boards = tuple(board for board in json.loads(row["boards"]) if board not in tried)
    place = (row["priority"], row["position"], row["submitter"])
    is_foreground = row["kind"] == "foreground"
    return Waiting(row["id"], boards, *place, is_foreground, row["max_seconds"], row["kind"])
