"""Tables of results in a report: typed columns over summaries of variants."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from labctl.performance.bottleneck import nearest_bounds
from labctl.records.board import Execution
from labctl.records.trial import TrialBound
from labctl.report.page.answer import middle_bound
from labctl.report.page.content import Cell, Column, Table
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.references import ReferenceRow
from labctl.results.summary import MeasureSummary, TestSummary, VariantSummary
from labctl.units import confidence, digits, duration, size

_SHOWN: dict[str, Callable[[float], str]] = {
    "ns": duration,
    "bytes": size,
    "count": lambda value: f"{value:.0f}",
    "number": digits,
    "value": lambda value: f"{value:.6g}",
    "J": lambda value: f"{digits(value)} J",
    "W": lambda value: f"{digits(value)} W",
}
ABSENT = Cell("–")
SHORT_BOUNDS = {"storage": "storage", "dram": "DRAM", "compute": "arithmetic"}


@dataclass(frozen=True)
class _Field:
    """A numeric column: how a value is found on a row, and its unit."""

    heading: str
    unit: str
    get: Callable[[Any], float | None]
    tip: str = ""

    def column(self, words: Language) -> Column:
        return Column(words(self.heading), numeric=True, tip=words(self.tip) if self.tip else "")

    def cell(self, row: object) -> Cell:
        return quantity(self.get(row), self.unit)


def quantity(value: float | None, unit: str) -> Cell:
    """Return the cell of a value in ``ns``, ``bytes``, ``J`` ...; a dash where it is not known."""
    return ABSENT if value is None else Cell(_SHOWN[unit](value), value)


def result_tables(
    runs: Sequence[MeasuredRun], quoted: Sequence[ReferenceRow], words: Language
) -> list[Table]:
    """Return the table of all variants, and those of what else was measured."""
    tables = [_experiment(runs, words)]
    for caption, fields, named in _DETAILS:
        tables += _details(runs, words(caption), fields, named, words)
    if quoted:
        tables.append(_quoted(quoted, words))
    return tables


def _experiment(runs: Sequence[MeasuredRun], words: Language) -> Table:
    apart = _run_columns(runs, words)
    level = f"{confidence(_level(runs[0]))}%"
    columns = [
        Column(words("Variant"), tip=words("A model with its parameters, as the recipe names it.")),
        *apart,
        Column(
            words("Quantization"),
            tip=words("Type of the weights; bits are over all weights."),
            later=True,
        ),
        Column(words("Model size"), numeric=True, later=True),
        Column(
            words("Time per token"),
            numeric=True,
            tip=words("Geometric mean over the trials of each one's mean."),
        ),
        Column(
            words("{level} interval", level=level),
            numeric=True,
            tip=words("Of the time per token, from the trials alone (Student's t of logarithms)."),
        ),
        Column(
            words("Median time"),
            numeric=True,
            tip=words("Of the same trials. The interval is not its interval."),
            later=True,
        ),
        Column(
            words("Ratio"),
            numeric=True,
            tip=words(
                "Time per token over that of the run's first variant, paired by round; ~: no"
                " interval is known."
            ),
        ),
        Column(words("Tokens/s"), numeric=True),
        Column(
            words("TTFT"),
            numeric=True,
            tip=words("Time to first token: from the start of the program, loading included."),
        ),
        Column(words("Good trials"), numeric=True, tip=words("Of those planned; no warm-ups.")),
        Column(
            words("Bound by"), tip=words("The nearest bound, and its share of the measured time.")
        ),
        Column(words("Checks")),
    ]
    rows = [_row(one, row, words, len(apart)) for one in runs for row in one.rows]
    return Table(words("Experiment"), columns, rows)


def _run_columns(runs: Sequence[MeasuredRun], words: Language) -> list[Column]:
    """Return the columns that distinguish runs; none for a single run."""
    if len(runs) == 1:
        return []
    boards = {one.run.board for one in runs}
    return [Column(words("Run")), *([Column(words("Board"))] if len(boards) > 1 else [])]


def _row(one: MeasuredRun, row: VariantSummary, words: Language, apart: int) -> list[Cell]:
    between, is_first = row.token_interval, row is one.rows[0]
    known = between is not None and not between.is_vague
    planned = row.trials_ok + row.trials_failed + row.trials_skipped
    bits = row.model.bits_per_weight
    quantization = row.model.quantization or "–"
    if row.model.requantized_from:
        quantization = words("{new} (from {old})", new=quantization, old=row.model.requantized_from)
    return [
        Cell(row.variant, tip=row.model.file, mark=one.marks, recorded=True),
        *_run_cells(one, apart),
        Cell(
            words("{name}, {bits} bits", name=quantization, bits=digits(bits))
            if bits
            else quantization,
            tip=row.model.sha256 and f"SHA-256 {row.model.sha256}",
        ),
        quantity(row.model.size_bytes, "bytes"),
        quantity(row.token_ns, "ns"),
        Cell(f"{duration(between.low)} – {duration(between.high)}", between.relative)
        if between and known
        else ABSENT,
        quantity(row.token_median_ns, "ns"),
        _ratio(row, is_first=is_first),
        quantity(row.tokens_per_second, "number"),
        quantity(row.ttft_ns, "ns"),
        Cell(f"{row.trials_ok}/{planned}", row.trials_ok),
        _bound(middle_bound(one.good[row.variant]), words),
        _checks(row, words),
    ]


def _run_cells(one: MeasuredRun, count: int) -> list[Cell]:
    """Return the cells of the first ``count`` of these columns."""
    when = one.run.started.timestamp()
    run = Cell(one.short, when, tip=one.run.id, recorded=True)
    return [run, Cell(one.run.board, recorded=True)][:count]


def _bound(bound: TrialBound | None, words: Language) -> Cell:
    if bound is None:
        return ABSENT
    name = words(SHORT_BOUNDS[bound.kind]) if bound.kind else words("none near")
    others = nearest_bounds(bound.shares)[1:] if bound.kind else []
    name = ", ".join((name, *(words(SHORT_BOUNDS[kind]) for kind in others)))
    return Cell(f"{name} {bound.share:.0%}", bound.share, tip=bound.sentence)


def _ratio(row: VariantSummary, *, is_first: bool) -> Cell:
    if row.ratio is None:
        return ABSENT
    if is_first:
        return Cell("1.00", 1.0)
    found = row.ratio_interval
    if found is None or found.is_vague:
        return Cell(f"~{digits(row.ratio)}", row.ratio)
    return Cell(f"{digits(row.ratio)} ({digits(found.low)} – {digits(found.high)})", row.ratio)


def _checks(row: VariantSummary, words: Language) -> Cell:
    if not row.trials_ok:
        return Cell(words("no result"), tone="bad")
    if row.checks_failed:
        return Cell(words("FAILED: {names}", names=", ".join(row.checks_failed)), tone="bad")
    held = words("ok") if row.checked else words("none")
    if row.checks_open:
        names = ", ".join(row.checks_open)
        return Cell(words("{held}; not judged: {names}", held=held, names=names))
    return Cell(held)


def _level(one: MeasuredRun) -> float:
    intervals = [row.token_interval for row in one.rows if row.token_interval]
    return intervals[0].level if intervals else 0.95


def _phases(row: VariantSummary) -> Iterator[tuple[str, object]]:
    if any(field.get(row) is not None for field in _PHASES):
        yield "", row


def _inside(row: VariantSummary) -> Iterator[tuple[str, object]]:
    if row.token_p50_ns is not None:
        yield "", row


def _energies(row: VariantSummary) -> Iterator[tuple[str, object]]:
    if row.energy is not None and row.energy.trials:
        yield "", row.energy


def _tests(row: VariantSummary) -> Iterator[tuple[str, TestSummary]]:
    for test in row.tests:
        yield test.name, test


def _measures(row: VariantSummary) -> Iterator[tuple[str, MeasureSummary]]:
    for measure in row.measures:
        unit = "" if measure.unit == "1" else f" ({measure.unit})"
        yield f"{measure.name}{unit}", measure


_PHASES = (
    _Field("Load", "ns", lambda r: r.load_ns, "As the program reports it."),
    _Field("Prompt eval", "ns", lambda r: r.prompt_eval_ns, "Reading the prompt (prefill)."),
    _Field("Eval", "ns", lambda r: r.eval_ns, "Generating tokens (decode)."),
    _Field("End to end", "ns", lambda r: r.end_to_end_ns, "From start to end of the program."),
    _Field("Peak memory", "bytes", lambda r: r.peak_memory_bytes, "Greatest resident set."),
    _Field("Storage read per token", "bytes", lambda r: r.read_bytes_per_token),
)
_INSIDE = (
    _Field("p10", "ns", lambda r: r.token_p10_ns),
    _Field("p50", "ns", lambda r: r.token_p50_ns),
    _Field("p90", "ns", lambda r: r.token_p90_ns),
)
_TESTS = (
    _Field("Repetitions", "count", lambda t: t.repetitions),
    _Field("Time", "ns", lambda t: t.p50_ns),
    _Field("p10", "ns", lambda t: t.p10_ns),
    _Field("p90", "ns", lambda t: t.p90_ns),
    _Field("Tokens/s", "number", lambda t: t.tokens_per_second),
)
_MEASURES = (
    _Field("Values", "count", lambda m: m.values),
    _Field("Median", "value", lambda m: m.p50),
    _Field("p10", "value", lambda m: m.p10),
    _Field("p90", "value", lambda m: m.p90),
    _Field("Standard error", "value", lambda m: m.error, "As the program reports it."),
)
_ENERGY = (
    _Field("Energy of a trial", "J", lambda e: e.joules),
    _Field("Energy per token", "J", lambda e: e.joules_per_token),
    _Field("Mean power", "W", lambda e: e.mean_watts),
    _Field("Peak power", "W", lambda e: e.peak_watts),
)
#: Caption, columns, and what of a variant has a row in the table, with its name.
_DETAILS = (
    ("Tests of the benchmark", _TESTS, _tests),
    ("Measures", _MEASURES, _measures),
    ("Phases", _PHASES, _phases),
    ("Single tokens inside a trial", _INSIDE, _inside),
    ("Energy", _ENERGY, _energies),
)


def _details(
    runs: Sequence[MeasuredRun],
    caption: str,
    fields: Sequence[_Field],
    named: Callable[[VariantSummary], Iterator[tuple[str, object]]],
    words: Language,
) -> Iterator[Table]:
    apart = _run_columns(runs, words)
    found = [(one, row, *part) for one in runs for row in one.rows for part in named(row)]
    if not found:
        return
    has_names = any(name for _, _, name, _ in found)
    columns = [
        Column(words("Variant")),
        *apart,
        *([Column(words("Name"))] if has_names else []),
        *(field.column(words) for field in fields),
    ]
    rows = [
        [
            Cell(row.variant, mark=one.marks, recorded=True),
            *_run_cells(one, len(apart)),
            *([Cell(name, recorded=True)] if has_names else []),
            *(field.cell(part) for field in fields),
        ]
        for one, row, name, part in found
    ]
    yield Table(caption, columns, rows)


def _quoted(quoted: Sequence[ReferenceRow], words: Language) -> Table:
    columns = [
        Column(words("Quoted")),
        Column(words("Device")),
        Column(words("Model")),
        Column(words("As published"), numeric=True),
        Column(words("Time per token"), numeric=True),
        Column(words("Tokens/s"), numeric=True),
        Column(words("Source"), wide=True),
    ]
    rows = [
        [
            *(Cell(text, recorded=True) for text in row.cells[:3]),
            Cell(row.cells[3], row.value),
            quantity(row.token_ns, "ns"),
            quantity(row.tokens_per_second, "number"),
            Cell(row.cells[6], recorded=True),
        ]
        for row in quoted
    ]
    note = words("Quoted from publications, not measured by labctl; part of no statistic.")
    return Table(words("Published figures"), columns, rows, note)


def execution_marks(runs: Sequence[MeasuredRun], words: Language) -> list[str]:
    """Return a warning for each kind of run that is not of a board of this lab."""
    found: dict[str, None] = {}
    for one in runs:
        facts = one.run.facts
        if facts.execution is Execution.EMULATED:
            name = facts.emulator or "emulator"
            found[words("EMULATED ({name}): does not show the speed of a board.", name=name)] = None
        elif facts.execution is Execution.NATIVE_HOST:
            text = "NATIVE HOST: measured on the controller itself, not on a board."
            found[words(text)] = None
        if one.origin is not None:
            text = "IMPORTED from {file}: not measured by this lab."
            found[words(text, file=one.origin.file)] = None
    return list(found)
