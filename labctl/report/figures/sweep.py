"""Sweeps: the time per token over numeric parameters, as heat maps or as lines."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from labctl.errors import printable_line
from labctl.figures.trials import token_time
from labctl.records.trial import TrialRecord, TrialState
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import TimeScale, only
from labctl.report.figures.measured import MeasuredRun
from labctl.report.figures.sweep_lines import sweep_line
from labctl.report.figures.theme import DARK_FROM, MOST_SERIES, RAMP_STEPS
from labctl.report.page.language import Language
from labctl.results.summary import estimate_of
from labctl.units import duration

NAME = "sweep"
_MOST_MAPS = 6
_ROW = 34

Number = int | float


@dataclass(frozen=True)
class _Cell:
    """All trials of one combination of the two axes."""

    x: Number
    y: Number
    trials: Sequence[TrialRecord]

    @property
    def time(self) -> float | None:
        """Estimate over the good trials, in ns."""
        good = [t for t in self.trials if t.state is TrialState.OK and t.repeat > 0]
        times = [time for trial in good if (time := token_time(trial))]
        found = estimate_of(times)
        return found.value if found else None


def sweeps(runs: Sequence[MeasuredRun], words: Language) -> list[Figure | Missing]:
    """Draw each run's varied parameters: two numbers as heat maps, one number as lines."""
    found: list[Figure | Missing] = []
    for run in runs:
        axes = _axes(run)
        if len(axes) == 1 and len(found) < _MOST_MAPS:
            groups = dict(islice(_groups(run, axes).items(), MOST_SERIES))
            line = sweep_line(f"{NAME}-{len(found) + 1}", run.run, groups, axes[0], words)
            found += [line] if line else []
        if len(axes) < 2:
            continue
        x, y = axes[:2]
        for label, trials in _groups(run, (x, y)).items():
            cells = list(_cells(trials, x, y))
            timed = [cell.time for cell in cells if cell.time]
            if len(found) < _MOST_MAPS and len(timed) > 1:
                several = len(runs) > 1
                where = f"{label} · {run.short_id}" if several else label
                found.append(_map(len(found) + 1, where, cells, (x, y), words))
    return found or [
        Missing(NAME, words("Sweep of parameters"), words("no run varies a numeric parameter"))
    ]


def _axes(run: MeasuredRun) -> list[str]:
    """Return the numeric parameters that vary, most values first."""
    values: dict[str, set[Number]] = {}
    for trial in run.trials:
        for name, value in trial.parameters.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(name, set()).add(value)
    matrix = run.run.recipe_resolved.get("matrix")
    asked = list(matrix) if isinstance(matrix, Mapping) else []
    varied = [name for name in values if len(values[name]) > 1 and (not asked or name in asked)]
    return sorted(varied, key=lambda name: -len(values[name]))


def _groups(run: MeasuredRun, axes: Sequence[str]) -> dict[str, list[TrialRecord]]:
    """Return the trials, grouped by the model and the other varied parameters."""
    others = [
        {name: value for name, value in trial.parameters.items() if name not in axes}
        for trial in run.trials
    ]
    varied = sorted(
        {
            name
            for parameters in others
            for name in parameters
            if len({str(one.get(name)) for one in others}) > 1
        }
    )
    groups: dict[str, list[TrialRecord]] = {}
    for trial, parameters in zip(run.trials, others, strict=True):
        settings = [f"{name} {parameters.get(name)}" for name in varied]
        label = printable_line(" · ".join([trial.model.key, *settings]))
        groups.setdefault(label, []).append(trial)
    return groups


def _cells(trials: Sequence[TrialRecord], x: str, y: str) -> Iterator[_Cell]:
    cells: dict[tuple[Number, Number], list[TrialRecord]] = {}
    for trial in trials:
        at = trial.parameters.get(x), trial.parameters.get(y)
        if isinstance(at[0], int | float) and isinstance(at[1], int | float):
            cells.setdefault((at[0], at[1]), []).append(trial)
    for across in sorted({one for one, _ in cells}):
        for down in sorted({one for _, one in cells}):
            yield _Cell(across, down, cells.get((across, down), []))


def _map(
    number: int, label: str, cells: Sequence[_Cell], axes: tuple[str, str], words: Language
) -> Figure:
    times = [time for cell in cells if (time := cell.time)]
    scale = TimeScale.of(times)
    limits = _limits(min(times), max(times))
    best = min(times)
    rows: list[Row] = []
    for cell in cells:
        place = printable_line(f"{axes[0]} {cell.x}, {axes[1]} {cell.y}")
        row: dict[str, float | str] = {"x": cell.x, "y": cell.y, "place": place}
        if cell.time is None:
            state = words("failed" if _failed(cell) else "not run")
            rows.append({**row, "kind": "none", "text": state})
            continue
        step = bisect_right(limits, cell.time)
        rows.append(
            {
                **row,
                "kind": "high" if step >= DARK_FROM else "low",
                "time": scale.of_ns(cell.time),
                "text": ("★ " if cell.time == best else "") + duration(cell.time),
                "repeats": len(cell.trials),
            }
        )
    return Figure(
        name=f"{NAME}-{number}",
        title=words("Time per token: {label}", label=label),
        caption=words(
            "Time per token of each combination, the geometric mean of its repeats. The more a"
            " cell stands out from the page, the slower. ★ the fastest."
        ),
        alt=words(
            "Heat map of the time per token of {label} over {x} and {y}: {low} to {high}.",
            label=label,
            x=axes[0],
            y=axes[1],
            low=duration(best),
            high=duration(max(times)),
        ),
        spec=_spec(cells, [scale.of_ns(limit) for limit in limits], axes, scale, words),
        rows=rows,
    )


def _failed(cell: _Cell) -> bool:
    return any(trial.state is TrialState.FAILED for trial in cell.trials)


def _limits(low: float, high: float) -> list[float]:
    """Return the limits between the colour steps; each limit is the same multiple of the last."""
    ratio = max(high / low, 1.001)
    return [low * ratio ** (n / RAMP_STEPS) for n in range(1, RAMP_STEPS)]


def _spec(
    cells: Sequence[_Cell],
    limits: Sequence[float],
    axes: tuple[str, str],
    scale: TimeScale,
    words: Language,
) -> Spec:
    across = sorted({cell.x for cell in cells})
    down = sorted({cell.y for cell in cells}, reverse=True)

    def axis(field: str, title: str, values: Sequence[Number]) -> Spec:
        return {
            "field": field,
            "type": "ordinal",
            "title": printable_line(title),
            "scale": {"domain": list(values), "paddingInner": 0.04},
            "axis": {"labelAngle": 0, "grid": False, "domain": False, "ticks": False},
        }

    place: Spec = {"x": axis("x", axes[0], across), "y": axis("y", axes[1], down)}
    colour: Spec = {
        "field": "time",
        "type": "quantitative",
        "scale": {"type": "threshold", "domain": list(limits), "range": "ramp"},
        "legend": None,
    }
    text: Spec = {"field": "text", "type": "nominal"}
    tooltip = [
        {"field": "place", "type": "nominal", "title": words("variant")},
        {"field": "time", "type": "quantitative", "title": scale.title(words)},
        {"field": "repeats", "type": "quantitative", "title": words("repeats")},
    ]

    def label(kind: str, style: str) -> Spec:
        return {
            "transform": [only(kind)],
            "mark": {"type": "text", "style": style},
            "encoding": {**place, "text": text},
        }

    return {
        "height": max(2, len(down)) * _ROW,
        "layer": [
            {
                "transform": [{"filter": {"field": "time", "valid": True}}],
                "mark": {"type": "rect", "cornerRadius": 2},
                "encoding": {**place, "color": colour, "tooltip": tooltip},
            },
            label("low", "on-low"),
            label("high", "on-high"),
            label("none", "quiet-label"),
        ],
    }
