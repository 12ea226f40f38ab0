"""Tables of a run's results: the measurements of each variant."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from labctl.figures.figure import Place, small
from labctl.figures.trials import FIGURES, TOKEN, TrialFigure
from labctl.performance.bottleneck import nearest_bounds
from labctl.records.run import RunRecord
from labctl.records.trial import TrialBound, TrialRecord
from labctl.report.names import short_names
from labctl.report.page.language import Language
from labctl.report.references import ReferenceRow
from labctl.report.status import Status
from labctl.report.table import ABSENT, Cell, Column, Table, heading, named, quantity
from labctl.results.summary import (
    LEVEL,
    MeasureSummary,
    TestSummary,
    VariantSummary,
    good_trials,
    summarise,
    wanted_precision,
)
from labctl.units import confidence, digits, duration, plus_minus

SHORT_BOUNDS = {"storage": "storage", "dram": "DRAM", "compute": "arithmetic"}


@dataclass(frozen=True)
class Results:
    """Trials of a run; ``short`` identifies the run, ``marks`` stay with its figures.

    ``status``: None if it is not known; the table then has no row for a variant without trials.
    """

    run: RunRecord
    trials: Sequence[TrialRecord]
    short: str = ""
    marks: str = ""
    status: Status | None = None

    @cached_property
    def rows(self) -> list[VariantSummary]:
        """A summary for each variant that has trials."""
        return summarise(self.trials, self.run.variants, wanted_precision(self.run))

    @cached_property
    def good(self) -> dict[str, list[TrialRecord]]:
        """The good trials of each variant."""
        groups: dict[str, list[TrialRecord]] = {row.variant: [] for row in self.rows}
        for trial in good_trials(self.trials):
            groups[trial.variant].append(trial)
        return groups

    @property
    def level(self) -> str:
        """Confidence of the intervals, for people."""
        precision = wanted_precision(self.run)
        return f"{confidence(precision.level if precision else LEVEL)}%"


def result_tables(
    runs: Sequence[Results], quoted: Sequence[ReferenceRow], words: Language
) -> list[Table]:
    """Return the table of all variants, and the tables of other measurements."""
    tables = [_experiment(runs, words)]
    tables += _parts(runs, "Tests of the benchmark", _TESTS, lambda row: row.tests, words)
    tables += _parts(runs, "Measures", _MEASURES, lambda row: row.measures, words)
    for place in (Place.PHASES, Place.INSIDE, Place.ENERGY):
        tables += _details(runs, place, words)
    if quoted:
        tables.append(_quoted(quoted, words))
    return tables


def _experiment(runs: Sequence[Results], words: Language) -> Table:
    level = runs[0].level
    columns = [
        _variant(words, words("A model with its parameters, as the recipe names it.")),
        *_run_columns(runs, words),
        Column(
            words("Quantization"),
            tip=words("Type of the weights; bits are over all weights."),
            later=True,
            roomy=True,
        ),
        Column(words("Model size"), numeric=True, later=True, roomy=True),
        Column(
            words("Good trials"),
            numeric=True,
            tip=words("Of those planned; no warm-ups."),
            later=True,
            short="good",
        ),
    ]
    for figure in _placed(Place.RESULTS):
        column = heading(figure, words)
        if figure is TOKEN:
            columns.append(replace(column, short=f"{small(column.heading)} ± {level}"))
            columns += _token_columns(level, words)
        else:
            columns.append(replace(column, later=True))
    columns += [
        Column(
            words("Ratio ({level} interval)", level=level),
            numeric=True,
            short="ratio",
            tip=words(
                "Time per token over that of the run's first variant, paired by round; ~: no"
                " interval is known."
            ),
        ),
        Column(
            words("Bound by"),
            tip=words("The nearest bound, and its share of the measured time."),
            roomy=True,
        ),
        Column(words("Checks")),
    ]
    rows = []
    for one in runs:
        rows += [_row(one, row, words, apart=runs) for row in one.rows]
        rows += _not_begun(one, words, runs, len(columns))
    return Table(words("Experiment"), columns, rows)


def _not_begun(
    one: Results, words: Language, runs: Sequence[Results], width: int
) -> Iterator[list[Cell]]:
    """Yield a row for each planned variant without a trial; its last cell has the reason."""
    if one.status is None:
        return
    begun = {row.variant for row in one.rows}
    for variant in dict.fromkeys((*one.run.variants, *one.status.planned)):
        planned = one.status.planned[variant]
        if variant not in begun and planned:
            reason = one.status.why_missing(words)
            known = [named(variant, _short(runs), mark=one.marks), *_run_cells(one, runs, words)]
            known += [ABSENT, ABSENT, Cell(f"0/{planned}", 0)]
            last = Cell(reason, tone="bad" if one.status.is_bad else "", short="not begun")
            yield [*known, *([ABSENT] * (width - len(known) - 1)), last]


def _short(runs: Sequence[Results]) -> dict[str, str]:
    return short_names(name for one in runs for name in (*one.run.variants, *one.good))


def _placed(place: Place) -> list[TrialFigure]:
    return [figure for figure in FIGURES if figure.place is place]


def _variant(words: Language, tip: str = "") -> Column:
    return Column(words("Variant"), tip=tip)


def _token_columns(level: str, words: Language) -> Iterator[Column]:
    yield Column(
        words("{level} interval", level=level),
        numeric=True,
        tip=words("Of the time per token, from the trials alone (Student's t of logarithms)."),
        roomy=True,
    )
    yield Column(
        words("Median time"),
        numeric=True,
        tip=words("Of the same trials. The interval is not its interval."),
        later=True,
        roomy=True,
    )


def _run_columns(runs: Sequence[Results], words: Language) -> list[Column]:
    """Return the columns that distinguish runs; empty for a single run."""
    if len(runs) == 1:
        return []
    boards = {one.run.board for one in runs}
    return [Column(words("Run")), *([Column(words("Board"))] if len(boards) > 1 else [])]


def _run_cells(one: Results, runs: Sequence[Results], words: Language) -> list[Cell]:
    when = one.run.started.timestamp()
    run = Cell(one.short, when, tip=one.run.id, recorded=True)
    return [run, Cell(one.run.board, recorded=True)][: len(_run_columns(runs, words))]


def _row(
    one: Results, row: VariantSummary, words: Language, *, apart: Sequence[Results]
) -> list[Cell]:
    known = row.trials_ok + row.trials_failed + row.trials_skipped
    planned = max(known, one.status.planned[row.variant] if one.status else 0)
    cells = [
        named(row.variant, _short(apart), tip=row.model.file, mark=one.marks),
        *_run_cells(one, apart, words),
        _weights(row, words),
        quantity(row.model.size_bytes, "bytes"),
        Cell(f"{row.trials_ok}/{planned}", row.trials_ok),
    ]
    for figure in _placed(Place.RESULTS):
        cells.append(quantity(row.figures[figure.name], figure.unit))
        if figure is TOKEN:
            cells[-1:] = _token_cells(row)
    ratio = _ratio(row, is_first=row is one.rows[0])
    bound = _bound(middle_bound(one.good[row.variant]), words)
    return [*cells, ratio, bound, _checks(row, words)]


def _weights(row: VariantSummary, words: Language) -> Cell:
    name, bits = row.model.quantization or "–", row.model.bits_per_weight
    if row.model.requantized_from:
        name = words("{new} (from {old})", new=name, old=row.model.requantized_from)
    text = words("{name}, {bits} bits", name=name, bits=digits(bits)) if bits else name
    return Cell(text, tip=row.model.sha256 and f"SHA-256 {row.model.sha256}")


def _token_cells(row: VariantSummary) -> tuple[Cell, Cell, Cell]:
    """Return the time of a token, its interval, and the median of the same trials."""
    time, known = quantity(row.token_ns, TOKEN.unit), row.token_interval
    between, short = ABSENT, f"~{time.text}" if row.token_ns else ""
    if known and row.token_ns and not known.is_vague:
        between = Cell(f"{duration(known.low)} – {duration(known.high)}", known.relative)
        short = f"{time.text} {plus_minus(row.token_ns, known.low, known.high)}"
    return Cell(time.text, time.value, short=short), between, quantity(row.token_median_ns, "ns")


def middle_bound(trials: Sequence[TrialRecord]) -> TrialBound | None:
    """Return the bound of the middle trial; None if no trial has a bound."""
    bounds = sorted((t.bound for t in trials if t.bound), key=lambda bound: bound.share)
    return bounds[len(bounds) // 2] if bounds else None


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
    text = f"{digits(row.ratio)} ({digits(found.low)}–{digits(found.high)})"
    return Cell(text, row.ratio, short=digits(row.ratio))


def _checks(row: VariantSummary, words: Language) -> Cell:
    if not row.trials_ok:
        return Cell(words("no result"), tone="bad")
    if row.checks_failed:
        text = words("FAILED: {names}", names=", ".join(row.checks_failed))
        return Cell(text, tone="bad", short="FAILED")
    held = words("ok") if row.checked else words("none")
    if not row.checks_open:
        return Cell(held)
    names = ", ".join(row.checks_open)
    text = words("{held}; not judged: {names}", held=held, names=names)
    return Cell(text, short="partly" if row.checked else "none")


def _details(runs: Sequence[Results], place: Place, words: Language) -> Iterator[Table]:
    """Yield the table of the figures of a place, if any figure is known."""
    figures, short = _placed(place), _short(runs)
    rows = [
        [
            named(row.variant, short, mark=one.marks),
            *_run_cells(one, runs, words),
            *(quantity(row.figures[figure.name], figure.unit) for figure in figures),
        ]
        for one in runs
        for row in one.rows
        if any(row.figures[figure.name] is not None for figure in figures)
    ]
    if rows:
        columns = [_variant(words), *_run_columns(runs, words)]
        columns += [heading(figure, words) for figure in figures]
        yield Table(words(place), columns, rows, roomy=True)


def _spread(measure: MeasureSummary, value: float) -> float | None:
    return value if measure.values > 1 else None


#: Columns of named parts (tests, measures): heading, its explanation, value of a part, unit.
_Part = TestSummary | MeasureSummary
_Columns = Sequence[tuple[str, str, Callable[[Any], float | None], str]]
_TESTS: _Columns = (
    ("Repetitions", "", lambda test: test.repetitions, "count"),
    ("Time", "", lambda test: test.p50_ns, "ns"),
    ("p10", "", lambda test: test.p10_ns, "ns"),
    ("p90", "", lambda test: test.p90_ns, "ns"),
    ("Tokens/s", "", lambda test: test.tokens_per_second, "1/s"),
)
_MEASURES: _Columns = (
    ("Values", "", lambda measure: measure.values, "count"),
    ("Median", "", lambda measure: measure.p50, ""),
    ("p10", "", lambda measure: _spread(measure, measure.p10), ""),
    ("p90", "", lambda measure: _spread(measure, measure.p90), ""),
    ("Standard error", "As the program reports it.", lambda measure: measure.error, ""),
)


def _parts(
    runs: Sequence[Results],
    caption: str,
    columns: _Columns,
    parts: Callable[[VariantSummary], Sequence[_Part]],
    words: Language,
) -> Iterator[Table]:
    """Yield the table of the variants' named parts (tests or measures), if there are any."""
    short = _short(runs)
    rows = [
        [
            named(row.variant, short, mark=one.marks),
            *_run_cells(one, runs, words),
            Cell(part.name, recorded=True),
            *(quantity(get(part), unit or getattr(part, "unit", "")) for *_, get, unit in columns),
        ]
        for one in runs
        for row in one.rows
        for part in parts(row)
    ]
    if rows:
        first = [_variant(words), *_run_columns(runs, words), Column(words("Name"))]
        shown = [
            Column(words(title), numeric=True, tip=words(tip) if tip else "")
            for title, tip, *_ in columns
        ]
        yield Table(words(caption), [*first, *shown], rows)


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
