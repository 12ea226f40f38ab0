"""A night from its plan to its pages, in a lab."""

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from labctl.build.builder import build as build_artifact
from labctl.config.lab import Board, LabFile
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError, HostError, LabctlError
from labctl.farm.host_setup import host_worker
from labctl.farm.nightly.acceptance import accepted_lines, keep_accepted
from labctl.farm.nightly.executor import GOOD
from labctl.farm.nightly.hosts import check_reach
from labctl.farm.nightly.judge import keep_flips, night_before
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.nightly.last_good import keep_good, new_good_runs
from labctl.farm.nightly.night import Night
from labctl.farm.nightly.night_jobs import NightJobs
from labctl.farm.nightly.nights import (
    CLOCK_SECONDS,
    NIGHTS,
    RESULT,
    begin_night,
    night_lock,
    past_results,
    same_programs,
    unfinished_night,
)
from labctl.farm.nightly.page import (
    NIGHT_PAGE,
    NIGHT_TEXT,
    night_markdown,
    night_page,
    trend_page,
)
from labctl.farm.nightly.plan_file import NightPlan
from labctl.farm.nightly.planning import Planned, make_plan, plan_digest, recipe_with, recipes_of
from labctl.farm.nightly.results import result_of
from labctl.farm.nightly.search import search_commits
from labctl.farm.nightly.sources import Sources, sources_of
from labctl.farm.nightly.standing import standing_alarms, with_past
from labctl.farm.nightly.state import NightState
from labctl.farm.worker import Worker
from labctl.files import write_atomic
from labctl.locks import locked
from labctl.records.night import CommitSearch, NightRecord, NightResult
from labctl.results.gates import leave_open
from labctl.transport.base import Transport


@dataclass(frozen=True)
class NightRequest:
    """A request for a night. ``say`` gets a line for each step."""

    lab: LabFile
    plan: NightPlan
    document: Document
    connect: Callable[[Board], Transport]
    say: Callable[[str], None]
    #: Begin a new night although the last one could be resumed.
    new: bool = False
    strict: bool = False
    #: Name of this lab host in devices.yaml; None: the host's own name.
    host: str | None = None

    @property
    def own_host(self) -> str:
        """The name of this lab host."""
        return self.host or socket.gethostname()


def run_night(request: NightRequest) -> tuple[NightResult, Path]:
    """Run a night, or resume the interrupted one. Return its result and its folder.

    Raises ConfigError for an invalid plan, HostTimeout if another labctl runs it, HostError if this
    host cannot save the findings.
    """
    with _alone(request):
        planned, folder = _begun(request)
        night, sources, jobs = _night(request, planned, folder)
        past = past_results(request.lab.root, request.plan.name, before=folder.name)
        with jobs.served(_worker(request, planned.record), request.plan.name):
            night.run()
            good, moved = dict[str, str | None](), list[str]()
            for build in dict.fromkeys(row.build for row in planned.record.rows):
                if runs := new_good_runs(night, build, past):
                    name = sources.baseline(build)
                    keep_good(request.lab, night, build, name, runs)
                    request.say(f"the last good build of {build} is head now: baseline {name}")
                    moved.append(build)
                side = night.state.sides(build).get(GOOD)
                good[build] = None if side is None else side.source
            alarms = standing_alarms(past, good)
            searches = search_commits(night, alarms) if planned.record.bisect else []
            night.withdraw()
        return _finish(request, night, folder, searches, moved), folder


def ready_night(request: NightRequest) -> Path:
    """Begin a night, or find the interrupted one; return its folder. No run of it begins yet.

    Raises as :func:`run_night` does.
    """
    with _alone(request):
        return _begun(request)[1]


def _alone(request: NightRequest) -> AbstractContextManager[object]:
    lock = night_lock(request.lab.root, request.plan.name)
    return locked(lock, timeout=0, holder="another night of this plan")


def _night(
    request: NightRequest, planned: Planned, folder: Path
) -> tuple[Night, Sources, NightJobs]:
    record = planned.record
    sources = sources_of(request.lab, request.plan, planned)
    jobs = NightJobs(
        request.lab,
        record.id,
        request.own_host,
        request.say,
        partial(recipe_with, request.lab, record.recipes),
        record.deadline,
    )
    executor = LabExecutor(request.lab, sources, jobs, request.say, request.plan.figure)
    return Night(record, NightState(folder, record.rows), executor), sources, jobs


def _worker(request: NightRequest, record: NightRecord) -> Worker:
    """Return the worker of a night, for its boards of this host."""
    lab, named = request.lab, (name for row in record.rows for name in (row.board, *row.equals))
    own = [
        name for name in dict.fromkeys(named) if lab.board(name).host in (None, request.own_host)
    ]
    return host_worker(
        lab,
        request.own_host,
        own,
        connect=request.connect,
        compare=leave_open,
        note=request.say,
        group=record.id,
        build=build_artifact,
    )


def _finish(
    request: NightRequest,
    night: Night,
    folder: Path,
    searches: Sequence[CommitSearch] = (),
    moved: Sequence[str] = (),
) -> NightResult:
    """Write the pages of a night and, last, its result."""
    root, plan = request.lab.root, request.plan.name
    find = request.plan.find
    result = with_past(
        result_of(night, searches, strict=request.strict),
        past_results(root, plan, before=folder.name),
        night.record.rows,
        same_programs(root, plan, find),
    )
    accepted = keep_accepted(request.lab, result, night.record.rows, moved)
    result = result.model_copy(update={"accepted": tuple(accepted_lines(accepted))})
    if before := night_before(request.lab, result):
        keep_flips(request.lab, before, result)
    write_atomic(folder / NIGHT_PAGE, night_page(result))
    write_atomic(folder / NIGHT_TEXT, night_markdown(result))
    # The file written last marks the end of the night.
    write_atomic(folder / RESULT, result.model_dump_json(indent=2) + "\n")
    _write_trend(request)
    return result


def _begun(request: NightRequest) -> tuple[Planned, Path]:
    """Begin a night, or continue one; if it cannot begin, the plan's page says why."""
    try:
        found = _planned(request)
    except LabctlError as error:
        with suppress(HostError):  # the reason matters more
            _write_trend(request, error)
        raise
    with suppress(HostError):  # it is written again at the end
        _write_trend(request)
    return found


def _write_trend(request: NightRequest, problem: LabctlError | None = None) -> None:
    root, plan = request.lab.root, request.plan.name
    write_atomic(root / NIGHTS / f"{plan}.html", trend_page(plan, root, problem))


def _planned(request: NightRequest) -> tuple[Planned, Path]:
    """Return the interrupted night, or a new one; a night without time left gets its result."""
    root, now = request.lab.root, datetime.now(UTC).timestamp()
    if cut_off := _cut_off(request):
        folder, record = cut_off
        is_same = record.plan_sha256 == plan_digest(request.document)
        is_ahead = record.started.timestamp() > now + CLOCK_SECONDS
        if is_ahead:
            request.say(f"night {folder.name} was begun with a wrong clock: it does not continue")
        elif is_same and record.deadline > now and not request.new:
            for row in record.rows:
                check_reach(request.lab, row.board, request.own_host)
            request.say(f"night {folder.name} continues")
            return Planned(record, recipes_of(request.lab, record)), folder
        night, *_ = _night(request, Planned(record, {}), folder)
        night.withdraw()
        _finish(request, night, folder)
        request.say(f"night {folder.name} was interrupted: {folder / NIGHT_TEXT} has its findings")
    fresh = make_plan(request.lab, request.plan, request.document, host=request.host)
    folder = begin_night(root, fresh.record)
    request.say(f"night {fresh.record.id}")
    return fresh, folder


def _cut_off(request: NightRequest) -> tuple[Path, NightRecord] | None:
    """Return the last night if it was interrupted. Raises ConfigError for a damaged one.

    A damaged night does not prevent a new one.
    """
    try:
        return unfinished_night(request.lab.root, request.plan.name)
    except ConfigError as error:
        if not request.new:
            raise
        request.say(f"the last night gets no result: {error.message}")
        return None
