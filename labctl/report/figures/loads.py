"""Figures of a load test: throughput and times over the load, distributions, errors over time."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from labctl.evaluation.serving.metrics import lateness_ns, start_ns
from labctl.evaluation.serving.results import LoadTestResults, StageResult
from labctl.records.board import Execution
from labctl.records.serving import LatencyLimits
from labctl.report.figures.distribution import steps, thinned
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import TimeScale, interval_lines, only
from labctl.report.figures.theme import MOST_SERIES
from labctl.report.load_tables import FEWEST_FOR_P99, TIMES, LimitedTime, load_name
from labctl.report.page.language import Language
from labctl.units import digits, duration

_MOST_STEPS = 200
#: A limit above this multiple of the longest time is not drawn: it would hide the distribution.
_MOST_BEYOND = 2
#: Number of intervals of the whole test's time.
_BINS = 100
#: Number of intervals that the name of a load covers.
_NAME_BINS = 9
#: Pixels for labels of the vertical axes, and for everything beside the plots.
_LABELS, _OUTSIDE = 46, 76


@dataclass(frozen=True)
class _Loop:
    """Loads of one kind, and their common axis: ``at`` returns a load's place on it."""

    name: str
    axis: str
    at: Callable[[StageResult], float]
    loads: Sequence[StageResult]


def load_figures(results: LoadTestResults, words: Language) -> tuple[list[Figure], list[Missing]]:
    """Draw what can be drawn of a load test, and say why the rest cannot."""
    found: list[Figure | Missing] = []
    for loop in _loops(results, words):
        found += [_throughput(results, loop, words), _times_over(results, loop, words)]
    found += [_distribution(results, times, words) for times in TIMES[:2]]
    found.append(_over_time(results, words))
    if results.record.endpoint.execution is Execution.EMULATED:
        warning = words("EMULATED: does not show the speed of a board")
    else:
        warning = ""
    drawn = [_marked(one, warning) for one in found if isinstance(one, Figure)]
    return drawn, [one for one in found if isinstance(one, Missing)]


def _marked(one: Figure, warning: str) -> Figure:
    rows = [{**row, "execution": str(Execution.EMULATED)} if warning else row for row in one.rows]
    return Figure(one.name, one.title, one.caption, one.alt, one.spec, rows, warning)


def _loops(results: LoadTestResults, words: Language) -> Iterator[_Loop]:
    """Yield the rates, and the streams; of a kind with one load only if there is no other."""
    measured = [one for one in results.stages if one.metrics]
    rates = [one for one in measured if one.metrics and one.metrics.offered_per_second]
    streams = [one for one in measured if one.stage.concurrency is not None]
    if len(rates) > 1 or (rates and len(streams) < 2):
        yield _Loop("rate", words("offered requests/s"), _offered, sorted(rates, key=_offered))
    if len(streams) > 1 or not rates:
        yield _Loop("streams", words("streams"), _streams, sorted(streams, key=_streams))


def _offered(one: StageResult) -> float:
    return float(digits((one.metrics and one.metrics.offered_per_second) or 0.0, 5))


def _streams(one: StageResult) -> float:
    return float(one.stage.concurrency or 0)


def _x(loop: _Loop) -> Spec:
    scale: Spec = {"zero": True, "nice": True, "padding": 8}
    axis: Spec = {"tickCount": 6, **({"tickMinStep": 1} if loop.name == "streams" else {})}
    return {
        "field": "at", "type": "quantitative", "title": loop.axis, "scale": scale, "axis": axis,
    }  # fmt: skip


def _throughput(results: LoadTestResults, loop: _Loop, words: Language) -> Figure | Missing:
    name, title = f"throughput-over-{loop.name}", words("Throughput over the load")
    series = [words("answers")]
    if results.record.limits != LatencyLimits():
        series.append(words("answers that keep every limit"))
    rows: list[Row] = []
    for one in loop.loads:
        if one.metrics is not None:
            rates = (one.metrics.requests_per_second, one.metrics.goodput)
            for kind, rate in zip(series, rates, strict=False):
                rows.append({**_load_of(one, loop), "series": kind, "rate": rate})
    if not rows:
        return Missing(name, title, words("no measured request ended"))
    caption = words("Completed requests per second of each load.")
    y: Spec = {
        "field": "rate",
        "type": "quantitative",
        "title": words("answers/s"),
        "scale": {"zero": True, "nice": True},
    }
    layers: list[Spec] = []
    if loop.name == "rate":
        caption += words(" Dashed: as many answers as requests were offered.")
        most = max(map(_offered, loop.loads))
        rows += [{"kind": "all", "at": at, "rate": at} for at in (0.0, most)]
        mark = {"type": "line", "style": "reference"}
        layers.append(
            {"transform": [only("all")], "mark": mark, "encoding": {"x": _x(loop), "y": y}}
        )
        if results.knee is not None and results.knee.rate is not None:
            caption += words(" Grey line: the highest rate that the server follows.")
            rows.append({"kind": "knee", "at": results.knee.rate})
            mark = {"type": "rule", "style": "reference"}
            layers.append({"transform": [only("knee")], "mark": mark, "encoding": {"x": _x(loop)}})
    drawn = interval_lines(_x(loop), y, series, _tooltip(words, "rate", words("answers/s")))
    return Figure(
        name=name,
        title=title,
        caption=caption,
        alt=words(
            "Line chart of answers per second over the load: {loads}.",
            loads=words.clauses(
                f"{load_name(one.stage)}: {digits(one.metrics.requests_per_second)}"
                for one in loop.loads
                if one.metrics
            ),
        ),
        spec={"height": 240, "layer": [*layers, *_only_loads(drawn)]},
        rows=rows,
    )


def _load_of(one: StageResult, loop: _Loop) -> dict[str, str | float | int]:
    """Return the fields of a load in a row: its named and its offered load, and its counts."""
    found = one.metrics
    return {
        "kind": "load",
        "load": load_name(one.stage),
        "at": loop.at(one),
        "requests": found.requests if found else 0,
        "failed": found.failed if found else 0,
    }


def _tooltip(words: Language, field: str, title: str) -> list[Spec]:
    return [
        {"field": "load", "type": "nominal", "title": words("named load")},
        {"field": "at", "type": "quantitative", "title": words("offered")},
        {"field": "series", "type": "nominal", "title": words("figure")},
        {"field": field, "type": "nominal" if field == "text" else "quantitative", "title": title},
        {"field": "requests", "type": "quantitative", "title": words("requests")},
        {"field": "failed", "type": "quantitative", "title": words("failed")},
    ]


def _only_loads(layers: Sequence[Spec]) -> list[Spec]:
    return [{**one, "transform": [only("load"), *one.get("transform", ())]} for one in layers]


def _times_over(results: LoadTestResults, loop: _Loop, words: Language) -> Figure | Missing:
    """Draw p50 and p99 of TTFT, TPOT and latency over the load, one below the other."""
    name, title = f"times-over-{loop.name}", words("Times over the load")
    rows: list[Row] = []
    parts: list[Spec] = []
    sentences = []
    for times in TIMES:
        own, scale = _percentiles(loop, times, times.limit(results.record.limits), words)
        if scale is not None:
            rows += own
            parts.append(_part(loop, times, scale, words))
            middles = [str(row["text"]) for row in own if row.get("series") == "p50"]
            sentences.append(f"{words.word(times.title)} p50 {', '.join(middles)}")
    if not parts:
        return Missing(name, title, words("no measured request was answered"))
    caption = words(
        "Median and 99th percentile of each load; the thin line above it ends at the upper limit of"
        " the percentile (95% confidence). Loads of fewer than {few} answers have no 99th"
        " percentile. Red: the limit.",
        few=FEWEST_FOR_P99,
    )
    return Figure(
        name=name,
        title=title,
        caption=caption,
        alt=words("Line charts over the load: {series}.", series=words.clauses(sentences)),
        spec={
            "vconcat": parts,
            "spacing": 14,
            "resolve": {"scale": {"x": "shared", "y": "independent"}},
            "usermeta": {"outside": _OUTSIDE},
        },
        rows=rows,
    )


def _percentiles(
    loop: _Loop, times: LimitedTime, limit: int | None, words: Language
) -> tuple[list[Row], TimeScale | None]:
    """Return the rows of one chart and its scale; None without an answer."""
    samples = [
        (one, sample)
        for one in loop.loads
        if (sample := getattr(one.metrics, f"{times.key}_ns", None)) is not None
    ]
    ends = [value for _, sample in samples for value in (sample.p50, sample.p99) if value > 0]
    if not ends:
        return [], None
    scale = TimeScale.of([*ends, *([limit] if limit else [])])
    rows: list[Row] = []
    for one, sample in samples:
        own = {**_load_of(one, loop), "part": times.key}
        for part in ("p50", "p99"):
            value: float = getattr(sample, part)
            if value <= 0 or (part == "p99" and sample.count < FEWEST_FOR_P99):
                continue
            row = {**own, "series": part, "time": scale.of_ns(value), "text": duration(value)}
            if part == "p99" and sample.p99_high is not None:
                row |= {"low": scale.of_ns(value), "high": scale.of_ns(sample.p99_high)}
            rows.append(row)
    if limit:
        text = words("limit {time}", time=duration(limit))
        rows.append({"part": times.key, "kind": "limit", "time": scale.of_ns(limit), "text": text})
    return rows, scale


def _part(loop: _Loop, times: LimitedTime, scale: TimeScale, words: Language) -> Spec:
    title = f"{words.word(times.title)} ({scale.unit})"
    y: Spec = {
        "field": "time",
        "type": "quantitative",
        "title": None,
        "scale": scale.scale(),
        "axis": {"tickCount": 4, "minExtent": _LABELS, "maxExtent": _LABELS},
    }
    lines = interval_lines(_x(loop), y, ("p50", "p99"), _tooltip(words, "text", title))
    limit: list[Spec] = [
        {
            "transform": [only("limit")],
            "mark": {"type": "rule", "style": "alarm", "strokeWidth": 1.5},
            "encoding": {"y": y},
        },
        {
            "transform": [only("limit")],
            "mark": {
                "type": "text", "style": "alarm-label", "align": "right", "baseline": "bottom",
                "dy": -3,
            },
            "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "text"}},
        },
    ]  # fmt: skip
    return {
        "title": _above(title),
        "transform": [{"filter": {"field": "part", "equal": times.key}}],
        "height": 130,
        "layer": [*limit, *_only_loads(lines)],
    }


def _above(text: str) -> Spec:
    return {"text": text, "fontSize": 11, "fontWeight": "normal", "offset": 3, "frame": "group"}


def _distribution(
    results: LoadTestResults, times: LimitedTime, words: Language
) -> Figure | Missing:
    """Draw the share of the answers of each load that took at most a time."""
    name, title = f"{times.key}-distribution", words("Distribution of {figure}", figure=times.title)
    samples = _samples(results, times)
    if not samples:
        return Missing(name, title, words("it is unknown for every answer"))
    shown = dict(thinned(list(samples.items()), MOST_SERIES))
    limit = times.limit(results.record.limits)
    every = [value for values in shown.values() for value in values]
    is_drawn = limit is not None and limit <= _MOST_BEYOND * max(every)
    scale = TimeScale.of([*every, limit] if limit and is_drawn else every)
    rows: list[Row] = []
    for load, values in shown.items():
        for rank in map(round, thinned(range(len(values)), _MOST_STEPS)):
            share = float(f"{(rank + 1) / len(values):.5g}")
            rows.append({"series": load, "time": scale.of_ns(values[rank]), "share": share})
    x = f"{times.title} ({scale.unit}{', log' if scale.is_log else ''})"
    spec = steps(list(shown), scale, x, words("share of answers"), words("named load"))
    caption = words(
        "The line of a load shows the share of its answers that took no longer than the time on the"
        " horizontal axis. Failed requests have no times."
    )
    if limit and not is_drawn:
        caption += words(" The limit, {time}, is far to the right.", time=duration(limit))
    elif limit:
        caption += words(" Red: the limit, {time}.", time=duration(limit))
        rows.append({"kind": "limit", "time": scale.of_ns(limit)})
        spec = _with_limit(spec)
    if len(shown) < len(samples):
        caption += words(" Shown: {shown} of {count} loads.", shown=len(shown), count=len(samples))
    counts = [
        words("{load}: {count} answers, median {value}", load=load, count=len(values),
              value=duration(values[len(values) // 2]))
        for load, values in shown.items()
    ]  # fmt: skip
    return Figure(
        name=name,
        title=title,
        caption=caption,
        alt=words("Cumulative distributions. {series}.", series=words.clauses(counts)),
        spec=spec,
        rows=rows,
    )


def _samples(results: LoadTestResults, times: LimitedTime) -> dict[str, list[float]]:
    """Return the sorted times of the answers of each load, in ns."""
    samples: dict[str, list[float]] = {}
    for one in results.stages:
        known = (times.of(row) for row in one.requests if row.failure is None)
        if values := [value for value in known if value is not None and value > 0]:
            samples.setdefault(load_name(one.stage), []).extend(values)
    return {load: sorted(values) for load, values in samples.items()}


def _with_limit(spec: Spec) -> Spec:
    """Return a chart of distributions with the line of its limit."""
    line = {name: spec[name] for name in ("mark", "encoding")}
    limit: Spec = {
        "transform": [only("limit")],
        "mark": {"type": "rule", "style": "alarm", "strokeWidth": 1.5},
        "encoding": {"x": {**line["encoding"]["x"], "field": "time"}},
    }
    lines = {"transform": [{"filter": {"field": "share", "valid": True}}], **line}
    return {"height": spec["height"], "layer": [limit, lines]}


@dataclass(frozen=True)
class _End:
    """The end of a request: its time in s since the test began, and the lateness of its sending."""

    at: float
    failed: bool
    late_ms: float | None


def _over_time(results: LoadTestResults, words: Language) -> Figure | Missing:
    """Draw answers and failed requests in intervals of time, and how late the client sent them."""
    name, title = "errors-over-time", words("Answers, errors and lateness of the client over time")
    stages = [one for one in results.stages if one.requests]
    if not stages:
        return Missing(name, title, words("no measured request ended"))
    first = stages[0].stage.began
    ends: list[_End] = []
    begins: list[tuple[float, str]] = []
    for one in stages:
        offset = (one.stage.began - first).total_seconds()
        start = offset + min(map(start_ns, one.requests)) / 1e9
        begins.append((max(0.0, start), load_name(one.stage)))
        for row in one.requests:
            late = lateness_ns(row)
            late_ms = None if late is None else late / 1e6
            ends.append(_End(offset + row.done_ns / 1e9, row.failure is not None, late_ms))
    width = max(one.at for one in ends) / _BINS or 1.0
    rows = [*_named(begins, _NAME_BINS * width), *_bins(ends, width)]
    has_lateness = any(one.late_ms is not None for one in ends)
    failed = sum(one.failed for one in ends)
    return Figure(
        name=name,
        title=title,
        caption=words(
            "Requests that ended in each interval of {width}: blue answered, red failed. A grey"
            " line begins a load. Lateness: the longest time in the interval from the intended to"
            " the real sending, by this computer's own clock; only rates have it.",
            width=duration(width * 1e9),
        ),
        alt=words(
            "Bars over {time}: {answered} requests answered, {failed} failed.",
            time=duration(width * _BINS * 1e9),
            answered=len(ends) - failed,
            failed=failed,
        ),
        spec=_time_spec(width * _BINS, words, has_lateness=has_lateness),
        rows=rows,
    )


def _named(begins: Sequence[tuple[float, str]], room: float) -> Iterator[Row]:
    """Yield the beginning of each load; its name needs ``room`` s to the last."""
    last = -room
    for at, name in begins:
        is_apart = at - last >= room
        last = at if is_apart else last
        yield {"kind": "load", "at": float(f"{at:.6g}"), "text": name if is_apart else ""}


def _bins(ends: Sequence[_End], width: float) -> Iterator[Row]:
    """Yield a row for each interval: from 0 to the answers, and from there to all ends."""

    def bin_of(one: _End) -> int:
        return max(0, min(_BINS - 1, int(one.at / width)))

    answered = Counter(bin_of(one) for one in ends if not one.failed)
    every = Counter(map(bin_of, ends))
    late: dict[int, float] = {}
    for one in ends:
        if one.late_ms is not None:
            late[bin_of(one)] = max(one.late_ms, late.get(bin_of(one), 0.0))
    for number, count in sorted(every.items()):
        place = {
            "at": float(f"{number * width:.6g}"),
            "until": float(f"{(number + 1) * width:.6g}"),
        }
        row = {**place, "answered": answered[number], "failed": count - answered[number]}
        if answered[number]:
            yield {**row, "kind": "answered", "from": 0, "to": answered[number]}
        if count > answered[number]:
            yield {**row, "kind": "failed", "from": answered[number], "to": count}
        if number in late:
            yield {**place, "kind": "late", "late": float(f"{late[number]:.4g}")}


def _time_spec(end: float, words: Language, *, has_lateness: bool) -> Spec:
    x: Spec = {
        "field": "at",
        "type": "quantitative",
        "title": words("time since the first load began (s)"),
        "scale": {"domain": [0, end], "nice": False},
        "axis": {"tickCount": 8},
    }
    axis: Spec = {"tickCount": 4, "tickMinStep": 1, "minExtent": _LABELS, "maxExtent": _LABELS}
    y: Spec = {"type": "quantitative", "title": None, "scale": {"zero": True}, "axis": axis}
    tooltip = [
        {"field": "at", "type": "quantitative", "title": words("from (s)")},
        {"field": "answered", "type": "quantitative", "title": words("answered")},
        {"field": "failed", "type": "quantitative", "title": words("failed")},
    ]

    def bars(kind: str, style: str) -> Spec:
        return {
            "transform": [only(kind)],
            "mark": {"type": "rect", "style": style},
            "encoding": {
                "x": x, "x2": {"field": "until"}, "y": {**y, "field": "from"},
                "y2": {"field": "to"}, "tooltip": tooltip,
            },
        }  # fmt: skip

    begins: Spec = {
        "transform": [only("load")],
        "mark": {"type": "rule", "style": "reference"},
        "encoding": {"x": x},
    }
    names: Spec = {
        "transform": [only("load")],
        "mark": {"type": "text", "style": "quiet-label", "align": "left", "dx": 3},
        "encoding": {"x": x, "y": {"value": -6}, "text": {"field": "text", "type": "nominal"}},
    }
    parts: list[Spec] = [
        {
            "title": {**_above(words("requests that ended")), "offset": 16},
            "height": 130,
            "layer": [begins, bars("answered", "line-0"), bars("failed", "alarm"), names],
        }
    ]
    if has_lateness:
        late: Spec = {
            "transform": [only("late")],
            "mark": {"type": "rect", "style": "line-1"},
            "encoding": {
                "x": x, "x2": {"field": "until"}, "y": {**y, "field": "late"}, "y2": {"datum": 0},
                "tooltip": [{"field": "late", "type": "quantitative", "title": "ms"}],
            },
        }  # fmt: skip
        title = words("lateness of the client (ms)")
        parts.append({"title": _above(title), "height": 70, "layer": [begins, late]})
    return {
        "vconcat": parts,
        "spacing": 14,
        "resolve": {"scale": {"x": "shared"}},
        "usermeta": {"outside": _OUTSIDE},
    }
