"""Accuracy over time: the better model for the same time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from labctl.compare.equal_latency.result import Axis, Crossing, Curve, CurvePoint, LatencyMatch
from labctl.errors import printable_line
from labctl.report.figures.accuracy import share_axis
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import TimeScale, only, series_colour, series_shape, text_at
from labctl.report.figures.theme import MOST_SERIES
from labctl.report.names import short_names
from labctl.report.page.language import Language
from labctl.units import duration

NAME = "accuracy-over"
AXES: tuple[Axis, ...] = ("budget", "deadline")
#: Maximum number of labelled crossings.
_MOST_LABELS = 4
#: Number of marked points of a deadline's curve; the marks distinguish the series.
_EVERY = 40
_TITLES: dict[Axis, str] = {
    "budget": "Accuracy over the time of the limit",
    "deadline": "Right and complete answers within a deadline",
}
_AXIS_TITLES: dict[Axis, str] = {
    "budget": "time of the limit ({unit})",
    "deadline": "deadline ({unit})",
}
_CAPTIONS: dict[Axis, str] = {
    "budget": (
        "Time: limit of tokens x mean time per token of the model on this board, as in the"
        " original experiment. Bands: 95% over the questions. A grey line is a crossing, the"
        " red band its 95% interval. Dashed: extrapolated beyond what was measured."
    ),
    "deadline": (
        "An answer counts if it is right and complete by then: prefill of its own prompt and"
        " its own tokens at the board's measured times. Bands: 95% over the questions. A grey"
        " line is a crossing, the red band its 95% interval. Dashed: extrapolated beyond what"
        " was measured."
    ),
}


def latency_figures(found: LatencyMatch, words: Language) -> list[Figure | Missing]:
    """Draw the accuracy over the time of the budget and over the deadline."""
    return [_over(found, axis, words) for axis in AXES]


def _over(found: LatencyMatch, axis: Axis, words: Language) -> Figure | Missing:
    name, title = f"{NAME}-{axis}", words(_TITLES[axis])
    every = [one for one in found.curves if one.axis == axis and len(one.points) > 1]
    if not every:
        return Missing(
            name,
            title,
            words("it needs two limits or more with accuracies, and a measured time per token"),
        )
    last = max(one.points[-1].seconds for one in every[:MOST_SERIES])
    curves = [_continued(one, last) for one in every[:MOST_SERIES]]
    short = short_names(one.name for one in every)
    labels = [printable_line(short[one.name]) for one in curves]
    times = [point.seconds * 1e9 for one in curves for point in one.points if point.seconds > 0]
    scale = TimeScale.of([max(times)])
    rows: list[Row] = [
        {**row, "series": label}
        for one, label in zip(curves, labels, strict=True)
        for row in _points(one, scale)
    ]
    drawn = {one.name: one.points for one in curves}
    crossings = [one for one in found.crossings if one.axis == axis and _is_on_both(one, drawn)]
    for slot, one in enumerate(crossings[:_MOST_LABELS]):
        rows += _crossing(one, slot, scale, words)
    caption = words(_CAPTIONS[axis])
    if len(curves) < len(every):
        caption += words(
            " Shown: {shown} of {count} variants; the table has all.",
            shown=len(curves),
            count=len(every),
        )
    sentences = [one.sentence for one in found.crossings if one.axis == axis]
    warning = words("EMULATED: times do not show the speed of a board") if found.emulated else ""
    return Figure(
        name=name,
        title=title,
        caption=caption,
        alt=words(
            "Curves: {curves}. {crossings}", curves=", ".join(labels), crossings=" ".join(sentences)
        ),
        spec=_spec(labels, words(_AXIS_TITLES[axis], unit=scale.unit), rows, words),
        rows=rows,
        warning=warning,
    )


def _continued(curve: Curve, last: float) -> Curve:
    """Return a curve as drawn: to the last time, where no larger limit changes an answer."""
    end = curve.points[-1]
    if curve.known_until is not None or end.seconds >= last:
        return curve
    return replace(curve, points=(*curve.points, replace(end, seconds=last, budget=None)))


def _is_on_both(one: Crossing, drawn: Mapping[str, Sequence[CurvePoint]]) -> bool:
    """Return True if both lines of a crossing are drawn at its time."""
    lines = [drawn.get(name) for name in (one.faster, one.slower)]
    return one.seconds is not None and all(
        line and line[0].seconds <= one.seconds <= line[-1].seconds for line in lines
    )


def _points(curve: Curve, scale: TimeScale) -> Iterator[Row]:
    """Yield the points of a curve; before an extrapolated part, the last measured point twice."""
    name, last = printable_line(curve.name), None
    for number, point in enumerate(curve.points):
        row: Row = {
            "series": name,
            "time": scale.of_ns(point.seconds * 1e9),
            "share": float(f"{point.accuracy:.5g}"),
            "low": float(f"{point.low:.5g}"),
            "high": float(f"{point.high:.5g}"),
            "text": f"{point.accuracy:.1%} ({point.low:.1%} to {point.high:.1%})",
            "tokens": point.budget,
            "marked": point.budget is not None or number % _EVERY == _EVERY // 2,
        }
        if point.extrapolated and last is not None:
            yield {**last, "kind": "extrapolated"}
        yield {**row, "kind": "extrapolated" if point.extrapolated else "measured"}
        last = None if point.extrapolated else row


def _crossing(one: Crossing, slot: int, scale: TimeScale, words: Language) -> Iterator[Row]:
    assert one.seconds is not None
    low = one.start if one.low is None else one.low
    high = one.end if one.high is None else one.high
    is_open = one.low is None or one.high is None
    yield {
        "kind": "crossing",
        "time": scale.of_ns(one.seconds * 1e9),
        "from": scale.of_ns(low * 1e9),
        "to": scale.of_ns(high * 1e9),
        "slot": 12 + 16 * slot,
        "text": words(
            "{name} may overtake at about {at} (not shown)"
            if is_open
            else "{name} overtakes at {at} ({low} to {high})",
            name=printable_line(one.slower),
            at=duration(one.seconds * 1e9),
            low=duration(low * 1e9),
            high=duration(high * 1e9),
        ),
    }


def _spec(names: Sequence[str], time: str, rows: Sequence[Row], words: Language) -> Spec:
    x: Spec = {
        "field": "time",
        "type": "quantitative",
        "title": time,
        "scale": {"zero": True, "nice": True},
        "axis": {"tickCount": 6},
    }
    y: Spec = {"field": "share", **share_axis(words("right answers"), rows)}
    colour = series_colour(names, legend="shape")
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "time", "type": "quantitative", "title": time},
        {"field": "tokens", "type": "quantitative", "title": words("limit of generated tokens")},
        {"field": "text", "type": "nominal", "title": words("right answers")},
    ]
    at = {"x": x, "y": y, "color": colour}
    return {
        "height": 320,
        "layer": [
            {
                "transform": [only("crossing")],
                "mark": {"type": "rect", "style": "alarm-band", "opacity": 0.08},
                "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}},
            },
            {
                "transform": [only("crossing")],
                "mark": {"type": "rule", "style": "reference"},
                "encoding": {"x": x},
            },
            {
                "transform": [only("measured")],
                "mark": {"type": "area", "opacity": 0.12},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "low"},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "transform": [only("measured")],
                "mark": {"type": "line", "strokeWidth": 1.8},
                "encoding": at,
            },
            {
                "transform": [only("extrapolated")],
                "mark": {"type": "line", "strokeWidth": 1.4, "strokeDash": [5, 4], "opacity": 0.8},
                "encoding": at,
            },
            {
                "transform": [{"filter": {"field": "marked", "equal": True}}],
                "mark": {"type": "point", "filled": True, "size": 52, "opacity": 1},
                "encoding": {**at, "shape": series_shape(names), "tooltip": tooltip},
            },
            text_at(only("crossing")),
        ],
    }
