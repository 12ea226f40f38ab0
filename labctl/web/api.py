"""The JSON interface, ``/api/v1``; its description is ``/api/v1/openapi.json``."""

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from labctl.board.status import BoardUse
from labctl.web.changes import cancel_job, hold_board, release_board
from labctl.web.dashboard import UserRoute, dashboard_of, must_be
from labctl.web.lab_view import BoardView
from labctl.web.run_filter import filter_words, page_number

router = APIRouter(prefix="/api/v1", route_class=UserRoute)
_Reason = Annotated[str, Field(min_length=1, max_length=500, description="for the audit log")]
_Damaged = Annotated[str | None, Field(description="why its row cannot be read; null: it can")]
_Seconds = Annotated[float | None, Field(description="seconds since 1970, UTC")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Lease(_Model):
    """A lease of a board."""

    holder: str
    purpose: str
    job: str | None
    epoch: int
    since: float
    expires: float | None
    damaged: _Damaged


class Keeping(_Model):
    """A time for which a board is kept."""

    kind: str
    holder: str
    begins: float
    ends: float
    reason: str | None
    damaged: _Damaged


class Trial(_Model):
    """Work in progress on a board."""

    run: str
    recipe: str
    number: int | None
    trials: int | None
    variant: str
    phase: str
    done: float | None
    total: float | None
    unit: str
    per_second: float | None
    remaining_s: float | None
    run_remaining_s: float | None
    temperature_celsius: float | None


class BoardState(_Model):
    """A board now."""

    name: str
    target: str
    tags: list[str]
    state: BoardUse
    contact: str | None = Field(description="result of the last contact: connected, offline, ...")
    contact_at: _Seconds
    health: str
    health_reason: str | None
    health_since: _Seconds
    health_damaged: _Damaged
    lease: Lease | None
    kept: list[Keeping]
    live: Trial | None


class QueueJob(_Model):
    """A job of the queue."""

    id: str
    kind: str
    name: str
    boards: list[str]
    priority: int
    submitter: str
    submitted_at: float
    state: str
    board: str | None
    run: str | None
    started_at: _Seconds
    ended_at: _Seconds
    exit_status: int | None
    blame: str | None
    reason: str | None
    damaged: _Damaged


class RunPage(_Model):
    """Runs, newest first."""

    count: int = Field(description="number of all runs that meet the filters")
    runs: list[dict[str, Any]] = Field(description="as `labctl runs --json` has them")


class AuditLine(_Model):
    """One change."""

    id: int
    at: float
    actor: str
    via: str
    action: str
    subject: str
    reason: str | None
    damaged: _Damaged


class Hold(_Model):
    """A request to hold a board."""

    reason: _Reason
    time: str = Field("8h", max_length=20, description="how long: 90m, 8h")


class Release(_Model):
    """A request to release a board."""

    reason: str = Field("", max_length=500, description="needed with force")
    force: bool = Field(default=False, description="also what others hold; needs the role admin")


class Cancel(_Model):
    """A request to cancel a job."""

    reason: _Reason


class Ended(_Model):
    """Description of everything that ended."""

    ended: list[str]


@router.get("/boards")
def boards(request: Request) -> list[BoardState]:
    """Return all boards."""
    return [_board(one) for one in dashboard_of(request).view.boards()]


@router.get("/boards/{name}")
def board(request: Request, name: str) -> BoardState:
    """Return one board."""
    found = dashboard_of(request).view.board(name)
    if found is None:
        raise HTTPException(404, "no such board")
    return _board(found)


@router.post("/boards/{name}/hold")
def hold(request: Request, name: str, wish: Hold) -> BoardState:
    """Hold a board; needs the role run."""
    hold_board(dashboard_of(request), must_be(request, "run"), name, wish.reason, wish.time)
    return board(request, name)


@router.post("/boards/{name}/release")
def release(request: Request, name: str, wish: Release) -> Ended:
    """Release a board; needs the role run, with force admin."""
    user = must_be(request, "admin" if wish.force else "run")
    dashboard = dashboard_of(request)
    return Ended(ended=release_board(dashboard, user, name, wish.reason, force=wish.force))


@router.get("/queue")
def queue(
    request: Request, ended: Annotated[int, Query(ge=0, le=1000, description="ended ones")] = 0
) -> list[QueueJob]:
    """Return running jobs, waiting jobs in order, then the last jobs that ended."""
    jobs = dashboard_of(request).view.state.jobs.list(ended=ended)
    names = QueueJob.model_fields
    return [
        QueueJob.model_validate({name: _plain(getattr(job, name)) for name in names})
        for job in jobs
    ]


@router.post("/queue/{job}/cancel")
def cancel(request: Request, job: str, wish: Cancel) -> Ended:
    """Cancel your own job; an admin may cancel any."""
    found = cancel_job(dashboard_of(request), must_be(request, "run"), job, wish.reason)
    return Ended(ended=[found.id])


@router.get("/runs")
def runs(request: Request) -> RunPage:
    """Return a page of 50 runs; the query has the filters of `labctl runs`, and `page`."""
    number = page_number(request.query_params.get("page"))
    wanted = filter_words(request.query_params.multi_items())
    found, count = dashboard_of(request).view.runs(wanted, number)
    return RunPage(count=count, runs=[one.document() for one in found])


@router.get("/runs/{name}")
def run(request: Request, name: str) -> dict[str, Any]:
    """Return one run, as `labctl runs --json` has it."""
    found, _ = dashboard_of(request).view.run(name)
    if found is None:
        raise HTTPException(404, "no such run")
    return found.document()


@router.get("/audit")
def audit(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 200,
    subject: Annotated[str | None, Query(max_length=200)] = None,
) -> list[AuditLine]:
    """Return the last changes, oldest first."""
    entries = dashboard_of(request).view.state.audit.list(limit=limit, subject=subject)
    names = AuditLine.model_fields
    return [
        AuditLine.model_validate({name: getattr(one, name) for name in names}) for one in entries
    ]


def _board(one: BoardView) -> BoardState:
    lease, live = one.lease, one.live
    return BoardState(
        name=one.name,
        target=one.target,
        tags=list(one.tags),
        state=one.state,
        contact=one.health.contact,
        contact_at=one.health.contact_at,
        health=one.health.health.value,
        health_reason=one.health.reason,
        health_since=one.health.since,
        health_damaged=one.health.damaged,
        lease=None
        if lease is None
        else Lease(**{name: getattr(lease, name) for name in Lease.model_fields}),
        kept=[Keeping(**{n: getattr(k, n) for n in Keeping.model_fields}) for k in one.kept],
        live=None
        if live is None
        else Trial(
            **{n: getattr(live, n) for n in Trial.model_fields if n != "temperature_celsius"},
            temperature_celsius=None if live.temperature_mc is None else live.temperature_mc / 1000,
        ),
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
