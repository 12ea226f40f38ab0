"""One trial on the board's clock: its phases, its tokens, and the telemetry under them."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from labctl.errors import printable_line
from labctl.records import TelemetrySample, TrialRecord
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import only
from labctl.report.figures.measured import MeasuredRun, Series, all_series, told_apart
from labctl.report.figures.moments import Span, throttled_spans, token_spans
from labctl.report.figures.scale import TimeScale
from labctl.report.figures.theme import DASHES
from labctl.report.figures.tracks import Track, tracks_of
from labctl.report.figures.words import Words
from labctl.units import duration

NAME = "timeline"
#: Trials that are worth a picture of their own: the typical ones, then those that throttled.
_MOST_TRIALS = 4
_MOST_BARS = 256
#: More bars are too narrow for gaps between them.
_MOST_APART = 100
#: A longer title of a track would be wider than a phone.
_LONGEST_TITLE = 280
#: Pixels of labels of the vertical axes, and beside the plots as a whole.
_LABELS = 46
OUTSIDE = _LABELS + 30
#: A phase that is shorter than this share of the trial has no room for its name.
_NAMED_FROM = 0.14


def timelines(runs: Sequence[MeasuredRun], words: Words) -> list[Figure | Missing]:
    """Draw the telemetry of a few trials; Missing where none has any."""
    found: list[Figure | Missing] = []
    for one, trial in islice(_chosen(told_apart(all_series(runs))), _MOST_TRIALS):
        samples = one.run_of(trial).telemetry(trial)
        if trial.job is not None and len(samples) > 1:
            found.append(_timeline(one, trial, samples, words))
    return found or [Missing(NAME, words(NAME), words(f"{NAME}.missing"))]


def _chosen(series: Sequence[Series]) -> Iterator[tuple[Series, TrialRecord]]:
    """Yield the typical trial of each series, then each one's first that throttled."""
    typical = [(one, one.typical or one.trials[0]) for one in series]
    yield from typical
    for one, usual in typical:
        held = [t for t in one.trials if t.evidence and t.evidence.limited and t is not usual]
        if held and not (usual.evidence and usual.evidence.limited):
            yield one, held[0]


def _timeline(
    one: Series, trial: TrialRecord, samples: Sequence[TelemetrySample], words: Words
) -> Figure:
    assert trial.job is not None
    begin = trial.job.start_mono_ns
    end = max(trial.job.end_mono_ns, begin + 1)
    inside = [sample for sample in samples if begin <= sample.mono_ns <= end]
    tracks = tracks_of(inside)
    rows: list[Row] = list(_phases(trial, end, words))
    spans = token_spans(trial)[1:]
    scale = TimeScale.of([max(1, s.end_ns - s.begin_ns) for s in spans]) if spans else None
    if scale:
        rows += _bars(spans, begin, scale)
    throttled = throttled_spans(inside)
    rows += [_slice("throttled", span, begin) for span in throttled]
    rows += [row for track in tracks for row in _values(track, begin, words)]
    name = printable_line(one.label)
    caption = words(f"{NAME}.caption")
    if throttled:
        caption += words(f"{NAME}.throttled")
    return Figure(
        name=f"{NAME}-{one.run_of(trial).short_id}-{trial.number}",
        title=words(f"{NAME}.of", series=name, repeat=trial.repeat),
        caption=caption,
        alt=words(
            f"{NAME}.alt",
            series=name,
            duration=duration(end - begin),
            tracks=words.sentence_end().join(words(track.key) for track in tracks),
        ),
        spec=_spec(
            tracks, scale, _seconds(end, begin), words, bars=len(spans), throttled=bool(throttled)
        ),
        rows=rows,
    )


def _seconds(moment: int, begin: int) -> float:
    return float(f"{(moment - begin) / 1e9:.6g}")


def _slice(kind: str, span: Span, begin: int) -> dict[str, float | str]:
    low, high = _seconds(span.begin_ns, begin), _seconds(span.end_ns, begin)
    return {"kind": kind, "at": low, "until": high}


def _phases(trial: TrialRecord, end: int, words: Words) -> Iterator[Row]:
    """Yield what the program did: load, read the prompt, generate."""
    assert trial.job is not None
    begin, timing = trial.job.start_mono_ns, trial.timing
    first = begin + timing.ttft_ns if timing and timing.ttft_ns else None
    if first is None or timing is None:
        return
    prompt = max(begin, first - (timing.prompt_eval_ns or 0))
    last = max((span.end_ns for span in token_spans(trial)), default=first)
    bounds = {"load": (begin, prompt), "prompt": (prompt, first), "tokens": (first, last)}
    for key, (low, high) in bounds.items():
        if high > low:
            text = words(f"{NAME}.{key}")
            row = {**_slice("phase", Span(low, high), begin), "phase": key, "text": text}
            row["took"] = duration(high - low)
            row["label"] = text if (high - low) >= _NAMED_FROM * (end - begin) else ""
            yield row


def _bars(spans: Sequence[Span], begin: int, scale: TimeScale) -> Iterator[Row]:
    """Yield a bar for each token, or for each few of many: their mean time."""
    size = math.ceil(len(spans) / _MOST_BARS)
    for first in range(0, len(spans), size):
        some = spans[first : first + size]
        whole = Span(some[0].begin_ns, some[-1].end_ns)
        each = (whole.end_ns - whole.begin_ns) / len(some)
        yield {
            **_slice("token", whole, begin),
            "position": first + 2,
            "value": scale.of_ns(each),
        }


def _values(track: Track, begin: int, words: Words) -> Iterator[Row]:
    for number, line in enumerate(track.lines):
        name = line.name or words(line.key)
        for moment, value in line.points:
            yield {
                "kind": f"{track.key}-{number}",
                "at": _seconds(moment, begin),
                "name": name,
                "value": float(f"{value:.5g}"),
            }


def _spec(
    tracks: Sequence[Track],
    scale: TimeScale | None,
    end: float,
    words: Words,
    *,
    bars: int,
    throttled: bool,
) -> Spec:
    axes = _Axes(end, words)
    parts = [_phase_part(axes, words)]
    if scale is not None:
        apart = bars <= _MOST_APART
        parts.append(_token_part(axes, scale, words, apart=apart, throttled=throttled))
    parts += [_track_part(axes, track, words, throttled=throttled) for track in tracks]
    for layer in parts[-1]["layer"]:
        x = layer["encoding"]["x"]
        x["axis"] = {**x["axis"], "labels": True, "title": words("since-start")}
    return {
        "vconcat": parts,
        "spacing": 10,
        "resolve": {"scale": {"x": "shared", "color": "independent"}},
        "usermeta": {"outside": OUTSIDE},
    }


class _Axes:
    """The axes of all tracks: one time, and values beside it."""

    def __init__(self, end: float, words: Words):
        self._end = end
        self.words = words

    def x(self, field: str = "at") -> Spec:
        """Return the axis of time: lines of a grid, whose labels the last track has."""
        axis: Spec = {"grid": True, "labels": False, "ticks": False, "domain": False, "title": None}
        scale = {"domain": [0, self._end], "nice": False}
        axis["tickCount"] = 8
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}

    def y(self, *, highest: float | None) -> Spec:
        """Return the axis of values, from 0 to the highest; None: around the values."""
        scale: Spec = {"zero": False}
        if highest is not None:
            scale = {"domain": [0, highest or 1], "nice": True}
        axis = {"tickCount": 3, "minExtent": _LABELS, "maxExtent": _LABELS}
        return {
            "field": "value",
            "type": "quantitative",
            "title": None,
            "scale": scale,
            "axis": axis,
        }

    def tooltip(self, what: str) -> list[Spec]:
        """Return the facts of one mark."""
        return [
            {"field": "name", "type": "nominal", "title": what},
            {"field": "value", "type": "quantitative", "title": what},
            {"field": "at", "type": "quantitative", "title": self.words("since-start")},
        ]


def _titled(text: str, height: int, layers: list[Spec]) -> Spec:
    title: Spec = {"text": text, "fontSize": 11, "fontWeight": "normal", "offset": 3}
    title |= {"frame": "group", "limit": _LONGEST_TITLE}
    return {"title": title, "height": height, "layer": layers}


def _phase_part(axes: _Axes, words: Words) -> Spec:
    phases = ["load", "prompt", "tokens"]
    colour = {
        "field": "phase",
        "type": "nominal",
        "scale": {"domain": phases, "range": "category"},
        "legend": None,
    }
    tooltip = [
        {"field": "text", "type": "nominal", "title": words(f"{NAME}.phase")},
        {"field": "took", "type": "nominal", "title": words(f"{NAME}.took")},
    ]
    bar: Spec = {
        "transform": [only("phase")],
        "mark": {"type": "rect", "style": "gap", "cornerRadius": 2},
        "encoding": {
            "x": axes.x(),
            "x2": {"field": "until"},
            "color": colour,
            "tooltip": tooltip,
        },
    }
    name: Spec = {
        "transform": [only("phase")],
        "mark": {"type": "text", "align": "left", "dx": 5, "style": "on-mark-label"},
        "encoding": {"x": axes.x(), "text": {"field": "label", "type": "nominal"}},
    }
    return _titled(words(f"{NAME}.phases"), 22, [bar, name])


def _band(axes: _Axes) -> Spec:
    return {
        "transform": [only("throttled")],
        "mark": {"type": "rect", "style": "alarm-band"},
        "encoding": {"x": axes.x(), "x2": {"field": "until"}},
    }


def _token_part(
    axes: _Axes, scale: TimeScale, words: Words, *, apart: bool, throttled: bool
) -> Spec:
    y = axes.y(highest=None)
    y["scale"] = scale.scale()
    low = {"datum": 0} if not scale.is_log else {"value": 64}
    title = scale.title(words)
    layers = [_band(axes)] if throttled else []
    layers.append(
        {
            "transform": [only("token")],
            "mark": {"type": "rect", "style": ["gap", "token"] if apart else "token"},
            "encoding": {
                "x": axes.x(),
                "x2": {"field": "until"},
                "y": y,
                "y2": low,
                "tooltip": [
                    {"field": "position", "type": "quantitative", "title": words("position")},
                    {"field": "value", "type": "quantitative", "title": title},
                ],
            },
        }
    )
    if throttled:
        layers.append(
            {
                "transform": [only("throttled")],
                "mark": {"type": "text", "align": "left", "dx": 3, "style": "alarm-label"},
                "encoding": {
                    "x": axes.x(),
                    "y": {"value": -6},
                    "text": {"value": words("throttled")},
                },
            }
        )
    return _titled(title, 64, layers)


#: How a title shows the dashes of the lines below it.
_KEYS = ("━", "╍", "┈")


def _track_part(axes: _Axes, track: Track, words: Words, *, throttled: bool) -> Spec:
    names = [line.name or words(line.key) for line in track.lines]
    values = [value for line in track.lines for _, value in line.points]
    highest = max(values) if track.from_zero else None
    title = words(track.key)
    shown = "  ".join(f"{key} {name}" for key, name in zip(_KEYS, names, strict=False))
    layers = [_band(axes)] if throttled else []
    for number, _ in enumerate(names):
        shape = "step-after" if track.from_zero else "linear"
        mark: Spec = {"type": "line", "interpolate": shape, "strokeWidth": 1.6}
        mark |= {"strokeDash": list(DASHES[number]), "style": f"line-{number}"}
        if track.from_zero and number == 0:
            mark |= {"type": "area", "line": {"style": "line-0"}, "fillOpacity": 0.25}
        layers.append(
            {
                "transform": [only(f"{track.key}-{number}")],
                "mark": mark,
                "encoding": {
                    "x": axes.x(),
                    "y": axes.y(highest=highest),
                    "tooltip": axes.tooltip(title),
                },
            }
        )
    return _titled(f"{title}  {shown}", 54, layers)
