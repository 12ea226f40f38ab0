"""Pages for readers."""

from collections import Counter
from functools import partial

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from labctl.board.status import BOARD_USES
from labctl.errors import ConfigError
from labctl.figures.accuracy import ACCURACY
from labctl.figures.trials import TOKEN
from labctl.index.filters import KINDS, STATES, VERDICTS
from labctl.index.index import IndexedRun
from labctl.web.dashboard import UserRoute, dashboard_of, page, still_reads, user_of
from labctl.web.render import FILES, file_of
from labctl.web.run_filter import filter_words, page_number, pages
from labctl.web.run_pages import run_facts
from labctl.web.watcher import EventStream

router = APIRouter(include_in_schema=False, route_class=UserRoute)
#: Routes for everybody who reaches the server.
public = APIRouter(include_in_schema=False)
_ENDED_JOBS = 50
#: Ages in the menu of runs.
_AGES = ("1d", "7d", "30d", "90d")
_AUDIT_ENTRIES = 200
_HISTORY_ENTRIES = 200


@router.get("/")
def boards(request: Request) -> Response:
    """Show all boards."""
    view = dashboard_of(request).view
    found = view.boards()
    counts = Counter(one.state for one in found)
    return page(
        request,
        "boards",
        topics="boards runs",
        boards=found,
        executions=view.executions(),
        free=counts.pop("idle", 0),
        counts=[(state, counts[state]) for state in BOARD_USES if counts[state]],
    )


@router.get("/boards/{name}")
def board(request: Request, name: str) -> Response:
    """Show one board, and its history."""
    view = dashboard_of(request).view
    found = view.board(name)
    if found is None:
        raise HTTPException(404)
    history = view.state.health.history(name, limit=_HISTORY_ENTRIES)
    runs, _ = view.runs(filter_words([("board", name)]))
    return page(
        request,
        "board",
        topics="boards runs",
        board=found,
        executions=view.executions(),
        typed={},
        history=list(reversed(history)),
        runs=runs[:10],
        audit=list(reversed(view.state.audit.list(subject=name, limit=20))),
    )


@router.get("/queue")
def queue(request: Request) -> Response:
    """Show the queue, and the last ended jobs."""
    view = dashboard_of(request).view
    jobs = view.state.jobs.list(ended=_ENDED_JOBS)
    return page(request, "queue", topics="queue", jobs=jobs, executions=view.executions())


@router.get("/runs")
def runs(request: Request) -> Response:
    """Show the runs that match the filters of the query."""
    view = dashboard_of(request).view
    query = list(request.query_params.multi_items())
    problem, count, number = None, 0, 1
    found: list[IndexedRun] = []
    try:
        number = page_number(request.query_params.get("page"))
        wanted = filter_words(query)
    except ConfigError as error:
        problem = error.message
    else:
        found, count = view.runs(wanted, number)
    return page(
        request,
        "runs",
        topics="runs" if number == 1 else "",
        status=400 if problem else 200,
        problem=problem,
        runs=found,
        count=count,
        number=number,
        last=pages(count),
        asked=dict(query),
        choices={
            "recipe": view.names("run", "recipe"),
            "board": view.names("run", "board"),
            "model": view.names("model", "key"),
            "tag": view.names("tag", "tag"),
            "since": _AGES,
            "state": STATES,
            "verdict": VERDICTS,
            "kind": KINDS,
        },
        token=TOKEN,
    )


@router.get("/runs/{name}")
def run(request: Request, name: str) -> Response:
    """Show one run."""
    view = dashboard_of(request).view
    found, directory = view.run(name)
    if found is None and directory is None:
        raise HTTPException(404)
    live = next((one for one in view.live() if one.run == name), None)
    return page(
        request,
        "run",
        topics="runs",
        name=name,
        one=found,
        live=live,
        is_here=directory is not None,
        facts=run_facts(found),
    )


@router.get("/accuracy")
def accuracy(request: Request) -> Response:
    """Show the evaluations, newest first."""
    number = page_number(request.query_params.get("page"))
    wanted = filter_words([("kind", "evaluation")])
    found, count = dashboard_of(request).view.runs(wanted, number)
    return page(
        request,
        "accuracy",
        topics="runs",
        runs=found,
        number=number,
        last=pages(count),
        accuracy=ACCURACY,
    )


@router.get("/audit")
def audit(request: Request) -> Response:
    """Show who changed what."""
    entries = dashboard_of(request).view.state.audit.list(limit=_AUDIT_ENTRIES)
    return page(request, "audit", topics="audit", entries=list(reversed(entries)))


@public.get("/sign-in")
def sign_in(request: Request) -> Response:
    """Show the form for a token."""
    return page(request, "sign_in", problem=None, signed_in=user_of(request))


@router.get("/live")
async def live(request: Request) -> Response:
    """Send a page the names of its changed parts, as server-sent events."""
    watcher = dashboard_of(request).watcher
    return EventStream(watcher, watcher.changes(partial(still_reads, request)))


@public.get("/static/{name}")
def static(name: str) -> Response:
    """Return a file for browsers."""
    if name not in FILES:
        raise HTTPException(404)
    headers = {"cache-control": "public, max-age=3600"}
    return Response(file_of(name), media_type=FILES[name], headers=headers)
