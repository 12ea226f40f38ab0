"""Series and their changes, for people and as JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from labctl.compare.regressions import Change, ChangeStatus, Judged, is_long_enough
from labctl.compare.series import NIGHT_ESTIMATE, Night, Series, Unmeasured
from labctl.compare.words import percent, ratio_words
from labctl.figures.trials import TrialFigure
from labctl.records.board import Execution
from labctl.stats.describe import median
from labctl.stats.steps import FALSE_EACH_MORNING, FALSE_ONCE, LEAST_SERIES
from labctl.units import counted, digits, duration

#: Columns and lines of a plot.
WIDTH, HEIGHT = 64, 7
_NOTHING = "its nights wander too much, or are too few: nothing can be told here"
_DOT, _MARK = "•", "▲"
_BARS = "▁▂▃▄▅▆▇█"
_WORDS = {
    ChangeStatus.SUSPECTED: "suspected",
    ChangeStatus.CONFIRMED: "CONFIRMED",
    ChangeStatus.REFUTED: "not the source",
}


def series_lines(one: Judged) -> Iterator[str]:
    """Yield the lines of a series for people: the level, or a plot with the changes."""
    yield from _series_lines(one.series, one.changes)
    if is_long_enough(one.series):
        yield f"  {cannot_tell(one.smallest)}"
    if one.series.lost:
        yield f"  {lost(one.series)}"


def cannot_tell(smallest: float | None) -> str:
    """Return a sentence: which steps a series is too noisy to show."""
    return f"below {percent(smallest)} nothing can be told here" if smallest else _NOTHING


def lost(series: Series) -> str:
    """Return a sentence on the runs without value after the last night of a series."""
    runs = counted(len(series.lost), "run")
    return f"{runs} since then without a sound result, the last is {series.lost[-1]}"


def _series_lines(series: Series, changes: Sequence[Change]) -> Iterator[str]:
    nights = counted(len(series.nights), "night")
    emulated = "" if series.execution == Execution.BOARD else f" {series.execution.upper()}"
    if not changes:
        found = "no step" if is_long_enough(series) else f"too short: {LEAST_SERIES} are needed"
        level = shown(series.figure, median(series.values)).removesuffix(f" {series.figure.short}")
        yield f"{series.name}{emulated}: {nights}, {level} {series.figure.short}, {found}"
        yield f"  {sparkline(series.values)}"
        return
    first, last = series.nights[0].started[:10], series.nights[-1].started[:10]
    yield f"{series.name}{emulated}: {nights}, {first} to {last}, {series.figure.short}"
    yield from plot(series, [change.step.index for change in changes])
    for change in changes:
        yield from _change_lines(change)


def _change_lines(change: Change) -> Iterator[str]:
    series, step = change.series, change.step
    how_much = ratio_words(step.ratio, series.figure.more_is_faster)
    levels = f"{shown(series.figure, step.before)} -> {shown(series.figure, step.after)}"
    over = ", repaired since" if change.slower and change.repaired else ""
    since = change.first_slow.started[:10]
    yield f"  {_WORDS[change.status]}: {how_much} since {since} ({levels}){over}"
    yield f"    commits {change.last_good.source}..{change.first_slow.source}{_doubt(change)}"
    yield f"    {change.reason}"
    open_question = (
        change.status is ChangeStatus.SUSPECTED and change.slower and not change.repaired
    )
    if open_question and series.execution == Execution.BOARD:
        rounds = f", {counted(change.rounds, 'round')}" if change.rounds else ""
        yield f"    to confirm it, measure both alternately{rounds}, then check again:"
        for command in (*change.commands, f"labctl regressions --recipe {series.recipe}"):
            yield f"      {command}"


def _doubt(change: Change) -> str:
    """Return the range that contains the change with 95 % probability; "" if it is not wider."""
    ends = (change.surely_before, change.surely_after)
    if ends == (change.last_good, change.first_slow):
        return ""
    return f" (95%: {ends[0].source}..{ends[1].source})"


def plot(series: Series, marked: Sequence[int] = ()) -> Iterator[str]:
    """Yield the lines of a plot: a dot for each night; with many nights, for some of them.

    Below the plot is a mark at the first night of each new level.
    """
    values = series.values
    width = min(WIDTH, len(values))
    columns = [
        median(values[len(values) * n // width : len(values) * (n + 1) // width])
        for n in range(width)
    ]
    low, high = math.log(min(columns)), math.log(max(columns))
    span = (high - low) or 1.0
    rows = [round((math.log(value) - low) / span * (HEIGHT - 1)) for value in columns]
    labels = {HEIGHT - 1: shown(series.figure, max(columns)), 0: shown(series.figure, min(columns))}
    margin = max(map(len, labels.values()))
    for line in range(HEIGHT - 1, -1, -1):
        dots = "".join(_DOT if row == line else " " for row in rows).rstrip()
        yield f"  {labels.get(line, ''):>{margin}} | {dots}".rstrip()
    places = {index * width // len(values) for index in marked}
    marks = "".join(_MARK if n in places else " " for n in range(width)).rstrip()
    if marks:
        yield f"  {'':>{margin}}   {marks}"


def sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value; of many values, only for the last ones."""
    shown_values = values[-WIDTH:]
    low, high = min(shown_values), max(shown_values)
    span = (high - low) or 1.0
    places = (round((value - low) / span * (len(_BARS) - 1)) for value in shown_values)
    return "".join(_BARS[place] for place in places)


def false_steps() -> str:
    """Return a sentence: how often a false step is shown."""
    once, mornings = percent(FALSE_ONCE), percent(FALSE_EACH_MORNING)
    return (
        f"of series of 100 nights without a step, at most {once} show one when they are read once;"
        f" read each morning, about {mornings} of those with independent noise show one on some"
        " morning (simulated)"
    )


def shown(figure: TrialFigure, value: float) -> str:
    """Return a value of a figure with its unit."""
    return f"{digits(value)} tokens/s" if figure.more_is_faster else duration(value)


def regressions_document(
    found: Sequence[Judged], without: Sequence[Unmeasured] = ()
) -> dict[str, object]:
    """Return series with their nights and changes as JSON: times in ns, rates in tokens/s.

    ``smallest_step``: smallest detectable step, 0.08 for 8 %; null if the series is too short or
    drifts too much. ``false_steps``: shares of series without a step that show a step.
    ``estimate``: definition of the value of a run and of a night. ``night``: an id of ``labctl
    nightly``, or a day. ``unmeasured``: variants without a valid result in any run.
    """
    return {
        "estimate": NIGHT_ESTIMATE,
        "series": [
            {
                "recipe": series.recipe,
                "variant": series.variant,
                "board": series.board,
                "target": series.target,
                "model": series.model,
                "execution": series.execution,
                "figure": series.figure.gate,
                "nights": [_night(night) for night in series.nights],
                "measured_again": [_night(night) for night in series.again],
                "runs_without_result": list(series.lost),
                "changes": [_change(change) for change in one.changes],
                "smallest_step": one.smallest,
            }
            for one in found
            for series in [one.series]
        ],
        "unmeasured": [asdict(one) for one in without],
        "false_steps": {"read_once": FALSE_ONCE, "read_each_morning": FALSE_EACH_MORNING},
    }


def _night(night: Night) -> dict[str, object]:
    return {
        "night": night.name,
        "runs": [run.run for run in night.runs],
        "started": night.started,
        "source": night.source,
        "revision": night.revision,
        "version": night.version,
        "value": night.value,
        "repeats": sum(len(run.repeats) for run in night.runs),
    }


def _change(change: Change) -> dict[str, object]:
    row = change.row
    return {
        "standing": change.status,
        "slower": change.slower,
        "repaired": change.repaired,
        "ratio": change.step.ratio,
        "before": change.step.before,
        "after": change.step.after,
        "last_good": _night(change.last_good),
        "first_slow": _night(change.first_slow),
        "surely_before": _night(change.surely_before),
        "surely_after": _night(change.surely_after),
        "reason": change.reason,
        "confirmed_ratio": row and row.ratio,
        "confirmed_interval": asdict(row.interval) if row and row.interval else None,
        "rounds": change.rounds,
        "commands": list(change.commands),
    }
