"""Changes of a series from one level to another: their commits, and their cause.

A step between nights is only a suspicion: the room, the power supply or the board may have changed
too, and the nights that show the step are the ones in which it was found. New measurements confirm
it: the last good source and the slow source alternate. If the good source is slow now as well, the
source was not the cause.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from labctl.compare.comparison import Row, Verdict
from labctl.compare.estimates import Sessions
from labctl.compare.series import (
    Night,
    NightRun,
    Series,
    Unmeasured,
    contradicted,
    series_of,
    unmeasured,
)
from labctl.compare.sides import Session, Side
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.index.filters import Filter
from labctl.index.index import IndexedTrial
from labctl.index.rows import moment
from labctl.records.board import Execution
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.index_refresh import Note, silent
from labctl.runs.record.repository import RunRepository
from labctl.stats.power import repeats_for_difference
from labctl.stats.steps import LEAST_SERIES, Step, find_steps, noise, smallest_step


class ChangeStatus(StrEnum):
    """State of the proof of a change."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Change:
    """A step of a series.

    Args:
        step: place of the step among the nights, and both levels.
        slower: True for a regression, False for an improvement.
        repaired: True if a later change reversed it.
        status: proof by new measurements that the source is the cause; ``reason`` explains it.
        row: comparison of the new measurements; None if not made yet.
        rounds: alternating measurements of both sources that would settle it; None: no useful
            number.
    """

    series: Series
    step: Step
    slower: bool
    repaired: bool
    status: ChangeStatus
    reason: str
    row: Row | None = None
    rounds: int | None = None

    @property
    def last_good(self) -> Night:
        """The most likely last night of the old level."""
        return self.series.nights[self.step.index - 1]

    @property
    def first_slow(self) -> Night:
        """The most likely first night of the new level."""
        return self.series.nights[self.step.index]

    @property
    def surely_before(self) -> Night:
        """The last night at the old level with 95 % probability."""
        return self.series.nights[self.step.earliest - 1]

    @property
    def surely_after(self) -> Night:
        """The first night at the new level with 95 % probability."""
        return self.series.nights[self.step.latest]

    @property
    def fails(self) -> bool:
        """True for a confirmed regression that was not repaired."""
        return self.slower and not self.repaired and self.status is ChangeStatus.CONFIRMED

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that measure both sources again, alternately.

        They use sources that are surely before and after the step: the most likely ones may both be
        slow.
        """
        one, other = self.surely_before, self.surely_after
        run = f"labctl run {self.series.recipe} --board {self.series.board}"
        if one.version == other.version:
            return (f"{run}   (with {one.source} built, then with {other.source}, alternating)",)
        return tuple(f"{run} --set engine.version={night.version}" for night in (one, other))


@dataclass(frozen=True)
class Judged:
    """A series with its changes.

    ``smallest``: smallest further step that would be detected (0.08 is 8 %), at least the threshold
    ``practical``. None if not even a factor of 2 would be detected.
    """

    series: Series
    changes: tuple[Change, ...]
    smallest: float | None


def judge(series: Series, thresholds: Thresholds) -> Judged:
    """Find the changes of a series, and the smallest step that could be detected."""
    steps = find_steps(series.values)
    smallest = smallest_step(series.values, steps)
    if smallest is not None:
        smallest = max(smallest, thresholds.practical)
    return Judged(series, tuple(_changes(series, steps, thresholds)), smallest)


def lab_changes(
    runs: Path, wanted: Filter, figures: Sequence[str] = (), *, note: Note = silent
) -> tuple[list[Judged], list[Unmeasured]]:
    """Return the series of matching runs with their changes, and variants without a series.

    ``since`` applies to changes: earlier nights are read too. Imported and untrusted runs are left
    out. The recipe of a series' last night sets the thresholds of a change. ``note`` gets repeats
    that are left out because their checks failed. Raises HostError.
    """
    trials = RunRepository(runs, note).trials(replace(wanted, since=None))
    imported = {
        run for run in {one.run.id for one in trials} if RunDirectory(runs / run).is_imported
    }
    since = "" if wanted.since is None else moment(wanted.since)
    own = [one for one in trials if one.run.id not in imported]
    for text in contradicted(own):
        note(text)
    found = []
    for series in series_of(own, figures):
        last = RunDirectory(runs / series.nights[-1].run).run()
        one = judge(series, Thresholds.of_recipe(last.recipe_resolved))
        shown = tuple(change for change in one.changes if change.first_slow.started >= since)
        found.append(replace(one, changes=shown))
    return found, unmeasured(own, [one.series for one in found], since)


def find_changes(series: Series, thresholds: Thresholds) -> list[Change]:
    """Return the changes of a series that matter, in their order.

    Fewer than LEAST_SERIES nights show no change.
    """
    return _changes(series, find_steps(series.values), thresholds)


def _changes(series: Series, found: Sequence[Step], thresholds: Thresholds) -> list[Change]:
    steps = [step for step in found if step.size >= thresholds.practical]
    bounds = [0, *(step.index for step in steps), len(series.nights)]
    return [
        _change(series, step, steps[place:], (bounds[place], bounds[place + 2]), thresholds)
        for place, step in enumerate(steps)
    ]


def runs_of_regressions(trials: Iterable[IndexedTrial], thresholds: Thresholds) -> frozenset[str]:
    """Return the runs that show a regression which still exists: the nights around its step."""
    shown: set[str] = set()
    for series in series_of(trials):
        for change in find_changes(series, thresholds):
            if change.slower and not change.repaired:
                nights = series.nights[change.step.earliest - 1 : change.step.latest + 1]
                shown.update(run.run for night in nights for run in night.runs)
    return frozenset(shown)


def is_long_enough(series: Series) -> bool:
    """Return True if steps can be found in a series."""
    return len(series.nights) >= LEAST_SERIES


def _change(
    series: Series,
    step: Step,
    from_here: Sequence[Step],
    bounds: tuple[int, int],
    thresholds: Thresholds,
) -> Change:
    import numpy as np

    slower = (step.ratio > 1) is not series.figure.more_is_faster
    left = from_here[-1].after / step.before
    repaired = (left if step.ratio > 1 else 1 / left) < 1 + thresholds.practical
    before = series.nights[bounds[0] : step.earliest]
    after = series.nights[step.latest : bounds[1]]
    status, reason, row = _judge(series, before, after, thresholds, slower=slower)
    spread = noise(np.log(np.asarray(series.values)))
    rounds = repeats_for_difference(
        spread, math.log(step.ratio), threshold=thresholds.practical_log
    )
    return Change(series, step, slower, repaired, status, reason, row, rounds)


_Judged = tuple[ChangeStatus, str, Row | None]
_NOT_THE_SOURCE = "the board or its surroundings changed"


def _judge(
    series: Series,
    before: Sequence[Night],
    after: Sequence[Night],
    thresholds: Thresholds,
    *,
    slower: bool,
) -> _Judged:
    if series.execution != Execution.BOARD:
        return ChangeStatus.SUSPECTED, f"{series.execution}: says nothing about a board", None
    if None in (before[-1].revision, after[0].revision):
        return ChangeStatus.SUSPECTED, "the measured source is unknown", None
    if before[-1].revision == after[0].revision:
        return ChangeStatus.REFUTED, f"the same source before and after: {_NOT_THE_SOURCE}", None
    good, slow = _measured_in_turns(series, before, after)
    if good and slow:
        row = _compare(series, (good, before), (slow, after), thresholds)
        return _by_row(row, Verdict.SLOWER if slower else Verdict.FASTER)
    reason = "the source before it was not measured again since"
    if good:
        reason = (
            "the source before it was measured again, the source after it was not"
            " measured since then"
        )
    return ChangeStatus.SUSPECTED, reason, None


def _by_row(row: Row, expected: Verdict) -> _Judged:
    """Judge a change by new measurements of both sources."""
    if row.verdict is expected:
        return ChangeStatus.CONFIRMED, f"measured alternately: {row.reason}", row
    if row.verdict in (Verdict.SAME, Verdict.FASTER, Verdict.SLOWER):
        reason = f"measured alternately, {row.verdict}: {_NOT_THE_SOURCE} ({row.reason})"
        return ChangeStatus.REFUTED, reason, row
    return ChangeStatus.SUSPECTED, f"measured alternately: {row.reason}", row


def _measured_in_turns(
    series: Series, before: Sequence[Night], after: Sequence[Night]
) -> tuple[list[NightRun], list[NightRun]]:
    """Return the runs of both sources after the first night of the slow source.

    The first of them is a run of the good source.
    """
    newer = {night.revision for night in after}
    older = {night.revision for night in before} - newer
    first = min(after, key=lambda night: night.started)
    later = [night for night in series.again if night.name != first.name]
    good = _runs_since(later, older, first.started)
    if not good:
        return [], []
    since = min(run.started for run in good)
    return good, _runs_since((*series.nights, *series.again), newer, since)


def _runs_since(
    nights: Iterable[Night], revisions: Collection[str | None], since: str
) -> list[NightRun]:
    own = (run for night in nights if night.revision in revisions for run in night.runs)
    return [run for run in own if run.started > since]


def _compare(
    series: Series,
    good: tuple[Sequence[NightRun], Sequence[Night]],
    slow: tuple[Sequence[NightRun], Sequence[Night]],
    thresholds: Thresholds,
) -> Row:
    """Compare new runs. One run of each old night, at both levels, shows how much nights differ."""
    sides = [
        Side(name, series.variant, tuple(Session(n.run, n.repeats) for n in new))
        for name, (new, _) in (("before", good), ("after", slow))
    ]
    known = {"before": good[1], "after": slow[1]}

    def history(side: Side, without: Collection[str]) -> Sessions:
        runs = ([run for run in one.runs if run.run not in without] for one in known[side.name])
        return [own[0].repeats for own in runs if own]

    found = compare(
        [(sides[0], sides[1])],
        figures=(series.figure.gate,),
        thresholds=thresholds,
        history=history,
    )
    return found.rows[0]
