"""Runs in progress, from their events."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labctl.records.base import NewerRecord
from labctl.records.events import (
    Answers,
    AnyEvent,
    Contact,
    Deploy,
    End,
    Evaluation,
    Fetch,
    Load,
    LoadTest,
    Loss,
    Note,
    Progress,
    Trial,
)
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventReader
from labctl.units import duration


@dataclass(frozen=True)
class LiveRun:
    """A run that a controller drives now. None: unknown."""

    run: str
    recipe: str = ""
    board: str = ""
    execution: str | None = None
    number: int | None = None
    trials: int | None = None
    variant: str = ""
    #: Its activity: the phase of the trial, or the step before the first trial.
    phase: str = ""
    done: float | None = None
    total: float | None = None
    unit: str = ""
    per_second: float | None = None
    #: Remaining time of the trial or step, in s.
    remaining_s: float | None = None
    run_remaining_s: float | None = None
    temperature_mc: int | None = None
    lost: bool = False

    @property
    def share(self) -> float | None:
        """Progress of the trial or step, 0 to 1."""
        if self.done is None or not self.total:
            return None
        return min(1.0, max(0.0, self.done / self.total))


def after(live: LiveRun, event: AnyEvent) -> LiveRun:
    """Return the activity of a run after an event."""
    new: dict[str, Any] = {}
    match event:
        case Contact():  # another controller or board: earlier facts are no longer valid
            return LiveRun(live.run, event.recipe, event.board, event.execution)
        case Evaluation():
            new = {"recipe": event.recipe, "total": event.planned, "done": event.done}
        case LoadTest():
            new = {"recipe": event.recipe}
        case Load():
            left = None if event.duration_s is None else event.duration_s - event.elapsed_s
            new = {"phase": event.load, "unit": "requests", **_of(event, "done", "total")}
            new["remaining_s"] = left if left is None or left > 0 else None
        case Fetch() | Deploy():
            new = _of(event, "done", "total", "remaining_s", "per_second")
            new |= {"phase": event.step, "unit": ""}
        case Trial():
            new = _of(event, "number", "trials", "variant") | dict.fromkeys(
                ("done", "total", "per_second")
            )
            new |= {"phase": event.state, "remaining_s": event.expected_s, "lost": False}
            new["run_remaining_s"] = event.run_remaining_s or live.run_remaining_s
        case Progress():
            new = _of(event, "phase", "done", "total", "unit", "per_second", "remaining_s")
            new["temperature_mc"] = event.temperature_mc or live.temperature_mc
            new["lost"] = False
        case Answers():
            new = {"phase": "answers", "total": event.planned, **_of(event, "done", "remaining_s")}
        case Loss():
            new = {"lost": True}
    return replace(live, **new)


def _of(event: AnyEvent, *names: str) -> dict[str, Any]:
    return {name: getattr(event, name) for name in names}


def event_line(event: AnyEvent) -> str | None:
    """Return an event as a line of a log; None for progress, which logs do not show."""
    words: str | None = None
    if isinstance(event, Contact):
        words = f"{event.recipe} on {event.board} ({event.target}, {event.execution})"
    elif isinstance(event, Evaluation):
        words = f"{event.recipe}: {event.planned} generations, {event.done} there already"
    elif isinstance(event, LoadTest):
        words = f"{event.recipe}: load test"
    elif isinstance(event, Fetch | Deploy):
        ended = event.total is not None and event.done >= event.total
        words = f"{event.step}: done" if ended else None
    elif isinstance(event, Trial):
        why = event.reason or (event.failure.message if event.failure else "")
        token = "" if event.token_ns is None else f", {duration(event.token_ns)} a token"
        words = f"trial {event.number}/{event.trials} {event.slug}: {event.state}{token}"
        words += f": {why}" if why else ""
    elif isinstance(event, Loss | Note):
        words = event.text
    elif isinstance(event, End):
        why = f": {event.failure.message}" if event.failure else ""
        words = f"the run has {event.state}{why}"
    return None if words is None else f"{event.utc:%H:%M:%S} {words}"


@dataclass
class LiveRuns:
    """Follows the runs in progress."""

    _readers: dict[str, EventReader] = field(default_factory=dict)
    _known: dict[str, LiveRun] = field(default_factory=dict)

    def look(self, runs: Path, unfinished: Sequence[str]) -> list[LiveRun]:
        """Read new events since the last look; ``unfinished``: ids of possibly active runs."""
        found = []
        for run in unfinished:
            directory = RunDirectory(runs / run)
            if not directory.is_held():
                continue
            reader = self._readers.setdefault(run, EventReader(directory.path / EVENTS))
            live = self._known.get(run, LiveRun(run))
            try:
                for event in reader.read():
                    live = after(live, event)
            except (NewerRecord, OSError):
                continue  # run of a newer labctl, or removed: nothing can be shown
            self._known[run] = live
            found.append(live)
        alive = {one.run for one in found}
        for run in self._known.keys() - alive:
            del self._known[run], self._readers[run]
        return found
