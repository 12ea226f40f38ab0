"""Parts of charts that several figures share, and units and axes of times.

Unit and axis are chosen from the data, so that labels are short and nothing is hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from labctl.report.figures.figure import Spec
from labctl.report.figures.theme import DASHES, SHAPES
from labctl.report.page.language import Language

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
#: From this ratio of largest to smallest value, a linear axis hides small values.
_LOG_FROM = 25


@dataclass(frozen=True)
class TimeScale:
    """The unit of a time axis, and whether it is logarithmic."""

    ns: float
    unit: str
    is_log: bool
    bottom: float
    top: float

    @classmethod
    def of(cls, times_ns: Sequence[float]) -> "TimeScale":
        """Choose the scale for these times (at least one time, all above 0)."""
        low, high = min(times_ns), max(times_ns)
        is_log = high / low >= _LOG_FROM
        unit = low if is_log else high / 3
        ns, name = next((u for u in _UNITS if unit >= u[0]), _UNITS[-1])
        return cls(ns, name, is_log, low / ns, high / ns)

    def of_ns(self, time_ns: float) -> float:
        """Return a time in the unit, to six digits: fewer bytes, but more than visible."""
        return float(f"{time_ns / self.ns:.6g}")

    def title(self, words: Language) -> str:
        """Return the title of the axis."""
        return words(
            "time per token ({unit}), log scale" if self.is_log else "time per token ({unit})",
            unit=self.unit,
        )

    def scale(self, *, room: float = 0.0) -> Spec:
        """Return the scale; a linear scale starts at 0.

        ``room``: space above the highest value, as a share of the values' height.
        """
        if self.is_log:
            top = self.top * (self.top / self.bottom) ** room
            return {"type": "log", "domain": [0.8 * self.bottom, 1.1 * top], "nice": False}
        return {"zero": True, "nice": not room} | (
            {"domain": [0, self.top * (1 + room)]} if room else {}
        )


def left_out(shown: Sequence[object], found: Sequence[object], words: Language) -> str:
    """Return the number of shown series, for a caption; "" if all are shown."""
    if len(shown) == len(found):
        return ""
    return words(
        " Shown: {shown} of {count} series, from the fastest to the slowest.",
        shown=len(shown),
        count=len(found),
    )


#: Symbols of a legend.
Legend: TypeAlias = Literal["stroke", "shape"]
#: A longer name needs its own line of a legend, also on a phone.
_LONG = 18


def only(kind: str) -> Spec:
    """Return the transform that keeps the rows of a layer."""
    return {"filter": {"field": "kind", "equal": kind}}


def series_colour(names: Sequence[str], *, legend: Legend | None = "stroke") -> Spec:
    """Return the colours of series, with a legend if there are several.

    The legend's symbols are long strokes, which also show dashes, or the series' shapes.
    """
    shown: Spec = {"columns": 1 if max(map(len, names)) > _LONG else 2}
    if legend == "stroke":
        shown |= {"symbolType": "stroke", "symbolSize": 500}
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": list(names), "range": "category"},
        "legend": shown if legend and len(names) > 1 else None,
    }


def series_dash(names: Sequence[str], *, legend: Legend | None = "stroke") -> Spec:
    """Return the dashes of series: the same series without its colour."""
    colour = series_colour(names, legend=legend)
    return {**colour, "scale": {**colour["scale"], "range": list(DASHES[: len(names)])}}


def series_shape(names: Sequence[str], *, legend: Legend | None = "shape") -> Spec:
    """Return the shapes of series: the same series without its colour."""
    colour = series_colour(names, legend=legend)
    return {**colour, "scale": {**colour["scale"], "range": list(SHAPES[: len(names)])}}


def interval_lines(x: Spec, y: Spec, names: Sequence[str], tooltip: Sequence[Spec]) -> list[Spec]:
    """Return the layers of series over ``x``: intervals (``low``, ``high``), lines and points."""
    colour = series_colour(names, legend="shape")
    line: Spec = {"x": x, "y": y, "color": colour}
    return [
        {
            "transform": [{"filter": {"field": "low", "valid": True}}],
            "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6},
            "encoding": {**line, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": line},
        {
            "mark": {"type": "point", "filled": True, "size": 54, "opacity": 1},
            "encoding": {**line, "shape": series_shape(names), "tooltip": list(tooltip)},
        },
    ]


def text_at(kind: Spec) -> Spec:
    """Return a layer of texts in the top left corner, in rows: ``slot`` px from the top."""
    return {
        "transform": [kind],
        "mark": {
            "type": "text",
            "align": "left",
            "baseline": "middle",
            "style": "label",
            "limit": {"expr": "0.85 * width"},
        },
        "encoding": {
            "x": {"value": 6},
            "y": {"field": "slot", "type": "quantitative", "scale": None, "axis": None},
            "text": {"field": "text", "type": "nominal"},
        },
    }


def row_axis(field: str, names: Sequence[str], *, above: float) -> Spec:
    """Return an axis of named rows, in this order from the top.

    A name stands ``above`` px over the middle of its row; beside the row it would fill half a
    phone.
    """
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(names)},
        "axis": {
            "grid": False,
            "labelFontSize": 12,
            "labelLimit": 300,
            "labelAlign": "left",
            "labelPadding": -2,
            "labelOffset": -above,
            "labelOverlap": False,
        },
    }
