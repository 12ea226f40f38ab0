"""Trends: figures of each variant from night to night, with the found changes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from labctl.compare.regressions import (
    Change,
    ChangeStatus,
    Judged,
    is_long_enough,
    lab_changes,
)
from labctl.compare.series import Series
from labctl.compare.words import percent
from labctl.index.filters import Filter
from labctl.index.index import Index
from labctl.report.regressions import shown
from labctl.stats.steps import FALSE_EACH_MORNING, FALSE_ONCE
from labctl.web.dashboard import UserRoute, dashboard_of, page

router = APIRouter(include_in_schema=False, route_class=UserRoute)
#: Up to this number of runs all series are read; with more runs the user chooses a recipe first.
_MOST_RUNS = 2000
_WIDTH, _HEIGHT, _EDGE = 640.0, 120.0, 10.0
_KEPT = 16


@dataclass(frozen=True)
class Point:
    """A night on a plot, in units of its picture."""

    x: float
    y: float
    run: str
    started: str
    value: str
    is_change: bool


@dataclass(frozen=True)
class Trend:
    """A series on a page."""

    judged: Judged
    points: tuple[Point, ...]

    @property
    def series(self) -> Series:
        """The series itself."""
        return self.judged.series

    @property
    def changes(self) -> tuple[Change, ...]:
        """Its changes."""
        return self.judged.changes

    @property
    def untold(self) -> str:
        """The percentage below which steps cannot be detected; "" if unknown."""
        smallest = self.judged.smallest
        return percent(smallest) if smallest else ""

    @property
    def is_long_enough(self) -> bool:
        """True if the series is long enough to look for a step."""
        return is_long_enough(self.series)

    @property
    def status(self) -> str:
        """Its worst verdict: confirmed, suspected, or none."""
        open_ones = [one for one in self.changes if one.slower and not one.repaired]
        for status in (ChangeStatus.CONFIRMED, ChangeStatus.SUSPECTED):
            if any(one.status is status for one in open_ones):
                return status.value
        return ""

    @property
    def path(self) -> str:
        """The line of its plot, as SVG's path data."""
        return " ".join(
            f"{'L' if number else 'M'}{point.x:.1f} {point.y:.1f}"
            for number, point in enumerate(self.points)
        )

    @property
    def latest(self) -> str:
        """The value of the last night."""
        return shown(self.series.figure, self.series.nights[-1].value)


@router.get("/trends")
def trends(request: Request) -> Response:
    """Show the series of a recipe, or all series of a small lab."""
    view = dashboard_of(request).view
    recipes = view.repository.answer(Index.recipes) or []
    recipe = request.query_params.get("recipe") or None
    board = request.query_params.get("board") or None
    count = sum(number for _, _, number in recipes)
    found: tuple[Trend, ...] = ()
    if recipe or board or count <= _MOST_RUNS:
        newest = view.repository.answer(lambda index: index.runs(limit=1)) or []
        stamp = f"{count} {newest[0].run.id} {newest[0].run.stamp}" if newest else ""
        found = _trends(view.runs_folder, recipe, board, stamp)
    return page(
        request,
        "trends",
        topics="",
        trends=found,
        recipes=sorted({name for name, _, _ in recipes}),
        boards=sorted({name for _, name, _ in recipes if name}),
        recipe=recipe,
        board=board,
        choose=not (recipe or board) and count > _MOST_RUNS,
        size=(_WIDTH, _HEIGHT),
        false_once=percent(FALSE_ONCE),
        false_each_morning=percent(FALSE_EACH_MORNING),
    )


@lru_cache(maxsize=_KEPT)
def _trends(runs: Path, recipe: str | None, board: str | None, _stamp: str) -> tuple[Trend, ...]:
    """Return series, open regressions first; cached until a newer run exists."""
    found, _ = lab_changes(runs, Filter(recipe=recipe, board=board, kind="timing"))
    made = [Trend(one, _points(one.series, one.changes)) for one in found]
    order = {"confirmed": 0, "suspected": 1, "": 2}
    return tuple(sorted(made, key=lambda one: (order[one.status], one.series.name)))


def _points(series: Series, changes: Sequence[Change]) -> tuple[Point, ...]:
    values = [math.log(value) for value in series.values]
    low, high = min(values), max(values)
    # At least 10 %, so that noise of 1 % does not look large.
    middle, half = (low + high) / 2, max((high - low) / 2, 0.05)
    steps = {change.step.index for change in changes}
    last = max(1, len(values) - 1)
    return tuple(
        Point(
            x=_EDGE + number / last * (_WIDTH - 2 * _EDGE),
            y=_HEIGHT / 2 - (value - middle) / half * (_HEIGHT / 2 - _EDGE),
            run=night.run,
            started=night.started[:16].replace("T", " "),
            value=shown(series.figure, night.value),
            is_change=number in steps,
        )
        for number, (value, night) in enumerate(zip(values, series.nights, strict=True))
    )
