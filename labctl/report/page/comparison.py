"""Runs compared in a report, as ``labctl compare`` judges them: sentences and a table."""

import math
from collections.abc import Iterator, Sequence

from labctl.compare.comparison import Comparison, Row, Verdict
from labctl.compare.session_noise import board_history
from labctl.compare.sides import match_sides
from labctl.compare.verdicts import compare
from labctl.compare.words import ratio_text
from labctl.errors import HostError
from labctl.report.page.fastest import pair_sentences
from labctl.report.page.language import MOST_NAMES, Language
from labctl.report.page.measured import MeasuredRun
from labctl.runs.record.repository import RunRepository

#: More runs are a series over time, which `labctl regressions` judges.
MOST_RUNS = 6
_FIGURES = ("tpot_ms",)
_GROUPS = {
    Verdict.SLOWER: (
        "Slower than in run {run} {where}: {count} of {total} ({names}; × the time per token)."
    ),
    Verdict.FASTER: (
        "Faster than in run {run} {where}: {count} of {total} ({names}; × the time per token)."
    ),
    Verdict.SUSPECTED: (
        "Perhaps not as fast as in run {run} {where}: {count} of {total} ({names}; × the time per"
        " token)."
    ),
    Verdict.SAME: (
        "As fast as in run {run} {where}: {count} of {total} ({names}; × the time per token)."
    ),
    Verdict.CANT_TELL: (
        "Unclear whether as fast as in run {run} {where}: {count} of {total} ({names}; × the time"
        " per token)."
    ),
    Verdict.UNLIKE: "Not compared with run {run} {where}: {count} of {total} ({names}).",
}
#: Verdicts whose reason the reader needs.
_OPEN = (Verdict.SUSPECTED, Verdict.CANT_TELL, Verdict.UNLIKE)


def reference_run(runs: Sequence[MeasuredRun]) -> MeasuredRun:
    """Return the run that the others are compared with: the first one of a board, if any is."""
    return next((one for one in runs if one.is_of_a_board), runs[0])


def compared_runs(runs: Sequence[MeasuredRun]) -> Comparison | None:
    """Compare the variants of the other runs with the reference run's; None without pairs.

    Runs of different sessions can differ more than repeats of one run. The verdict includes the
    board's history, if known.
    """
    if not 2 <= len(runs) <= MOST_RUNS:
        return None
    reference = reference_run(runs)
    first = reference.sides(reference.short)
    others = [one.sides(one.short) for one in runs if one is not reference]
    pairs = [pair for other in others for pair in match_sides(first, other)]
    pairs = [(a, b) for a, b in pairs if a.repeats and b.repeats and not a.copies(b)]
    if not pairs:
        return None
    history = board_history(RunRepository(runs[0].path.parent))
    try:
        return compare(pairs, figures=_FIGURES, history=history)
    except HostError:  # no index here: at best "suspected" without history
        return compare(pairs, figures=_FIGURES)


def is_refused(found: Comparison) -> bool:
    """Return True if no two sides could be compared."""
    return all(row.verdict is Verdict.UNLIKE for row in found.rows)


def comparison_sentences(found: Comparison, where: str, words: Language) -> Iterator[str]:
    """Yield the verdicts: a sentence for each of a few rows, or one for all rows of a verdict."""
    rows = [row for row in found.rows if row.left_value and row.right_value]
    if not rows:
        yield words("None of the compared variants has a token time in both runs.")
    elif len(rows) <= MOST_NAMES and not is_refused(found):
        for row in rows:
            practical = found.thresholds.practical
            yield words.joined(pair_sentences(row, where, practical, words))
    else:
        for verdict, text in _GROUPS.items():
            if group := [row for row in rows if row.verdict is verdict]:
                group.sort(key=lambda row: -abs(math.log(row.ratio or 1)))
                yield words(
                    text,
                    count=len(group),
                    total=len(rows),
                    where=where,
                    run=group[0].left.partition(":")[0],
                    names=words.some(_name(row) for row in group),
                )
                if verdict in _OPEN:
                    yield f"{group[0].right}: {group[0].reason}."


def _name(row: Row) -> str:
    return row.right if row.ratio is None else f"{row.right} ×{ratio_text(row.ratio)}"
