"""The table of a report that compares runs, as ``labctl compare`` judges them."""

from collections.abc import Sequence

from labctl.compare.comparison import Comparison, Row, Verdict
from labctl.compare.session_noise import board_history
from labctl.compare.sides import match_sides
from labctl.compare.verdicts import compare
from labctl.compare.words import interval_text
from labctl.errors import HostError
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.table import ABSENT, Cell, Column, Table, quantity
from labctl.runs.record.repository import RunRepository
from labctl.units import digits

#: More runs are a series over time, which `labctl regressions` judges.
_MOST_RUNS = 6
_FIGURES = ("tpot_ms",)
_VERDICTS = {
    Verdict.UNLIKE: "unlike",
    Verdict.SAME: "same",
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.SUSPECTED: "suspected",
    Verdict.CANT_TELL: "can't tell",
}


def comparison_table(runs: Sequence[MeasuredRun], words: Language) -> Table | None:
    """Compare variants of the first run with the other runs' variants; None without pairs.

    Runs of different sessions can differ more than repeats of one run. The verdict includes the
    board's history, if known.
    """
    if not 2 <= len(runs) <= _MOST_RUNS:
        return None
    first, *others = (one.sides(one.short) for one in runs)
    pairs = [pair for other in others for pair in match_sides(first, other)]
    pairs = [(a, b) for a, b in pairs if a.repeats and b.repeats and not a.copies(b)]
    if not pairs:
        return None
    history = board_history(RunRepository(runs[0].path.parent))
    try:
        found = compare(pairs, figures=_FIGURES, history=history)
    except HostError:  # no index here: at best "suspected" without history
        found = compare(pairs, figures=_FIGURES)
    return _table(found, words)


def _table(found: Comparison, words: Language) -> Table:
    columns = (
        Column(words("Compared")),
        Column(words("Reference")),
        Column(words("Verdict")),
        Column(words("Ratio"), numeric=True, tip=words("Time per token over the reference's.")),
        Column(words("Time per token"), numeric=True),
        Column(words("Reference"), numeric=True),
        Column(words("Reason"), wide=True),
    )
    note = words("As `labctl compare` judges: unlike, same, slower, faster, or can't tell.")
    rows = [_row(row, words) for row in found.rows]
    return Table(words("Runs compared"), columns, rows, note)


def _row(row: Row, words: Language) -> list[Cell]:
    slower = row.verdict is Verdict.SLOWER
    ratio = ABSENT
    if row.ratio is not None:
        known = row.interval is not None and not row.interval.is_vague
        tip = interval_text(row.interval) if known else ""
        ratio = Cell(f"{'' if known else '~'}{digits(row.ratio)}", row.ratio, tip=tip)
    return [
        Cell(row.right, recorded=True),
        Cell(row.left, recorded=True),
        Cell(words(_VERDICTS[row.verdict]), tone="bad" if slower else ""),
        ratio,
        quantity(row.right_value, "ns"),
        quantity(row.left_value, "ns"),
        Cell("; ".join((row.reason, *row.warnings)), recorded=True),
    ]
