"""The time per token of each variant from run to run."""

from collections.abc import Iterator, Sequence

from labctl.figures.trials import token_time
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import TimeScale, interval_lines
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.page.language import Language
from labctl.results.summary import estimate_of, wanted_precision
from labctl.units import counted, duration

NAME = "history"
_LEAST_RUNS = 3


def history(runs: Sequence[MeasuredRun], words: Language) -> Figure | Missing:
    """Draw the estimate of each run over the run's start time."""
    series = distinguishable([one for one in all_series(runs, by_run=False) if len(one.runs) > 1])
    if len(runs) < _LEAST_RUNS or not any(one.token_times for one in series):
        return Missing(
            NAME,
            words("From run to run"),
            words("a history needs {least} runs with a variant in common", least=_LEAST_RUNS),
        )
    scale = TimeScale.of([time for one in series for time in one.token_times])
    rows: list[Row] = [row for one in series for row in _points(one, scale)]
    return Figure(
        name=NAME,
        title=words("From run to run"),
        caption=words(
            "A mark is the estimate of one run, its line the interval of the repeats in that run"
            " alone: days differ by more than that."
        ),
        alt=words(
            "Time per token of {series} variants in {runs} runs.",
            runs=len(runs),
            series=len(series),
        ),
        spec=_spec([one.label for one in series], scale, words),
        rows=rows,
    )


def _points(one: Series, scale: TimeScale) -> Iterator[Row]:
    for run in sorted(one.runs, key=lambda run: run.run.started):
        mine = {id(trial) for trial in run.trials}
        times = [t for trial in one.trials if id(trial) in mine and (t := token_time(trial))]
        found = estimate_of(times, wanted_precision(run.run))
        if found is None:
            continue
        row: dict[str, float | str] = {
            "series": one.label,
            "run": run.run.id,
            "began": round(run.run.started.timestamp() * 1000),
            "time": scale.of_ns(found.value),
            "text": f"{duration(found.value)}, {counted(len(times), 'repeat')}",
        }
        if (known := found.interval) and not known.is_vague:
            row |= {"low": scale.of_ns(known.low), "high": scale.of_ns(known.high)}
        yield row


def _spec(names: Sequence[str], scale: TimeScale, words: Language) -> Spec:
    x: Spec = {
        "field": "began",
        "type": "temporal",
        "title": words("begin of the run (UTC)"),
        "scale": {"type": "utc", "padding": 16},
        "axis": {"tickCount": 4, "format": "%m-%d %H:%M", "labelAngle": 0},
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
        {"field": "run", "type": "nominal", "title": words("run")},
        {"field": "text", "type": "nominal", "title": words("geometric mean")},
    ]
    return {"height": 260, "layer": interval_lines(x, y, names, tooltip)}
