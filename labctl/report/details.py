"""Details of a run that its table has no space for, and the reasons below the table.

Details: phases, benchmark tests, energy and more. Reasons: why the numbers are as they are, and
which to trust."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from labctl.errors import printable
from labctl.performance.bottleneck import NAMES
from labctl.records import RunRecord, TrialRecord
from labctl.results.comparability import cache_class
from labctl.results.outliers import outliers
from labctl.results.stopping_rule import ratio_verdict, trend_verdict, verdict
from labctl.results.summary import (
    EnergySummary,
    MeasureSummary,
    VariantSummary,
    good_trials,
    summarise,
    wanted_precision,
)
from labctl.results.telemetry import RECLAIMING
from labctl.stats import median
from labctl.units import counted, digits, duration, size


def reasons(run: RunRecord, trials: Sequence[TrialRecord]) -> list[str]:
    """Lines for people: bounds, predictions, precision, outliers, missing values."""
    groups: dict[str, list[TrialRecord]] = {variant: [] for variant in run.variants}
    for trial in good_trials(trials):
        groups.setdefault(trial.variant, []).append(trial)
    lines = [line for group in groups.values() for line in _of_variant(group)]
    precision = wanted_precision(run)
    rows = summarise(trials, run.variants, precision)
    lines += [line for row in rows if (line := ratio_verdict(row, rows[0].variant))]
    if precision:
        lines += [verdict(precision, name, group) for name, group in groups.items() if group]
    lines += [line for name, group in groups.items() if (line := trend_verdict(name, group))]
    lines += [outlier.sentence for outlier in outliers(trials)]
    lines += [line for v, group in groups.items() for line in _failed_checks(v, group)]
    return [*lines, *_not_had(trials), *_again(trials)]


def _of_variant(group: Sequence[TrialRecord]) -> Iterator[str]:
    """Sentences of the trial in the middle; one trial's are as good as another's."""
    bound = sorted(
        (trial for trial in group if trial.bound), key=lambda t: t.bound.share if t.bound else 0
    )
    if bound:
        middle = bound[len(bound) // 2]
        yield f"{middle.variant}: {middle.bound.sentence if middle.bound else ''}"
    compared = sorted(
        (trial for trial in group if trial.measured_to_predicted),
        key=lambda trial: trial.measured_to_predicted or 0,
    )
    if compared:
        middle = compared[len(compared) // 2]
        yield f"{middle.variant}: {_against_prediction(middle)}"
    near = [text for trial in group if (text := _between_predictions(trial))]
    if near:
        yield f"{group[0].variant}: {near[0]}"
    reclaimed = [t.evidence.reclaim_share for t in group if t.evidence and t.evidence.reclaim_share]
    if reclaimed and (share := median(reclaimed)) >= RECLAIMING:
        yield (
            f"{group[0].variant}: the kernel used {share:.0%} of a CPU to free memory (kswapd),"
            " as it does when more is read than stays in memory; it is not part of quiet"
        )
    starts: dict[str, list[str]] = {}
    for trial in group:
        if found := cache_class(trial.job.state if trial.job else None):
            starts.setdefault(found, []).append(str(trial.number))
    if len(starts) > 1:
        text = ", ".join(f"{name} in {', '.join(of)}" for name, of in starts.items())
        yield (
            f"{group[0].variant}: trials began with different shares of the model in memory"
            f" ({text}): their TTFTs are not comparable"
        )


def _against_prediction(trial: TrialRecord) -> str:
    """Compare a trial with its prediction, for people."""
    if not (trial.predicted and trial.timing and trial.measured_to_predicted):
        return ""
    took, expected = duration(trial.timing.mean_ns), duration(trial.predicted.token_ns)
    return (
        f"predicted {expected} a token, bound by {NAMES[trial.predicted.bound]}; measured {took},"
        f" {trial.measured_to_predicted:.2f} times that"
    )


def _between_predictions(trial: TrialRecord) -> str:
    """Both times that were expected near the border of what fits in memory; for people."""
    expected, measured = trial.predicted, trial.timing.mean_ns if trial.timing else None
    if expected is None or expected.storage_token_ns is None or measured is None:
        return ""
    return (
        f"its need is so near to the memory that {duration(expected.resident_token_ns)} a token"
        f" were predicted if the weights stay there, {duration(expected.storage_token_ns)} if"
        f" storage reads them again; measured {duration(measured)}"
    )


def _failed_checks(variant: str, group: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield the details of the checks that the table only names."""
    failed: dict[str, list[str]] = {}
    for trial in group:
        for check in trial.checks:
            if check.ok is False:
                failed.setdefault(check.name, []).append(f"trial {trial.number}: {check.detail}")
    for name, found in failed.items():
        yield f"{variant}: {name} failed in {len(found)} of {len(group)} trials; {found[0]}"


def _not_had(trials: Sequence[TrialRecord]) -> Iterator[str]:
    missing: dict[tuple[str, str, str], int] = {}
    for trial in trials:
        for one in trial.conditions:
            if one.ok is not True:
                key = (one.name, one.wanted, one.had)
                missing[key] = missing.get(key, 0) + 1
    for (name, wanted, had), count in missing.items():
        yield f"not as asked in {count} trials: {name} {wanted}: {had}"


def _again(trials: Sequence[TrialRecord]) -> Iterator[str]:
    for trial in trials:
        for failure in trial.earlier_failures:
            yield f"trial {trial.number} was retried: {failure.message}"


_WIDEST = 1000


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its own width: a wrapped line is better than a cut number."""
    roomy = console.options.update(max_width=_WIDEST)
    needed = Measurement.get(console, roomy, table).maximum
    terminal, console.width = console.width, max(needed, console.width)
    console.print(table)
    console.width = terminal


def plain(text: str) -> str:
    """Text of boards and programs for a console: no markup, no control sequence for a terminal."""
    return escape(printable(text))


_SHOWN: dict[str, Callable[[float], str]] = {"ns": duration, "bytes": size}


def print_details(console: Console, rows: Sequence[VariantSummary]) -> None:
    """Tables of phases, of tokens inside a trial, of benchmarks' tests, of other measures and of
    energy: what there is.
    """
    phases = _table(
        "model",
        ">load",
        ">prompt eval",
        ">eval",
        ">end to end",
        ">peak memory",
        ">storage read/token",
    )
    for row in rows:
        times = (row.load_ns, row.prompt_eval_ns, row.eval_ns, row.end_to_end_ns)
        sizes = (row.peak_memory_bytes, row.read_bytes_per_token)
        if any(value is not None for value in (*times, *sizes)):
            cells = (*map(duration, times), *map(size, sizes))
            phases.add_row(plain(row.variant), *cells)
    tests = _table("model", "test", ">repetitions", ">time", ">p10-p90", ">tokens/s")
    for row in rows:
        for test in row.tests:
            spread = f"{duration(test.p10_ns)} - {duration(test.p90_ns)}"
            rate = digits(test.tokens_per_second)
            cells = (test.name, str(test.repetitions), duration(test.p50_ns), spread, rate)
            tests.add_row(plain(row.variant), *cells)
    measures = _table("model", "measure", ">trials", ">median", ">p10-p90", ">±")
    for row in rows:
        for measure in row.measures:
            measures.add_row(plain(row.variant), *_cells(measure))
    energies = _table("model", "energy of", ">a trial", ">per token", ">mean power", ">peak")
    for row in rows:
        if row.energy is not None and row.energy.trials:
            energies.add_row(plain(row.variant), *_energy_cells(row.energy))
    for table in (phases, _inside(rows), tests, measures, energies):
        if table.row_count:
            console.print()
            print_whole(console, table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    return table


def _inside(rows: Sequence[VariantSummary]) -> Table:
    """Return the spread of single tokens inside a trial, which no interval over trials contains."""
    table = _table("model", "tokens inside", ">p10", ">p50", ">p90")
    for row in rows:
        if row.token_p50_ns is not None:
            times = (row.token_p10_ns, row.token_p50_ns, row.token_p90_ns)
            table.add_row(
                plain(row.variant), counted(row.trials_ok, "trial"), *map(duration, times)
            )
    return table


def _energy_cells(energy: EnergySummary) -> tuple[str, ...]:
    def shown(value: float | None, unit: str) -> str:
        return "-" if value is None else f"{digits(value)} {unit}"

    return (
        counted(energy.trials, "trial"),
        shown(energy.joules, "J"),
        shown(energy.joules_per_token, "J"),
        shown(energy.mean_watts, "W"),
        shown(energy.peak_watts, "W"),
    )


def _cells(measure: MeasureSummary) -> tuple[str, ...]:
    def shown(value: float) -> str:
        if measure.unit in _SHOWN:
            return _SHOWN[measure.unit](value)
        return f"{value:.6g}" + ("" if measure.unit == "1" else f" {measure.unit}")

    spread = f"{shown(measure.p10)} - {shown(measure.p90)}" if measure.values > 1 else "-"
    error = "-" if measure.error is None else shown(measure.error)
    cells = (measure.name, str(measure.values), shown(measure.p50), spread, error)
    return tuple(plain(cell) for cell in cells)
