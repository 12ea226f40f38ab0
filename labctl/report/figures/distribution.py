"""Distributions: the spread of the tokens in each repeat, and the share of slow tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from labctl.figures.trials import token_time
from labctl.records.trial import TrialRecord
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import (
    TimeScale,
    left_out,
    only,
    row_axis,
    series_colour,
    series_dash,
)
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.figures.moments import single_tokens
from labctl.report.page.language import Language
from labctl.stats.describe import mean, median, percentile
from labctl.units import duration

T = TypeVar("T")

REPEATS, ECDF = "repeats", "ecdf"
#: With more rows a figure is unreadable: then one row for each variant.
_MOST_ROWS = 24
_ROW = 40
#: Maximum number of ticks in a row; with more tokens, only every n-th by time is drawn.
_MOST_TICKS = 150
_MOST_STEPS = 200
#: The axis covers this percentile of all values to the opposite percentile, and every box.
_CUT = 0.5


@dataclass(frozen=True)
class _Group:
    """Values of one row, in ns, and the median for comparison."""

    label: str
    series: str
    times: Sequence[float]
    middle: float

    def percent(self, time: float) -> float:
        """Return the difference of a time from this median, in %."""
        return float(f"{100 * (time / self.middle - 1):.5g}")

    def box(self, scale: TimeScale) -> Row:
        """Return the data row of the box."""
        marks = {f"p{q}": self.percent(percentile(self.times, q)) for q in (5, 25, 50, 75, 95)}
        middle = median(self.times)
        return {
            "kind": "box",
            "row": self.label,
            "series": self.series,
            **marks,
            "mean": self.percent(mean(self.times)),
            "median_time": scale.of_ns(middle),
            "values": len(self.times),
        }

    def ticks(self, scale: TimeScale) -> Iterator[Row]:
        """Yield the data rows of the single values."""
        for time in thinned(sorted(self.times), _MOST_TICKS):
            yield {
                "kind": "value",
                "row": self.label,
                "series": self.series,
                "percent": self.percent(time),
                "time": scale.of_ns(time),
            }


def repeats(runs: Sequence[MeasuredRun], words: Language) -> Figure | Missing:
    """Draw the spread of the tokens in each repeat, relative to the median of its variant."""
    timed = [one for one in all_series(runs) if any(map(single_tokens, one.trials))]
    if not timed:
        return Missing(
            REPEATS,
            words("Distribution in each repeat"),
            words("no repeat has the times of single tokens"),
        )
    shown = distinguishable(timed)
    by_repeat = sum(len(one.trials) for one in shown) <= _MOST_ROWS
    groups = [group for one in shown for group in _groups(one, by_repeat=by_repeat)]
    scale = TimeScale.of([time for group in groups for time in group.times])
    rows: list[Row] = [row for one in groups for row in (one.box(scale), *one.ticks(scale))]
    low, high = _limits(groups)
    outside = sum(not low <= g.percent(time) <= high for g in groups for time in g.times)
    caption = words(
        "One row for each repeat: a tick for each token, the box from the 25th to the 75th"
        " percentile, the line from the 5th to the 95th; the bar in the box is the median, ◆ the"
        " mean."
        if by_repeat
        else "One row for each variant: a tick for the mean of each repeat, the box from the 25th"
        " to the 75th percentile, the line from the 5th to the 95th; the bar in the box is the"
        " median, ◆ the mean."
    )
    if outside:
        caption += words(" Values outside of the axis: {count}.", count=outside)
    caption += left_out(shown, timed, words)
    names = [one.label for one in shown]
    labels = [group.label for group in groups]
    return Figure(
        name=REPEATS,
        title=words("Distribution in each repeat"),
        caption=caption,
        alt=words("Box plots of the time per token: {rows} rows.", rows=len(groups)),
        spec=_boxes(names, labels, (low, high), scale, words),
        rows=rows,
    )


def _groups(one: Series, *, by_repeat: bool) -> Iterator[_Group]:
    tokens = [[gap.ns for gap in single_tokens(trial)] for trial in one.trials]
    if by_repeat:
        middle = median([time for times in tokens for time in times])
        for number, times in enumerate(tokens, 1):
            if times:
                label = one.label if len(one.trials) == 1 else f"#{number} {one.label}"
                yield _Group(label, one.label, times, middle)
    else:
        means: list[float] = [time for trial in one.trials if (time := _mean(trial))]
        if means:
            yield _Group(one.label, one.label, means, median(means))


def _mean(trial: TrialRecord) -> float:
    return token_time(trial) or 0.0


def _limits(groups: Sequence[_Group]) -> tuple[float, float]:
    every = [group.percent(time) for group in groups for time in group.times]
    inner = [group.percent(percentile(group.times, q)) for group in groups for q in (5, 95)]
    low = min(percentile(every, _CUT), *inner, -1.0)
    high = max(percentile(every, 100 - _CUT), *inner, 1.0)
    room = 0.06 * (high - low)
    return low - room, high + room


def thinned(values: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of sorted values, including the first and the last."""
    if len(values) <= most:
        return list(values)
    step = (len(values) - 1) / (most - 1)
    return [values[round(n * step)] for n in range(most)]


def _boxes(
    names: Sequence[str],
    labels: Sequence[str],
    limits: tuple[float, float],
    scale: TimeScale,
    words: Language,
) -> Spec:
    x: Spec = {
        "type": "quantitative",
        "title": words("difference from the variant's median (%)"),
        "scale": {"domain": list(limits), "nice": False},
        "axis": {"grid": True, "tickCount": 6, "format": "+~r"},
    }
    y = row_axis("row", labels, above=15)
    colour = series_colour(names, legend=None)
    tooltip = [
        {"field": "row", "type": "nominal", "title": words("repeat")},
        {
            "field": "median_time",
            "type": "quantitative",
            "title": words("median ({unit})", unit=scale.unit),
        },
        {"field": "mean", "type": "quantitative", "title": f"{words('mean')}, %"},
        {"field": "p5", "type": "quantitative", "title": "5%"},
        {"field": "p95", "type": "quantitative", "title": "95%"},
        {"field": "values", "type": "quantitative", "title": "n"},
    ]

    def layer(kind: str, mark: Spec, first: str, **more: Spec | list[Spec]) -> Spec:
        encoding: Spec = {"x": {**x, "field": first}, "y": y, **more}
        return {"transform": [only(kind)], "mark": {"clip": True, **mark}, "encoding": encoding}

    tinted: dict[str, Spec] = {"color": colour}
    return {
        "height": max(2, len(labels)) * _ROW,
        "layer": [
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "style": "reference"},
                "encoding": {"x": {**x, "field": "zero"}},
            },
            layer(
                "value",
                {"type": "tick", "thickness": 1, "size": 17, "opacity": 0.35},
                "percent",
                **tinted,
            ),
            layer("box", {"type": "rule", "strokeWidth": 1.5}, "p5", x2={"field": "p95"}, **tinted),
            layer(
                "box",
                {"type": "bar", "size": 11, "cornerRadius": 1.5},
                "p25",
                x2={"field": "p75"},
                **tinted,
                tooltip=tooltip,
            ),
            layer("box", {"type": "tick", "size": 15, "thickness": 2.5, "style": "on-mark"}, "p50"),
            layer(
                "box",
                {"type": "point", "shape": "diamond", "size": 42, "filled": True, "style": "mean"},
                "mean",
                tooltip=tooltip,
            ),
        ],
    }


def ecdf(runs: Sequence[MeasuredRun], words: Language) -> Figure | Missing:
    """Draw the share of tokens that took at most a given time."""
    timed = [one for one in all_series(runs) if any(map(single_tokens, one.trials))]
    if not timed:
        return Missing(
            ECDF,
            words("Cumulative distribution of token times"),
            words("no repeat has the times of single tokens"),
        )
    shown = distinguishable(timed)
    times = {
        one.label: sorted(gap.ns for trial in one.trials for gap in single_tokens(trial))
        for one in shown
    }
    scale = TimeScale.of([time for found in times.values() for time in found])
    rows: list[Row] = []
    for label, found in times.items():
        ranks = range(len(found))
        for rank in map(round, thinned(ranks, _MOST_STEPS)):
            share = float(f"{(rank + 1) / len(found):.5g}")
            rows.append({"series": label, "time": scale.of_ns(found[rank]), "share": share})
    sentences = [
        words("{label}: median {value}", label=label, value=duration(median(found)))
        for label, found in times.items()
    ]
    caption = words(
        "For a time on the horizontal axis, the line shows the share of all tokens that took"
        " no longer (empirical cumulative distribution). Steep: steady; a long tail to the"
        " right: some tokens were slow."
    )
    caption += left_out(shown, timed, words)
    return Figure(
        name=ECDF,
        title=words("Cumulative distribution of token times"),
        caption=caption,
        alt=words(
            "Empirical distribution of the time per token. {series}.",
            series=words.clauses(sentences),
        ),
        spec=steps(
            list(times), scale, scale.title(words), words("share of tokens"), words("variant")
        ),
        rows=rows,
    )


def steps(names: Sequence[str], scale: TimeScale, x: str, y: str, series: str) -> Spec:
    """Return cumulative distributions, of rows with ``series``, ``time`` and ``share``.

    ``x``, ``y`` and ``series`` are their titles.
    """
    return {
        "height": 240,
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "time",
                "type": "quantitative",
                "title": x,
                "scale": scale.scale() if scale.is_log else {"zero": False, "nice": True},
                "axis": {"tickCount": 6, "grid": True},
            },
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": y,
                "scale": {"domain": [0, 1]},
                "axis": {"format": ".0%", "tickCount": 5},
            },
            "color": series_colour(names),
            "strokeDash": series_dash(names),
            "tooltip": [
                {"field": "series", "type": "nominal", "title": series},
                {"field": "time", "type": "quantitative", "title": x},
                {"field": "share", "type": "quantitative", "format": ".1%"},
            ],
        },
    }
