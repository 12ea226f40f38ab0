"""Nights: their list, and a page for each, which begins with what got slower."""

from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from labctl.errors import ConfigError, ExitStatus
from labctl.farm.nightly.nights import RESULT, night_lock, nights_of, past_result, read_night
from labctl.farm.nightly.results import (
    build_facts,
    change,
    notes_of,
    row_name,
    sentence,
    verdict_parts,
    worst_first,
)
from labctl.locks import is_locked
from labctl.records.night import NightRecord, NightResult
from labctl.web.dashboard import UserRoute, dashboard_of, page
from labctl.web.run_filter import PAGE_RUNS, page_number, pages

router = APIRouter(include_in_schema=False, route_class=UserRoute)
#: Exit status of a night -> verdict, in the words of runs.
_VERDICTS = {ExitStatus.OK: "passed", ExitStatus.JOB: "failed", ExitStatus.INFRA: "infra"}


class NightView:
    """A night on pages. ``record``, ``result``: None if missing or damaged."""

    record: NightRecord | None = None

    def __init__(self, folder: Path):
        self.id = folder.name
        self.result: NightResult | None = past_result(folder)
        self.state = "damaged"
        try:
            self.record = read_night(folder)
        except ConfigError:
            return
        if self.result is not None:
            self.state = _VERDICTS.get(self.result.exit_status, "infra")
        elif not (folder / RESULT).exists():
            lock = night_lock(folder.parent.parent, self.record.plan)
            newest = next(iter(nights_of(folder.parent.parent, self.record.plan)), None)
            self.state = "running" if newest == folder and is_locked(lock) else "interrupted"

    @property
    def lines(self) -> list[str]:
        """Its verdict, the worst first: what is slower, by which commit, what has no verdict."""
        return verdict_parts(self.result) if self.result else []

    @property
    def executions(self) -> list[str]:
        """The executions of its findings."""
        found = self.result.findings if self.result else ()
        return sorted({one.execution for one in found if one.execution})


@router.get("/nights")
def nights(request: Request) -> Response:
    """Show the nights of all plans, newest first."""
    number = page_number(request.query_params.get("page"))
    found = nights_of(dashboard_of(request).lab.root)
    shown = found[(number - 1) * PAGE_RUNS : number * PAGE_RUNS]
    return page(
        request,
        "nights",
        topics="runs",
        nights=[NightView(folder) for folder in shown],
        count=len(found),
        number=number,
        last=pages(len(found)),
    )


@router.get("/nights/{name}")
def night(request: Request, name: str) -> Response:
    """Show one night."""
    folder = next((f for f in nights_of(dashboard_of(request).lab.root) if f.name == name), None)
    if folder is None:
        raise HTTPException(404)
    view = NightView(folder)
    result = view.result
    return page(
        request,
        "night",
        topics="runs",
        night=view,
        builds=list(build_facts(result)) if result else [],
        notes=list(notes_of(result)) if result else [],
        rows=[
            (one, row_name(one), change(one), sentence(one))
            for one in (worst_first(result.findings) if result else ())
        ],
    )
