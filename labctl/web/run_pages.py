"""One run: its facts, its report in a separate frame, its growing log."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from labctl.errors import LabctlError, printable_line
from labctl.index.index import IndexedRun
from labctl.index.rows import LISTED
from labctl.records.base import NewerRecord
from labctl.report.page.language import Code
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventReader
from labctl.runs.record.index_refresh import stamp_of
from labctl.units import size
from labctl.web.dashboard import UserRoute, dashboard_of, page, still_reads
from labctl.web.live_runs import event_line
from labctl.web.render import language_of
from labctl.web.watcher import EventStream

router = APIRouter(include_in_schema=False, route_class=UserRoute)
#: The report runs its own script but cannot reach the dashboard: it has an opaque origin.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
_MOST_LINES = 2000
_LOOK_SECONDS = 0.5
_KEPT_REPORTS = 8


@router.get("/runs/{name}/report")
async def report(request: Request, name: str) -> Response:
    """Return the report on a run, for a sandboxed frame."""
    dashboard = dashboard_of(request)
    directory = await asyncio.to_thread(_directory, request, name)
    language = language_of(request.query_params.get("lang"), request.cookies, request.headers)
    async with dashboard.reports:
        try:
            text = await asyncio.to_thread(
                _report, directory.path, stamp_of(directory.path) or "", language
            )
        except LabctlError as error:
            return page(request, "no_report", problem=error.message, headers=_FRAMED)
    headers = {"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(text, headers=headers)


_FRAMED = {
    "content-security-policy": "default-src 'none'; style-src 'self'; frame-ancestors 'self'",
    "x-frame-options": "SAMEORIGIN",
}


@router.get("/runs/{name}/log")
def log(request: Request, name: str) -> Response:
    """Show the log of a run; it grows while a controller drives the run."""
    directory = _directory(request, name)
    reader = EventReader(directory.path / EVENTS)
    lines = _lines(reader)
    left_out = max(0, len(lines) - _MOST_LINES)
    return page(
        request,
        "log",
        name=name,
        lines=lines[left_out:],
        left_out=left_out,
        is_live=directory.is_held(),
        read=len(lines),
    )


@router.get("/runs/{name}/log/stream")
async def stream(request: Request, name: str, skip: int = 0) -> Response:
    """Send the lines of a log as they come, after the first ``skip`` lines."""
    directory = await asyncio.to_thread(_directory, request, name)
    watcher = dashboard_of(request).watcher
    return EventStream(watcher, _streamed(request, directory, max(0, skip)))


def run_facts(one: IndexedRun | None) -> list[tuple[str, str]]:
    """Return the facts of a run in the index: names (keys of translations) and values."""
    if one is None:
        return []
    run = one.run
    tried = f"{run.trials_ok}/{run.trials_planned}" if run.kind != "load-test" else ""
    facts = {
        "Recipe": run.recipe,
        "Board": run.board or "",
        "Target": run.target or "",
        "Execution": run.execution or "",
        "State": run.state,
        "Verdict": run.verdict or "",
        "Failure": run.failure or run.damage or "",
        "Started (UTC)": run.started[:19].replace("T", " "),
        "Ended (UTC)": (run.finished or "")[:19].replace("T", " "),
        "Good trials": tried,
        **{figure.title: figure.spread(run.figures) for figure in LISTED},
        "Models": ", ".join(model.name or model.key for model in one.models),
        "Program": " ".join(filter(None, (run.product, run.version))),
        "Commit": run.build_commit or "",
        "Tags": ", ".join(one.tags),
        "Note": run.note or "",
        "Size": size(run.size_bytes) if run.size_bytes is not None else "",
        "Imported from": run.imported_from or "",
    }
    return [(name, text) for name, text in facts.items() if text]


def _directory(request: Request, name: str) -> RunDirectory:
    _, directory = dashboard_of(request).view.run(name)
    if directory is None:
        raise HTTPException(404)
    return directory


@lru_cache(maxsize=_KEPT_REPORTS)
def _report(path: Path, _stamp: str, code: Code) -> str:
    """Return a report, cached until the run changes. Raises LabctlError."""
    from labctl.report.page.files import make_report
    from labctl.report.page.html import html
    from labctl.report.page.language import Language

    words = Language(code)
    return html(make_report([RunDirectory(path)], words), words)


def _lines(reader: EventReader) -> list[str]:
    try:
        lines = [event_line(event) for event in reader.read()]
    except NewerRecord as error:
        return [error.message]
    return [printable_line(line) for line in lines if line is not None]


async def _streamed(request: Request, directory: RunDirectory, skip: int) -> AsyncIterator[str]:
    """Yield server-sent events: one for each line, then ``end`` when no controller is left."""
    reader, streams = EventReader(directory.path / EVENTS), dashboard_of(request).watcher
    asked = time.monotonic()
    while not streams.is_closed:
        if time.monotonic() - asked >= streams.limits.alive_seconds:
            if not await still_reads(request):
                return
            asked = time.monotonic()
            yield ": still here\n\n"
        # Asked first: then the last lines are read.
        alive = await asyncio.to_thread(directory.is_held)
        lines = await asyncio.to_thread(_lines, reader)
        for line in lines[skip:]:
            yield f"event: line\ndata: {json.dumps(line)}\n\n"
        skip = max(0, skip - len(lines))
        if not alive:
            yield "event: end\ndata: \n\n"
            return
        await asyncio.sleep(_LOOK_SECONDS)
