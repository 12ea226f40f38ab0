"""One run: its report, its facts, its growing log."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

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
#: A report as a file runs its own script but cannot reach the dashboard: it has an opaque origin.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'none'"
_MOST_LINES = 2000
_LOOK_SECONDS = 0.5
_KEPT_REPORTS = 8


@router.get("/runs/{name}")
async def run(request: Request, name: str) -> Response:
    """Show one run with its report.

    A page that has the report already names its stamp, and gets the rest.
    """
    view = dashboard_of(request).view
    found, directory = await asyncio.to_thread(view.run, name)
    if found is None and directory is None:
        raise HTTPException(404)
    stamp, text, problem = "", "", ""
    if directory is not None:
        stamp = await asyncio.to_thread(_stamp, request, directory)
        if stamp != request.headers.get("labctl-known"):
            try:
                text = await _report(request, directory, stamp, inline=True)
            except LabctlError as error:
                problem = error.message
    return page(
        request,
        "run",
        topics="runs",
        name=name,
        one=found,
        live=next((one for one in view.live() if one.run == name), None),
        is_here=directory is not None,
        facts=run_facts(found),
        stamp=stamp,
        report=Markup(text),  # noqa: S704 - made by the template of reports
        problem_of_report=problem,
    )


@router.get("/runs/{name}/report")
async def report(request: Request, name: str) -> Response:
    """Return the report on a run as one file."""
    directory = await asyncio.to_thread(_directory, request, name)
    stamp = await asyncio.to_thread(_stamp, request, directory)
    try:
        text = await _report(request, directory, stamp, inline=False)
    except LabctlError as error:
        return page(request, "error", status=404, title="No report", problem=error.message)
    return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY})


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
    """Return the facts of a run in the index: names (keys of translations) and values.

    Its state is on its page already, in the report or above.
    """
    if one is None:
        return []
    run = one.run
    tried = f"{run.trials_ok}/{run.trials_planned}" if run.kind != "load-test" else ""
    facts = {
        "Recipe": run.recipe,
        "Board": run.board or "",
        "Target": run.target or "",
        "Execution": run.execution or "",
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
        "Night": run.night or "",
    }
    return [(name, text) for name, text in facts.items() if text]


def _directory(request: Request, name: str) -> RunDirectory:
    _, directory = dashboard_of(request).view.run(name)
    if directory is None:
        raise HTTPException(404)
    return directory


def _stamp(request: Request, directory: RunDirectory) -> str:
    """Return a text that differs when the report does."""
    return f"{stamp_of(directory.path)} {directory.is_held()} {_language(request)}"


def _language(request: Request) -> Code:
    return language_of(request.query_params.get("lang"), request.cookies, request.headers)


async def _report(request: Request, directory: RunDirectory, stamp: str, *, inline: bool) -> str:
    """Return a report, cached until the run changes. Raises LabctlError."""
    async with dashboard_of(request).reports:
        return await asyncio.to_thread(
            _made_report, directory.path, stamp, _language(request), inline=inline
        )


@lru_cache(maxsize=_KEPT_REPORTS)
def _made_report(path: Path, _stamp: str, code: Code, *, inline: bool) -> str:
    from labctl.report.page.files import make_report
    from labctl.report.page.html import html
    from labctl.report.page.language import Language

    words = Language(code)
    return html(make_report([RunDirectory(path)], words), words, inline=inline)


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
