"""Trends: figures of each variant from night to night, with the found changes, worst first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from labctl.compare.regressions import Change, Judged, is_long_enough, lab_changes
from labctl.compare.series import Night, Series
from labctl.compare.words import percent
from labctl.index.filters import Filter
from labctl.index.index import Index
from labctl.report.figures.marks import TimeScale
from labctl.report.regressions import shown
from labctl.stats.steps import FALSE_EACH_MORNING, FALSE_ONCE
from labctl.units import natural_order
from labctl.web.dashboard import UserRoute, dashboard_of, page

router = APIRouter(include_in_schema=False, route_class=UserRoute)
#: Up to this number of runs all series are read; with more runs the user chooses a recipe first.
_MOST_RUNS = 2000
#: Up to this number of series each has a plot of the page's width; more are small, side by side.
_MOST_LARGE = 3
#: An axis covers at least this share of its values, so that noise of 1 % does not look large.
_LEAST_RANGE = 0.1
_MOST_DATES = 5
#: A series has stopped if its last value is older than the newest of the page by more than this.
_STOPPED = timedelta(days=3)
_KEPT = 16


@dataclass(frozen=True)
class Axis:
    """A vertical axis from 0 % at its top to 100 %: round values in one unit."""

    unit: str
    #: Values of the ticks with their texts, from the lowest.
    ticks: tuple[tuple[float, str], ...]

    @classmethod
    def of(cls, series: Series) -> "Axis":
        """Return the axis for the values of a series."""
        low, high = min(series.values), max(series.values)
        more = max(0.0, _LEAST_RANGE * (low + high) / 2 - (high - low)) / 2
        if series.figure.more_is_faster:
            scale, unit = 1.0, "tokens/s"
        else:
            times = TimeScale.of([high])
            scale, unit = times.ns, times.unit
        rough = (high - low + 2 * more) / scale / 3
        power = 10.0 ** math.floor(math.log10(rough))
        step = power * next(n for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
        first = math.floor((low - more) / scale / step)
        last = max(first + 1, math.ceil((high + more) / scale / step))
        places = max(0, -math.floor(math.log10(step) + 1e-9))
        numbers = [number * step for number in range(first, last + 1)]
        return cls(unit, tuple((number * scale, f"{number:.{places}f}") for number in numbers))

    def place(self, value: float) -> float:
        """Return the place of a value, in percent."""
        bottom, top = self.ticks[0][0], self.ticks[-1][0]
        return 100 * (top - value) / (top - bottom)


@dataclass(frozen=True)
class Trend:
    """A series on a page."""

    judged: Judged

    @property
    def series(self) -> Series:
        """The series itself."""
        return self.judged.series

    @property
    def nights(self) -> tuple[Night, ...]:
        """Its nights, in the order of their sources."""
        return self.series.nights

    @property
    def has_days(self) -> bool:
        """True if days count as nights: runs that belong to no night of ``labctl nightly``."""
        return any(len(one.name) == len("2026-11-22") for one in self.nights)

    @property
    def count(self) -> int:
        """The number of different nights."""
        return len({one.name for one in self.nights})

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
    def worst(self) -> Change | None:
        """Its worst regression that still exists."""
        return min(
            (one for one in self.changes if one.slower and not one.repaired and _open(one) < 2),
            key=lambda one: (_open(one), -abs(math.log(one.step.ratio))),
            default=None,
        )

    @property
    def order(self) -> tuple[int, float, str]:
        """Its place on the page: confirmed regressions first, the largest of them first."""
        size = abs(math.log(self.worst.step.ratio)) if self.worst else 0.0
        return _open(self.worst), -size, natural_order(self.series.name)

    @cached_property
    def axis(self) -> Axis:
        """The axis of its values."""
        return Axis.of(self.series)

    def x(self, number: int) -> float:
        """Return the horizontal place of a night, in percent."""
        return 100 * (number + 0.5) / len(self.nights)

    @cached_property
    def places(self) -> list[tuple[float, float]]:
        """The places of its nights, in percent from the left and from the top."""
        values = self.series.values
        return [(self.x(n), self.axis.place(value)) for n, value in enumerate(values)]

    @property
    def levels(self) -> list[tuple[float, float, float]]:
        """Its levels between steps: left and right end, and height, in percent."""
        steps = [one.step for one in self.changes]
        ends = [0.0, *(100 * one.index / len(self.nights) for one in steps), 100.0]
        values = [one.before for one in steps[:1]] + [one.after for one in steps]
        places = map(self.axis.place, values)
        return [(left, right, y) for (left, right), y in zip(pairwise(ends), places, strict=False)]

    @property
    def dates(self) -> list[tuple[float, str]]:
        """Places and dates of some nights, from the first to the last."""
        last, most = len(self.nights) - 1, min(_MOST_DATES, len(self.nights))
        numbers = sorted({round(n * last / max(1, most - 1)) for n in range(most)})
        return [(self.x(n), self.nights[n].started[:10]) for n in numbers]

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return shown(self.series.figure, value)

    def stopped(self, newest: str) -> str:
        """Return the day of its last value if it is days older than the page's newest, else ""."""
        last = self.nights[-1].started
        age = datetime.fromisoformat(newest) - datetime.fromisoformat(last)
        return last[:10] if age > _STOPPED else ""

    def label(self, common: Sequence[str]) -> str:
        """Return its name without the parts that all series of the page have."""
        return " ".join(one for one in _parts(self.series) if one not in common)


def _open(change: Change | None) -> int:
    order = ("confirmed", "suspected")
    return order.index(change.status) if change and change.status in order else len(order)


def _parts(series: Series) -> list[str]:
    parts = (series.board, series.recipe, series.variant, series.figure.short, series.apart.strip())
    return [part for part in parts if part]


@router.get("/trends")
def trends(request: Request) -> Response:
    """Show the series of a recipe, or all series of a small lab."""
    view = dashboard_of(request).view
    recipes = view.repository.answer(Index.recipes) or []
    recipe, board, variant = (
        request.query_params.get(name) or None for name in ("recipe", "board", "variant")
    )
    count = sum(number for _, _, number in recipes)
    found: tuple[Trend, ...] = ()
    if recipe or board or count <= _MOST_RUNS:
        newest = view.repository.answer(lambda index: index.runs(limit=1)) or []
        stamp = f"{count} {newest[0].run.id} {newest[0].run.stamp}" if newest else ""
        found = _trends(view.runs_folder, recipe, board, stamp)
    variants = sorted({one.series.variant for one in found}, key=natural_order)
    found = tuple(one for one in found if variant in (None, one.series.variant))
    names = [_parts(one.series) for one in found]
    common = [part for part in names[0] if all(part in one for one in names)] if names[1:] else []
    return page(
        request,
        "trends",
        topics="",
        trends=found,
        common=common,
        newest=max((one.nights[-1].started for one in found), default=""),
        is_large=len(found) <= _MOST_LARGE or variant is not None,
        choices={
            "recipe": sorted({name for name, _, _ in recipes}, key=natural_order),
            "board": sorted({name for _, name, _ in recipes if name}, key=natural_order),
            "variant": variants,
        },
        asked={"recipe": recipe, "board": board, "variant": variant},
        choose=not (recipe or board) and count > _MOST_RUNS,
        false_once=percent(FALSE_ONCE),
        false_each_morning=percent(FALSE_EACH_MORNING),
    )


@lru_cache(maxsize=_KEPT)
def _trends(runs: Path, recipe: str | None, board: str | None, _stamp: str) -> tuple[Trend, ...]:
    """Return series, open regressions first; cached until a newer run exists."""
    found, _ = lab_changes(runs, Filter(recipe=recipe, board=board, kind="timing"))
    return tuple(sorted(map(Trend, found), key=lambda one: one.order))
