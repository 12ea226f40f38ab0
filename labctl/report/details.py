"""Details of a run that its table has no space for: phases, benchmark tests, energy and more."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from labctl.report.whole import plain, print_whole
from labctl.results.summary import EnergySummary, MeasureSummary, VariantSummary
from labctl.units import counted, digits, duration, size

_SHOWN: dict[str, Callable[[float], str]] = {"ns": duration, "bytes": size}


def print_details(console: Console, rows: Sequence[VariantSummary]) -> None:
    """Tables of phases, of tokens inside a trial, of benchmarks' tests, of other measures and of
    energy: what there is.
    """
    phases = _table(
        "model", ">load", ">prompt eval", ">eval", ">end to end", ">peak memory", ">read a token"
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
