"""The roofline of a board: operations that memory and storage can supply, and each variant.

S. Williams et al., "Roofline", CACM 52(4), 2009. A weight counts as two operations: a
multiplication and an addition. A token needs each weight once, so operations per byte are 16 / the
bits of a weight; the KV cache is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labctl.records.board import Execution
from labctl.records.probe import BoardProbe
from labctl.records.trial import ModelIdentity
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import only, series_colour, series_shape
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.page.language import Language
from labctl.stats.describe import geometric_mean
from labctl.units import digits, size

NAME = "roofline"
_GIGA = 1e9
#: The horizontal axis: weights of 32 bits to 1 bit.
_LOW, _HIGH = 0.5, 16.0
#: Names of more points would overlap; they are in the legend.
_MOST_NAMES = 4
_TICKS = [0.5, 1, 2, 4, 8, 16]


@dataclass(frozen=True)
class _Point:
    """A variant: operations per byte, and the reached and possible operations per second."""

    label: str
    intensity: float
    reached: float
    arithmetic: float | None


def roofline(runs: Sequence[MeasuredRun], words: Language) -> Figure | Missing:
    """Draw the ceilings that the board's probe measured, and the result of each variant."""

    def missing(reason: str) -> Missing:
        return Missing(NAME, words("Roofline of the board"), words(reason))

    if any(run.run.facts.execution is Execution.EMULATED for run in runs):
        return missing("EMULATED: an emulator's speed says nothing about a board's ceilings")
    if len({run.run.board for run in runs}) > 1:
        return missing("the runs are of several boards, and each has its own ceilings")
    probe = next((probe for run in runs for probe in run.probes), None)
    if probe is None:
        return missing("this board has no probe: `labctl boards probe` measures its ceilings")
    timed = [one for one in all_series(runs) if one.token_times]
    points = [point for one in distinguishable(timed) if (point := _point(one, probe))]
    if not points:
        return missing("no variant has both a time per token and known bits per weight")
    roofs = list(_roofs(probe, words))
    if not roofs:
        return missing("the probe of this board has no rate of memory or storage")
    rows: list[Row] = [row for roof in roofs for row in roof]
    for number, point in enumerate(points):
        rows += _point_rows(point, words, first=number == 0, named=len(points) <= _MOST_NAMES)
    sentences = [
        words("{label}: {value}", label=point.label, value=f"{digits(point.reached)} Gop/s")
        for point in points
    ]
    return Figure(
        name=NAME,
        title=words("Roofline of {board}", board=probe.board),
        caption=words(
            "Lines: what memory and storage deliver, by the probe of {taken}. A variant on a line"
            " is held by it. The bar above a mark is what the arithmetic alone allows with these"
            " weights. Both axes are logarithmic; a weight counts as two operations.",
            taken=f"{probe.taken:%Y-%m-%d}",
        ),
        alt=words("Roofline chart, logarithmic. {series}.", series=words.clauses(sentences)),
        spec=_spec(points, rows, words),
        rows=rows,
    )


def _point(one: Series, probe: BoardProbe) -> _Point | None:
    trial = one.trials[0]
    weights = _weights(trial.model)
    if weights is None:
        return None
    needed, intensity = weights
    rate = needed / (geometric_mean(one.token_times) / 1e9)
    threads = trial.workload.threads if trial.workload else None
    rates = [
        compute.bytes_per_second
        for compute in probe.compute
        if compute.quantization == trial.model.quantization
        and (threads is None or compute.threads in (None, threads))
        and compute.bytes_per_second
    ]
    highest = max(rates, default=None)
    return _Point(
        one.label,
        intensity,
        rate * intensity / _GIGA,
        highest * intensity / _GIGA if highest else None,
    )


def _weights(model: ModelIdentity) -> tuple[int, float] | None:
    """Return the bytes of weights per token, and the operations per byte."""
    if not model.bytes_per_token or not model.bits_per_weight:
        return None
    return model.bytes_per_token, 16 / model.bits_per_weight


def _roofs(probe: BoardProbe, words: Language) -> Iterator[list[Row]]:
    """Yield a line for each source of weights."""
    for key, text, rate, named_at in (
        ("dram", "DRAM {rate}", probe.memory_bytes_per_second(), _HIGH),
        ("storage", "storage {rate}, by page faults", probe.storage_bytes_per_second(), _LOW),
    ):
        if rate:
            label = words(text, rate=f"{size(rate)}/s")
            ends = [(x, label if x == named_at else "") for x in (_LOW, _HIGH)]
            yield [
                {
                    "kind": "roof",
                    "name": key,
                    "intensity": x,
                    "rate": _rounded(rate * x / _GIGA),
                    "text": shown,
                }
                for x, shown in ends
            ]


def _point_rows(point: _Point, words: Language, *, first: bool, named: bool) -> Iterator[Row]:
    x, reached = _rounded(point.intensity), _rounded(point.reached)
    common: dict[str, str | float] = {"series": point.label, "intensity": x}
    if point.arithmetic is not None:
        yield {
            "kind": "arithmetic",
            **common,
            "rate": _rounded(point.arithmetic),
            "reached": reached,
            "text": words("arithmetic") if first else "",
        }
    yield {"kind": "point", **common, "rate": reached, "text": point.label if named else ""}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _spec(points: Sequence[_Point], rows: Sequence[Row], words: Language) -> Spec:
    names = [point.label for point in points]
    rates = [float(row["rate"] or 0) for row in rows if "rate" in row]
    low, high = min(rates) / 3, max(rates) * 2
    x: Spec = {
        "field": "intensity",
        "type": "quantitative",
        "title": words("operations for each byte of weights"),
        "scale": {"type": "log", "domain": [_LOW, _HIGH], "nice": False},
        "axis": {"grid": True, "values": _TICKS, "format": "~g"},
    }
    y: Spec = {
        "field": "rate",
        "type": "quantitative",
        "title": words("operations a second (Gop/s)"),
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": {"values": [10.0**n for n in range(-6, 7)], "format": "~g"},
    }
    colour, shape = series_colour(names, legend="shape"), series_shape(names)
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "rate", "type": "quantitative", "title": words("operations a second (Gop/s)")},
        {
            "field": "intensity",
            "type": "quantitative",
            "title": words("operations for each byte of weights"),
        },
    ]
    text = {"field": "text", "type": "nominal"}

    def named(place: str) -> Spec:
        return {"filter": {"field": "name", "equal": place}}

    return {
        "height": 340,
        "layer": [
            {
                "transform": [only("roof")],
                "mark": {"type": "line", "style": "roof", "clip": True},
                "encoding": {"x": x, "y": y, "detail": {"field": "name", "type": "nominal"}},
            },
            {
                "transform": [only("roof"), named("storage")],
                "mark": {"type": "text", "align": "left", "dx": 6, "dy": 13, "style": "label"},
                "encoding": {"x": x, "y": y, "text": text},
            },
            {
                "transform": [only("roof"), named("dram")],
                "mark": {"type": "text", "align": "right", "dx": -4, "dy": -9, "style": "label"},
                "encoding": {"x": x, "y": y, "text": text},
            },
            {
                "transform": [only("arithmetic")],
                "mark": {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.2},
                "encoding": {"x": x, "y": y, "y2": {"field": "reached"}, "color": colour},
            },
            {
                "transform": [only("arithmetic")],
                "mark": {
                    "type": "tick",
                    "size": 34,
                    "thickness": 3,
                    "opacity": 1,
                    "orient": "horizontal",
                },
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": tooltip},
            },
            {
                "transform": [only("arithmetic")],
                "mark": {"type": "text", "align": "left", "dx": 21, "style": "quiet-label"},
                "encoding": {"x": x, "y": y, "text": text},
            },
            {
                "transform": [only("point")],
                "mark": {"type": "point", "filled": True, "size": 120, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip},
            },
            {
                "transform": [only("point")],
                "mark": {"type": "text", "align": "right", "dx": -11, "style": "label"},
                "encoding": {"x": x, "y": y, "text": text},
            },
        ],
    }
