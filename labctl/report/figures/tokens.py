"""Time per token over position, with drift, throttling and TTFT."""

import math
from collections.abc import Iterator, Sequence

from labctl.records.trial import TrialRecord
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import (
    TimeScale,
    left_out,
    only,
    series_colour,
    series_dash,
    text_at,
)
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.figures.moments import Span, single_tokens, throttled_spans, token_spans
from labctl.report.page.language import Language
from labctl.results.timing_checks import Gap
from labctl.stats.describe import median, percentile
from labctl.units import duration

NAME = "token-times"
#: Maximum number of readable lines of repeats; more repeats are shown as a band.
_MOST_LINES = 16
#: Maximum number of points along the axis of a wide page; more points are joined.
_MOST_POINTS = 256
#: Maximum number of series whose TTFTs are labelled.
_MOST_LABELS = 4


def token_times(runs: Sequence[MeasuredRun], words: Language) -> Figure | Missing:
    """Draw the time of each token over its position."""
    timed = [one for one in all_series(runs) if any(map(single_tokens, one.trials))]
    if not timed:
        return Missing(
            NAME,
            words("Time per token over position"),
            words("no repeat has the times of single tokens"),
        )
    shown = distinguishable(timed)
    trials = [trial for one in shown for trial in one.trials if single_tokens(trial)]
    longest = max(single_tokens(trial)[-1].position for trial in trials)
    size = math.ceil(longest / _MOST_POINTS)
    scale = TimeScale.of([gap.ns for trial in trials for gap in single_tokens(trial)])
    in_lines = len(trials) <= _MOST_LINES
    rows: list[Row] = []
    for one in shown:
        rows += _lines(one, scale, size) if in_lines else []
        rows += _middles(one, scale, size, band=not in_lines)
        rows += _throttled(one, scale, size) if in_lines else []
    firsts = [row for n, one in enumerate(shown) for row in _first(one, n, len(shown))]
    rows += firsts if len(shown) <= _MOST_LABELS else []
    is_single = in_lines and not any(row["kind"] == "median" for row in rows)
    caption = words(_caption(is_single=is_single, in_lines=in_lines))
    caption += _notes(trials, rows, words, size=size, in_lines=in_lines)
    caption += left_out(shown, timed, words)
    sentences = [
        words("{label}: median {value}", label=one.label, value=duration(median(_all_ns(one))))
        for one in shown
    ]
    return Figure(
        name=NAME,
        title=words("Time per token over position"),
        caption=caption,
        alt=words(
            "Line chart of the time of each token. {series}.", series=words.clauses(sentences)
        ),
        spec=_spec(shown, scale, words, labels=len(firsts) if len(shown) <= _MOST_LABELS else 0),
        rows=rows,
    )


def _all_ns(one: Series) -> list[int]:
    return [gap.ns for trial in one.trials for gap in single_tokens(trial)]


def _binned(gaps: Sequence[Gap], size: int) -> dict[int, list[int]]:
    """Return the times by position; ``size`` successive positions are joined at their middle."""
    bins: dict[int, list[int]] = {}
    for gap in gaps:
        first = gap.position - (gap.position - 1) % size
        bins.setdefault(first + 1 + (size - 1) // 2, []).append(gap.ns)
    return bins


def _lines(one: Series, scale: TimeScale, size: int) -> Iterator[Row]:
    for number, trial in enumerate(one.trials, 1):
        for position, times in _binned(single_tokens(trial), size).items():
            yield {
                "kind": "repeat",
                "series": one.label,
                "repeat": number,
                "position": position,
                "time": scale.of_ns(median(times)),
            }


def _middles(one: Series, scale: TimeScale, size: int, *, band: bool) -> Iterator[Row]:
    """Yield the medians of the repeats; one or two repeats are shown only as lines."""
    if len(one.trials) < 3 and not band:
        return
    gaps = [gap for trial in one.trials for gap in single_tokens(trial)]
    for position, times in sorted(_binned(gaps, size).items()):
        row: dict[str, float | str] = {
            "kind": "median",
            "series": one.label,
            "position": position,
            "time": scale.of_ns(median(times)),
        }
        if band:
            row["low"] = scale.of_ns(percentile(times, 10))
            row["high"] = scale.of_ns(percentile(times, 90))
        yield row


def _throttled(one: Series, scale: TimeScale, size: int) -> Iterator[Row]:
    for trial in one.trials:
        held = throttled_spans(one.run_of(trial).telemetry(trial)) if _was_held(trial) else []
        if not held:
            continue
        spans: list[Span] = token_spans(trial)
        slow = [
            g for g in single_tokens(trial) if any(spans[g.position].meets(span) for span in held)
        ]
        for position, times in _binned(slow, size).items():
            yield {
                "kind": "throttled",
                "series": one.label,
                "repeat": trial.repeat,
                "position": position,
                "time": scale.of_ns(median(times)),
            }


def _was_held(trial: TrialRecord) -> bool:
    return bool(trial.evidence and trial.evidence.limited and trial.job)


def _first(one: Series, number: int, count: int) -> Iterator[Row]:
    known = [t.timing.ttft_ns for t in one.trials if t.timing and t.timing.ttft_ns]
    if known:
        label = f"▲ TTFT {duration(median(known))}" + (f"  {one.label}" if count > 1 else "")
        yield {"kind": "ttft", "series": one.label, "slot": 8 + 16 * number, "text": label}


def _caption(*, is_single: bool, in_lines: bool) -> str:
    if is_single:
        return "Each line is one repeat. ▲ TTFT: process start to first token, load included."
    if in_lines:
        return (
            "Each thin line is one repeat, a thick line their median. ▲ TTFT: process start to"
            " first token, load included."
        )
    return (
        "A line is the median of the repeats, its band their 10th to 90th percentile. ▲ TTFT:"
        " process start to first token, load included."
    )


def _notes(
    trials: Sequence[TrialRecord],
    rows: Sequence[Row],
    words: Language,
    *,
    size: int,
    in_lines: bool,
) -> str:
    note = words(" Each point stands for {size} tokens in a row.", size=size) if size > 1 else ""
    if any(row["kind"] == "throttled" for row in rows):
        note += words(" ✕ marks tokens that came while the board held its clock down.")
    held = sum(map(_was_held, trials))
    if held and not in_lines:
        note += words(
            " In {count} of the {trials} repeats the board held its clock down.",
            count=held,
            trials=len(trials),
        )
    return note


def _spec(shown: Sequence[Series], scale: TimeScale, words: Language, *, labels: int) -> Spec:
    names = [one.label for one in shown]
    x: Spec = {
        "field": "position",
        "type": "quantitative",
        "title": words("token"),
        "scale": {"domainMin": 1, "nice": False},
        "axis": {"tickMinStep": 1, "format": "d"},
    }
    y: Spec = {
        "field": "time",
        "type": "quantitative",
        "title": scale.title(words),
        "scale": scale.scale(room=0.03 + 0.06 * labels),
        "axis": {"tickCount": 6},
    }
    colour, dash = series_colour(names), series_dash(names)
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "repeat", "type": "quantitative", "title": words("repeat")},
        {"field": "position", "type": "quantitative", "title": words("token")},
        {"field": "time", "type": "quantitative", "title": scale.title(words)},
    ]
    line: Spec = {"type": "line", "clip": True, "interpolate": "linear"}
    return {
        "height": 300,
        "layer": [
            {
                "transform": [only("median")],
                "mark": {"type": "area", "opacity": 0.18, "clip": True},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "low"},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "transform": [only("repeat")],
                "mark": {**line, "strokeWidth": 1.1, "opacity": 0.75},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": colour,
                    "strokeDash": dash,
                    "detail": {"field": "repeat", "type": "nominal"},
                    "tooltip": tooltip,
                },
            },
            {
                "transform": [only("median")],
                "mark": {**line, "strokeWidth": 2.6},
                "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash},
            },
            {
                "transform": [only("throttled")],
                "mark": {"type": "point", "shape": "cross", "style": "alarm", "size": 45},
                "encoding": {"x": x, "y": y, "tooltip": tooltip},
            },
            text_at(only("ttft")),
        ],
    }
