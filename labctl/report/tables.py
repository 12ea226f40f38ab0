"""Timing tables for a terminal, and sparklines: the time per token over position, in one line."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from labctl.errors import printable_line
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunRecord
from labctl.records.timing import TimingRecord
from labctl.records.trial import TrialRecord
from labctl.report.console import plain, print_lines, print_table
from labctl.report.page.language import Language
from labctl.report.references import COLUMNS, HEADLINE, ReferenceRow
from labctl.report.remarks import remarks
from labctl.report.result_tables import Results, result_tables
from labctl.report.status import Status
from labctl.report.table import STYLES, plain_cells
from labctl.results.summary import ESTIMATE, good_trials, summarise, wanted_precision
from labctl.results.timing_checks import single_gaps
from labctl.stats.describe import median
from labctl.units import duration

_NOT_A_BOARD = {
    Execution.EMULATED: "EMULATED ({emulator}): does not show the speed of a board",
    Execution.NATIVE_HOST: "NATIVE HOST: measured on this computer, not on a board",
    Execution.UNKNOWN: "IMPORTED: measured elsewhere, the machine is not known",
}
_TOKENS_A_LINE = 10


def print_timing_table(
    console: Console,
    run: RunRecord,
    trials: Sequence[TrialRecord],
    gates: Sequence[GateRecord] = (),
    *,
    wide: bool = False,
    references: Sequence[ReferenceRow] = (),
    status: Status | None = None,
) -> None:
    """Print the status and the table of a run: a row for each variant, then notes for the reader.

    The table fits in 80 columns; ``wide`` adds columns and tables of details. ``status``: None if
    it is not known.
    """
    if status:
        print_status(console, status)
    print_lines(console, [_headline(run)])
    results = Results(run, trials, status=status)
    first, *details = result_tables([results], (), Language("en"))
    print_table(console, *plain_cells(first, brief=not wide), shorten=not wide)
    for one in details:
        if wide or not one.roomy:
            print_lines(console, ["", f"[dim]{one.caption}[/]"])
            print_table(console, *plain_cells(one), shorten=not wide)
    if references:
        print_references(console, references, wide=wide)
    told = status.reason.last_lines if status and status.reason else ()
    for remark in remarks(run, trials, gates, told):
        lead = f"[{STYLES[remark.tone]}]{remark.lead}[/]"
        print_lines(console, [f"{lead}{plain(remark.text)}"])
        print_last_lines(console, remark.last_lines)
    legend = _LEGEND if wide else f"{_LEGEND} {_SHORT_LEGEND.format(level=results.level)}"
    print_lines(console, [f"[dim]{legend}[/]"])


def print_status(console: Console, status: Status) -> None:
    """Print the first line of all that shows a run, and the last lines of a failed program."""
    style = {"passed": "green", "running": "cyan", "imported": "dim"}.get(status.state, "bold red")
    state, _, rest = status.line(Language("en")).partition(":")
    print_lines(console, [f"[{style}]{state}[/]:{plain(rest)}"])
    print_last_lines(console, status.reason.last_lines if status.reason else ())


def print_headline(console: Console, run: RunRecord) -> None:
    """Print recipe and board of a run, and a warning if it did not run on a board."""
    print_lines(console, [_headline(run)])


def print_last_lines(console: Console, lines: Sequence[str]) -> None:
    """Print the last lines of a failed program's standard error.

    No line begins with the program's text, which a CI server could read as a command.
    """
    print_lines(console, [f"  [dim]| {plain(line)}[/]" for line in lines])


def print_references(
    console: Console, references: Sequence[ReferenceRow], *, wide: bool = False
) -> None:
    """Print published figures in a separate table, marked as published."""
    console.print()
    print_lines(console, [f"[bold yellow]{HEADLINE}[/]"])
    if wide:
        print_table(console, COLUMNS, [row.cells for row in references], shorten=False)
        return
    columns = (0, 1, 3)  # the part that fits in 80 columns
    cells = [tuple(row.cells[index] for index in columns) for row in references]
    print_table(console, [COLUMNS[index] for index in columns], cells, shorten=True)
    print_lines(
        console, [plain(f"{row.name}: {row.cells[2]}; {row.cells[6]}") for row in references]
    )


def headline(run: RunRecord) -> tuple[str, str]:
    """Return the board and target of a run, and a warning if it did not run on a board."""
    mark = _NOT_A_BOARD.get(run.facts.execution, "")
    where = f"on {run.board} ({run.target})" if run.board else "from a file"
    return where, mark.format(emulator=run.facts.emulator or "emulator")


def print_experiment(console: Console, run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    """Print each token's time, and the figures of the table, like a handwritten log."""
    print_lines(console, [_headline(run)])
    lines: list[str] = []
    good = good_trials(trials)
    for row in summarise(trials, run.variants, wanted_precision(run)):
        timings = [t.timing for t in good if t.variant == row.variant and t.timing]
        gaps = [gap for timing in timings for gap in timing.token_ns]
        if not gaps:
            continue
        lines += ["", f"{row.variant}, seconds of each token after the first:"]
        seconds = [f"{gap / 1e9:8.3f}" for gap in gaps]
        starts = range(0, len(seconds), _TOKENS_A_LINE)
        lines += ["".join(seconds[start : start + _TOKENS_A_LINE]) for start in starts]
        timed = [timing for timing in timings if timing.mean_ns]
        if row.token_ns is None:
            lines.append("no mean: the number of tokens is unknown")
            continue
        figure = "mean" if len(timed) == 1 else f"{ESTIMATE} of {len(timed)} trials' means"
        ratio = "" if row.ratio is None else f", ratio {row.ratio:.2f}"
        tokens = sum(map(_tokens_in_gaps, timed))
        lines.append(f"{figure} {row.token_ns / 1e9:.3f} s a token over {tokens}{ratio}")
    for line in lines or ["no token was timed"]:
        console.print(plain(line), highlight=False, soft_wrap=True)


def _tokens_in_gaps(timing: TimingRecord) -> int:
    """Return the number of tokens in gaps: tokens may share a gap, unseen tokens have none."""
    if not timing.token_ns:
        return 0
    unseen = (timing.unseen_first or 0) + (timing.unseen_last or 0)
    return (timing.generated_tokens or 1) - 1 - unseen


def _headline(run: RunRecord) -> str:
    where, warning = headline(run)
    head = f"[bold]{plain(run.recipe)}[/] {plain(where)}"
    return f"{head}\n[bold red]{plain(warning)}[/]" if warning else head


_LEGEND = (
    "TTFT: process start to first token, load included; time per token: geometric mean over the"
    " trials of each one's mean; ratio: to the first row, geometric mean over rounds; ~: without an"
    " interval."
)
_SHORT_LEGEND = "±: the wider side of the {level} interval. More: --wide."


_BLOCKS = "▁▂▃▄▅▆▇█"
#: For terminals that cannot show blocks: higher values have more ink.
_ASCII = "_.-=+*%#"
#: A line's range is at least this share of the median below and above it: noise is not a slope.
_LEAST_REACH = 0.2
_LONGEST_NAME = 24
_LEAST, _MOST = 8, 60


def print_sparklines(console: Console, run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    """Print the median time of each token over the repeats, for each variant with token times.

    Only on a terminal, within its width; nothing if a line has too little room.
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
    """Return times (at least one) as marks of different heights; at most ``width`` marks.

    With more times than marks, a mark is the median of neighbouring times.
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
