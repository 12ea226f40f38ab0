"""Timing tables for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table

from labctl.records import (
    Execution,
    GateRecord,
    ModelIdentity,
    RunRecord,
    TimingRecord,
    TrialRecord,
)
from labctl.report.details import plain, print_details, print_whole, reasons
from labctl.results.summary import LEVEL, VariantSummary, good_trials, summarise, wanted_precision
from labctl.units import digits, duration, ranges, size

_NOT_A_BOARD = {
    Execution.EMULATED: "EMULATED ({emulator}): does not show the speed of a board",
    Execution.NATIVE_HOST: "NATIVE HOST: measured on this computer, not on a board",
}
_TOKENS_A_LINE = 10


def print_timing_table(
    console: Console,
    run: RunRecord,
    trials: Sequence[TrialRecord],
    gates: Sequence[GateRecord] = (),
) -> None:
    """Print the table of a run: a row for each variant, then notes that the reader needs."""
    rows = summarise(trials, run.variants, wanted_precision(run))
    console.print(_headline(run), highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings, lines = timing_cells(run, trials)
    for name, justify in headings:
        table.add_column(name, justify=justify, no_wrap=name != "checks")
    for cells in lines:
        table.add_row(*map(plain, cells))
    print_whole(console, table)
    print_details(console, rows)
    reason_lines = [plain(line) for line in reasons(run, trials)]
    for line in [*_moves(trials), *_gates(gates), *reason_lines, *_notes(rows, run)]:
        console.print(line, highlight=False, soft_wrap=True)


def timing_cells(
    run: RunRecord, trials: Sequence[TrialRecord]
) -> tuple[list[tuple[str, JustifyMethod]], list[tuple[str, ...]]]:
    """Return the table of a run as texts: headings with their alignment, a row for each variant."""
    precision = wanted_precision(run)
    level = precision.level if precision else LEVEL
    rows = summarise(trials, run.variants, precision)
    headings = [(name.format(level=level), justify) for name, justify in _COLUMNS]
    return headings, [_cells(row, is_first=row is rows[0]) for row in rows]


def _moves(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Lines on the moves of a run from board to board."""
    numbers: dict[str, list[int]] = {}
    for trial in trials:
        numbers.setdefault(trial.board, []).append(trial.number)
    if len(numbers) > 1:
        label = [f"{plain(board)} (trials {ranges(n)})" for board, n in numbers.items()]
        yield (
            f"[bold]measured on {len(numbers)} boards:[/] {', '.join(label)}; each round of repeats"
            " is whole on one of them"
        )


def print_experiment(console: Console, run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    """Print each token's time, and the figures of the table, as a log kept by hand has them."""
    console.print(_headline(run), highlight=False, soft_wrap=True)
    lines: list[str] = []
    good = good_trials(trials)
    for row in summarise(trials, run.variants, wanted_precision(run)):
        timings = [t.timing for t in good if t.variant == row.variant and t.timing]
        gaps = [gap for timing in timings for gap in timing.token_ns]
        if not gaps:
            continue
        lines.append(f"\n{row.variant}, seconds of each token after the first:")
        seconds = [f"{gap / 1e9:8.3f}" for gap in gaps]
        starts = range(0, len(seconds), _TOKENS_A_LINE)
        lines += ["".join(seconds[start : start + _TOKENS_A_LINE]) for start in starts]
        timed = [timing for timing in timings if timing.mean_ns]
        if row.token_ns is None:
            lines.append("no mean: the number of tokens is unknown")
            continue
        figure = "mean" if len(timed) == 1 else f"median of {len(timed)} trials' means"
        ratio = "" if row.ratio is None else f", ratio {row.ratio:.2f}"
        tokens = sum(map(_tokens_in_gaps, timed))
        lines.append(f"{figure} {row.token_ns / 1e9:.3f} s a token over {tokens}{ratio}")
    console.print(
        plain("\n".join(lines)) if lines else "no token was timed", highlight=False, soft_wrap=True
    )


def _tokens_in_gaps(timing: TimingRecord) -> int:
    """Tokens that came together share a gap; at the ends some may be in none."""
    if not timing.token_ns:
        return 0
    unseen = (timing.unseen_first or 0) + (timing.unseen_last or 0)
    return (timing.generated_tokens or 1) - 1 - unseen


def _headline(run: RunRecord) -> str:
    head = f"[bold]{plain(run.recipe)}[/] on {plain(run.board)} ({plain(run.target)})"
    mark = _NOT_A_BOARD.get(run.facts.execution)
    if mark is None:
        return head
    return f"{head}\n[bold red]{plain(mark.format(emulator=run.facts.emulator or 'emulator'))}[/]"


_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("model", "left"),
    ("quantization", "left"),
    ("size", "right"),
    ("trials", "right"),
    ("tokens", "right"),
    ("TTFT", "right"),
    ("per token", "right"),
    ("{level:.0%} interval", "right"),
    ("tokens/s", "right"),
    ("ratio", "right"),
    ("checks", "left"),
)


def _cells(row: VariantSummary, *, is_first: bool) -> tuple[str, ...]:
    model = row.model
    planned = row.trials_ok + row.trials_failed + row.trials_skipped
    known = row.token_interval
    return (
        row.variant,
        _weights(model),
        size(model.size_bytes),
        f"{row.trials_ok}/{planned}",
        "-" if row.generated_tokens is None else str(row.generated_tokens),
        duration(row.ttft_ns),
        duration(row.token_ns),
        f"{duration(known.low)} - {duration(known.high)}" if known else "-",
        "-" if row.tokens_per_second is None else digits(row.tokens_per_second),
        _ratio(row, is_first=is_first),
        _checks(row),
    )


def _ratio(row: VariantSummary, *, is_first: bool) -> str:
    if row.ratio is None:
        return "-"
    if is_first:
        return f"{row.ratio:.2f}"
    found = row.ratio_interval
    if found is None:
        return f"~{digits(row.ratio)}"
    return f"{digits(row.ratio)} ({digits(found.low)}-{digits(found.high)})"


def _weights(model: ModelIdentity) -> str:
    if model.quantization is None or model.bits_per_weight is None:
        return "-"
    requantized = f" (from {model.requantized_from})" if model.requantized_from else ""
    return f"{model.quantization}{requantized}, {digits(model.bits_per_weight)} bits/weight"


def _checks(row: VariantSummary) -> str:
    if not row.trials_ok:
        return "no result"
    if row.checks_failed:
        return "FAILED: " + ", ".join(row.checks_failed)
    return "ok" if row.checked else "none"


def _gates(gates: Sequence[GateRecord]) -> list[str]:
    words = {True: "[green]kept[/]", False: "[bold red]MISSED[/]", None: "[yellow]open[/]"}
    return [
        f"gate {words[gate.passed]}: "
        + plain(f"{gate.variant} {gate.metric} {gate.limit}: {gate.detail}")
        for gate in gates
    ]


def _notes(rows: Sequence[VariantSummary], run: RunRecord) -> list[str]:
    notes = [plain(f"note: {note}") for note in run.plan_notes]
    for row in rows:
        notes += [plain(f"{row.variant}: {failure}") for failure in row.failures]
        if row.skip_reason:
            what = f"{row.trials_skipped} of its trials were not measured"
            notes.append(plain(f"{row.variant}: {what}: {row.skip_reason}"))
        if row.energy is not None and row.energy.absent:
            what = f"the energy of {row.energy.absent} of its trials is not known"
            notes.append(plain(f"{row.variant}: {what}: {row.energy.reason}"))
    notes.append(
        "[dim]TTFT: process start to first token, load included; per token: median over the trials"
        " of each one's mean; ratio: to the first row, ~ without an interval.[/]"
    )
    return notes
