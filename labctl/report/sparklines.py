"""Sparklines for a terminal: the time per token over position, in one line for each variant."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from labctl.errors import printable_line
from labctl.records import RunRecord, TrialRecord
from labctl.report.details import plain
from labctl.results.lateness import single_gaps
from labctl.results.summary import good_trials
from labctl.stats import median
from labctl.units import duration

_BLOCKS = "▁▂▃▄▅▆▇█"
#: For terminals that cannot show blocks: the higher the more ink.
_ASCII = "_.-=+*%#"
#: So far below and above the median a line reaches at least: noise must not look like a slope.
_LEAST_REACH = 0.2
_LONGEST_NAME = 24
_LEAST, _MOST = 8, 60


def print_sparklines(console: Console, run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    """Print the median time of each token over the repeats, for each variant that has them.

    Only on a terminal, and in its width; nothing where a line would have too little room.
    """
    if not console.is_terminal:
        return
    found = {name: times for name, times in _medians(run, trials).items() if len(times) > 1}
    if not found:
        return
    levels = _BLOCKS if console.encoding.startswith("utf") else _ASCII
    names = {name: printable_line(name) for name in found}
    column = min(_LONGEST_NAME, console.width // 3, max(map(cell_len, names.values())))
    ranges = {name: _range(times) for name, times in found.items()}
    room = console.width - column - 2 - max(map(cell_len, ranges.values())) - 2 - 1
    if room < _LEAST:
        return
    console.print("time per token, from the second to the last:", style="dim", highlight=False)
    for name, times in found.items():
        line = sparkline(times, min(room, _MOST), levels)
        shown = plain(set_cell_size(names[name], column))
        console.print(f"{shown}  {line}  [dim]{ranges[name]}[/]", highlight=False, no_wrap=True)


def sparkline(times: Sequence[float], width: int, levels: str = _BLOCKS) -> str:
    """Return times, at least one, as marks of so many levels; no more than ``width`` of them.

    Where there are more times than marks, a mark is the median of neighbours.
    """
    count = min(width, len(times))
    edges = [n * len(times) // count for n in range(count + 1)]
    marks = [median(times[edges[n] : edges[n + 1]]) for n in range(count)]
    middle = median(marks)
    low = min(*marks, middle * (1 - _LEAST_REACH))
    high = max(*marks, middle * (1 + _LEAST_REACH))
    step = (high - low) / len(levels)
    if not step:
        return levels[0] * count
    return "".join(levels[min(len(levels) - 1, int((mark - low) / step))] for mark in marks)


def _range(times: Sequence[float]) -> str:
    low, high = duration(min(times)), duration(max(times))
    if low == high:
        return low
    value, _, unit = low.rpartition(" ")
    return f"{value}-{high}" if high.endswith(f" {unit}") else f"{low}-{high}"


def _medians(run: RunRecord, trials: Sequence[TrialRecord]) -> dict[str, list[float]]:
    """Return the medians over the repeats by variant, in the order of positions."""
    variants: dict[str, dict[int, list[int]]] = {variant: {} for variant in run.variants}
    for trial in good_trials(trials):
        if trial.timing and trial.timing.p50_ns is not None:
            positions = variants.setdefault(trial.variant, {})
            for gap in single_gaps(trial.timing):
                positions.setdefault(gap.position, []).append(gap.ns)
    return {
        variant: [median(times) for _, times in sorted(positions.items())]
        for variant, positions in variants.items()
    }
