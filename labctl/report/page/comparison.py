"""The table of a report that compares runs, as ``labctl compare`` judges them."""

from collections.abc import Sequence

from labctl.compare.session_noise import board_history
from labctl.compare.sides import match_sides
from labctl.compare.verdicts import compare
from labctl.errors import HostError
from labctl.report.comparison import rows_table
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.table import Table
from labctl.runs.record.repository import RunRepository

#: More runs are a series over time, which `labctl regressions` judges.
_MOST_RUNS = 6
_FIGURES = ("tpot_ms",)


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
    return rows_table(found, words)
