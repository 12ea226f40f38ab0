"""The chart of one trial: views one below the other with a common time axis."""

from collections.abc import Sequence

from labctl.report.figures.figure import Spec
from labctl.report.figures.marks import TimeScale, only
from labctl.report.figures.theme import DASHES
from labctl.report.figures.tracks import Track
from labctl.report.page.language import Language

NAME = "timeline"
#: More bars would be too narrow for gaps between them.
_MOST_APART = 100
#: A longer title of a track would be wider than a phone.
_LONGEST_TITLE = 280
#: Pixels for labels of the vertical axes, and for everything beside the plots.
_LABELS, _OUTSIDE = 46, 76


def timeline_chart(
    tracks: Sequence[Track],
    scale: TimeScale | None,
    end: float,
    words: Language,
    *,
    bars: int,
    throttled: bool,
) -> Spec:
    """Return the chart of one trial: its phases, its ``bars``, and the tracks below.

    ``scale`` is None if no token was timed; ``end`` is in seconds.
    """
    axes = _Axes(end, words)
    parts = [_phase_part(axes, words)]
    if scale is not None:
        apart = bars <= _MOST_APART
        parts.append(_token_part(axes, scale, words, apart=apart, throttled=throttled))
    parts += [_track_part(axes, track, words, throttled=throttled) for track in tracks]
    for layer in parts[-1]["layer"]:
        x = layer["encoding"]["x"]
        x["axis"] = {
            **x["axis"],
            "labels": True,
            "title": words("time since the start of the process (s)"),
        }
    return {
        "vconcat": parts,
        "spacing": 10,
        "resolve": {"scale": {"x": "shared", "color": "independent"}},
        "usermeta": {"outside": _OUTSIDE},
    }


class _Axes:
    """The axes of all tracks: a common time axis, and axes of values."""

    def __init__(self, end: float, words: Language):
        self._end = end
        self.words = words

    def x(self) -> Spec:
        """Return the time axis: grid lines; only the last track has the labels."""
        axis: Spec = {"grid": True, "labels": False, "ticks": False, "domain": False, "title": None}
        scale = {"domain": [0, self._end], "nice": False}
        axis["tickCount"] = 8
        return {"field": "at", "type": "quantitative", "scale": scale, "axis": axis}

    def y(self, *, highest: float | None) -> Spec:
        """Return the axis of values, from 0 to the highest; with None, only around the values."""
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
            {
                "field": "at",
                "type": "quantitative",
                "title": self.words("time since the start of the process (s)"),
            },
        ]


def _titled(text: str, height: int, layers: list[Spec]) -> Spec:
    title: Spec = {"text": text, "fontSize": 11, "fontWeight": "normal", "offset": 3}
    title |= {"frame": "group", "limit": _LONGEST_TITLE}
    return {"title": title, "height": height, "layer": layers}


def _phase_part(axes: _Axes, words: Language) -> Spec:
    phases = ["load", "prompt", "tokens"]
    colour = {
        "field": "phase",
        "type": "nominal",
        "scale": {"domain": phases, "range": "category"},
        "legend": None,
    }
    tooltip = [
        {"field": "text", "type": "nominal", "title": words("phase")},
        {"field": "took", "type": "nominal", "title": words("time")},
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
    return _titled(words("phases: load, prompt, tokens"), 22, [bar, name])


def _band(axes: _Axes) -> Spec:
    return {
        "transform": [only("throttled")],
        "mark": {"type": "rect", "style": "alarm-band"},
        "encoding": {"x": axes.x(), "x2": {"field": "until"}},
    }


def _token_part(
    axes: _Axes, scale: TimeScale, words: Language, *, apart: bool, throttled: bool
) -> Spec:
    y = {**axes.y(highest=None), "scale": scale.scale()}
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
                "y2": {"datum": 0},
                "tooltip": [
                    {"field": "position", "type": "quantitative", "title": words("token")},
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


#: Signs in a title for the dashes of the lines below it.
_KEYS = ("━", "╍", "┈")


def _track_part(axes: _Axes, track: Track, words: Language, *, throttled: bool) -> Spec:
    names = [line.name or words(line.label) for line in track.lines]
    values = [value for line in track.lines for _, value in line.points]
    highest = max(values) if track.from_zero else None
    title = words(track.title)
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
