"""The time per token over one numeric parameter, as lines."""

from collections.abc import Iterator, Mapping, Sequence

from labctl.errors import printable_line
from labctl.figures.trials import token_time
from labctl.records.run import RunRecord
from labctl.records.trial import TrialRecord
from labctl.report.figures.figure import Figure, Row, Spec
from labctl.report.figures.marks import TimeScale, interval_lines
from labctl.report.page.language import Language
from labctl.results.summary import estimate_of, good_trials, wanted_precision
from labctl.units import duration


def sweep_line(
    name: str,
    run: RunRecord,
    groups: Mapping[str, Sequence[TrialRecord]],
    axis: str,
    words: Language,
) -> Figure | None:
    """Draw a line for each group over the parameter; None if a line would have only one point."""
    points = {label: _points(trials, axis) for label, trials in groups.items()}
    lines = {label: found for label, found in points.items() if len(found) > 1}
    if not lines:
        return None
    scale = TimeScale.of([t for found in lines.values() for times in found.values() for t in times])
    rows = [row for label, found in lines.items() for row in _rows(label, found, run, scale)]
    shown = printable_line(axis)
    return Figure(
        name=name,
        title=words("Time per token over {axis}", axis=shown),
        caption=words("Geometric mean of the repeats for each value, with its interval."),
        alt=words(
            "Line chart of the time per token over {axis}: {series}.",
            axis=shown,
            series=words.clauses(lines),
        ),
        spec=_spec(list(lines), shown, scale, words),
        rows=rows,
    )


def _points(trials: Sequence[TrialRecord], axis: str) -> dict[float, list[int]]:
    """Return the token times of good trials by the parameter's value, in order of the value."""
    points: dict[float, list[int]] = {}
    for trial in good_trials(trials):
        at, time = trial.parameters.get(axis), token_time(trial)
        if isinstance(at, int | float) and time:
            points.setdefault(at, []).append(time)
    return dict(sorted(points.items()))


def _rows(
    label: str, points: Mapping[float, Sequence[int]], run: RunRecord, scale: TimeScale
) -> Iterator[Row]:
    for at, times in points.items():
        found = estimate_of(times, wanted_precision(run))
        if found is None:
            continue
        row: dict[str, float | str] = {
            "series": label,
            "at": at,
            "time": scale.of_ns(found.value),
            "repeats": len(times),
            "text": duration(found.value),
        }
        if (known := found.interval) and not known.is_vague:
            row |= {"low": scale.of_ns(known.low), "high": scale.of_ns(known.high)}
        yield row


def _spec(names: Sequence[str], axis: str, scale: TimeScale, words: Language) -> Spec:
    x: Spec = {
        "field": "at",
        "type": "quantitative",
        "title": axis,
        "scale": {"zero": False, "nice": False, "padding": 22},
        "axis": {"tickCount": 6, "tickMinStep": 1},
    }
    y: Spec = {
        "field": "time",
        "type": "quantitative",
        "title": scale.title(words),
        "scale": scale.scale(),
        "axis": {"tickCount": 6},
    }
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "text", "type": "nominal", "title": words("geometric mean")},
        {"field": "repeats", "type": "quantitative", "title": words("repeats")},
    ]
    return {"height": 260, "layer": interval_lines(x, y, names, tooltip)}
