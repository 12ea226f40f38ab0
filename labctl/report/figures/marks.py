"""Parts of charts that several figures share."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from labctl.report.figures.figure import Spec
from labctl.report.figures.theme import DASHES, SHAPES

#: Symbols of a legend.
Legend: TypeAlias = Literal["stroke", "shape"]
#: A longer name needs a line of a legend for itself, also on a phone.
_LONG = 18


def only(kind: str) -> Spec:
    """Return the transform that keeps the rows of a layer."""
    return {"filter": {"field": "kind", "equal": kind}}


def series_colour(names: Sequence[str], *, legend: Legend | None = "stroke") -> Spec:
    """Return the colours of series, with a legend where there are several.

    Its symbols are long strokes, which show dashes too, or the series' shapes.
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
    """Return a layer of texts below each other in the left corner: ``slot`` px from the top."""
    return {
        "transform": [kind],
        "mark": {"type": "text", "align": "left", "baseline": "middle", "style": "label"},
        "encoding": {
            "x": {"value": 6},
            "y": {"field": "slot", "type": "quantitative", "scale": None, "axis": None},
            "text": {"field": "text", "type": "nominal"},
        },
    }


def row_axis(field: str, names: Sequence[str], *, above: float) -> Spec:
    """Return an axis of rows with names, from the top down, in this order.

    A name stands ``above`` the middle of its row, in px: beside it, it would take half of a phone.
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
