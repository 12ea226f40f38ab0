"""The answer at a glance: time per token of each variant with its interval and its repeats."""

from collections.abc import Iterator, Sequence

from labctl.config.recipe import Precision
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import (
    TimeScale,
    left_out,
    only,
    row_axis,
    series_colour,
    series_shape,
)
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.figures.theme import MOST_SERIES
from labctl.report.page.language import Language
from labctl.report.references import ReferenceRow
from labctl.results.summary import LEVEL, Estimate, estimate_of, wanted_precision
from labctl.stats.intervals import Interval
from labctl.units import confidence, duration, plus_minus

NAME = "estimates"
#: Maximum number of drawn repeats of a variant; more would be unreadable.
_MOST_REPEATS = 60
_ROW = 48
_MOST_ROWS = 30


def estimates(
    runs: Sequence[MeasuredRun], words: Language, quoted: Sequence[ReferenceRow] = ()
) -> Figure | Missing:
    """Draw the estimate of each variant, its interval, its repeats, and published figures."""
    quoted = [one for one in quoted if one.token_ns is not None]
    timed = [one for one in all_series(runs) if one.token_times]
    if not timed:
        return Missing(NAME, words("Time per token"), words("no repeat has a time per token"))
    shown = distinguishable(timed, _MOST_ROWS)
    all_ns: list[float] = [time for one in shown for time in one.token_times]
    found = {one.label: _estimated(one) for one in shown}
    intervals = map(_known, found.values())
    all_ns += [end for known in intervals if known for end in (known.low, known.high)]
    all_ns += [one.token_ns for one in quoted if one.token_ns is not None]
    scale = TimeScale.of(all_ns)
    rows: list[Row] = []
    sentences = []
    for one in shown:
        estimate, text = _estimate(one.label, found[one.label], scale, words)
        sentences.append(text)
        rows += [estimate, *_repeats(one, scale)]
    rows += [_quoted(one, scale, words) for one in quoted]
    until = _precision(shown[0])
    several = any(row["kind"] == "repeat" for row in rows)
    level = f"{confidence(until.level if until else LEVEL)}%"
    caption = words(
        "Filled mark: the estimate, the geometric mean of the repeats' means, with its {level}"
        " interval. Circles: the repeats."
        if several
        else "The mean of the only repeat of each variant: one repeat has no interval.",
        level=level,
    )
    if any(len(one.runs) > 1 for one in shown):
        caption += words(
            " Of several runs it is the geometric mean of theirs, and the {level} interval is"
            " over the runs.",
            level=level,
        )
    if quoted:
        sources = dict.fromkeys(f"{one.name}: {one.source}" for one in quoted)
        caption += words(
            " ◇ quoted from publications, not measured here: {sources}.", sources="; ".join(sources)
        )
    caption += left_out(shown, timed, words)
    return Figure(
        name=NAME,
        title=words("Time per token"),
        caption=caption,
        alt=words("Time per token of each variant. {series}.", series=words.clauses(sentences)),
        spec=_spec(shown, [one.name for one in quoted], scale, words),
        rows=rows,
    )


def _precision(one: Series) -> Precision | None:
    return wanted_precision(one.runs[0].run)


def _estimated(one: Series) -> Estimate:
    found = estimate_of(one.independent_times, _precision(one))
    assert found is not None  # token times are above 0
    return found


def _known(one: Estimate) -> Interval | None:
    """Return the interval of an estimate; None if it is missing or meaningless."""
    return None if one.interval is None or one.interval.is_vague else one.interval


def _estimate(label: str, one: Estimate, scale: TimeScale, words: Language) -> tuple[Row, str]:
    """Return the data row of an estimate, and its sentence."""
    value, found = one.value, _known(one)
    row: dict[str, float | str] = {
        "kind": "estimate",
        "series": label,
        "time": scale.of_ns(value),
        "text": duration(value),
    }
    if found is None:
        return row, words("{label}: {value}", label=label, value=duration(value))
    row["low"], row["high"] = scale.of_ns(found.low), scale.of_ns(found.high)
    row["text"] = f"{duration(value)} {plus_minus(value, found.low, found.high)}"
    return row, words(
        "{label}: {value}, {level} interval {low} to {high}",
        label=label,
        value=duration(value),
        level=f"{confidence(found.level)}%",
        low=duration(found.low),
        high=duration(found.high),
    )


def _repeats(one: Series, scale: TimeScale) -> Iterator[Row]:
    times = one.token_times
    if 1 < len(times) <= _MOST_REPEATS:
        for number, time in enumerate(times, 1):
            yield {
                "kind": "repeat",
                "series": one.label,
                "repeat": number,
                "time": scale.of_ns(time),
            }


def _quoted(one: ReferenceRow, scale: TimeScale, words: Language) -> Row:
    assert one.token_ns is not None
    return {
        "kind": "quoted",
        "series": one.name,
        "time": scale.of_ns(one.token_ns),
        "text": words("{value} quoted", value=duration(one.token_ns)),
        "source": one.source,
    }


def _spec(
    shown: Sequence[Series], quoted: Sequence[str], scale: TimeScale, words: Language
) -> Spec:
    names = [one.label for one in shown]
    x: Spec = {
        "field": "time",
        "type": "quantitative",
        "title": scale.title(words),
        "scale": scale.scale(room=0 if scale.is_log else 0.03),
        "axis": {"tickCount": 5, "grid": True},
    }
    y = row_axis("series", [*names, *quoted], above=14)
    tint: Spec = {}
    shape: Spec = {}
    if len(names) <= MOST_SERIES:  # otherwise only their rows distinguish them
        tint = {"color": series_colour(names, legend=None)}
        shape = {"shape": series_shape(names, legend=None)}
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "repeat", "type": "quantitative", "title": words("repeat")},
        {"field": "time", "type": "quantitative", "title": scale.title(words)},
        {"field": "text", "type": "nominal", "title": words("geometric mean")},
        {"field": "source", "type": "nominal", "title": words("quoted")},
    ]
    mark: Spec = {"style": "line-0"}
    label: Spec = {"type": "text", "baseline": "top", "dy": 8}
    text = {"field": "text", "type": "nominal"}
    return {
        "height": _ROW * (len(names) + len(quoted)),
        "layer": [
            {
                "transform": [only("estimate")],
                "mark": {**mark, "type": "rule", "strokeWidth": 3, "strokeCap": "round"},
                "encoding": {
                    "x": {**x, "field": "low"},
                    "x2": {"field": "high"},
                    "y": y,
                    **tint,
                },
            },
            {
                "transform": [only("repeat")],
                "mark": {**mark, "type": "point", "shape": "circle", "size": 34, "opacity": 0.8},
                "encoding": {"x": x, "y": y, **tint, "tooltip": tooltip[:3]},
            },
            {
                "transform": [only("estimate")],
                "mark": {**mark, "type": "point", "filled": True, "size": 110, "opacity": 1},
                "encoding": {"x": x, "y": y, **tint, **shape, "tooltip": tooltip},
            },
            {
                "transform": [only("estimate")],
                "mark": {**label, "style": "label"},
                "encoding": {"x": x, "y": y, "text": text},
            },
            {
                "transform": [only("quoted")],
                "mark": {"type": "point", "shape": "diamond", "size": 110, "style": "quoted"},
                "encoding": {"x": x, "y": y, "tooltip": tooltip},
            },
            {
                "transform": [only("quoted")],
                "mark": {**label, "style": "quiet-label"},
                "encoding": {"x": x, "y": y, "text": text},
            },
        ],
    }
