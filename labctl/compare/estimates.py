"""Estimate differences of two sides in a figure; the method depends on their measurement."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from labctl.compare.comparison import Basis
from labctl.compare.sides import Pair, Side
from labctl.figures.trials import TrialFigure
from labctl.index.rows import TrialRow
from labctl.stats.hypothesis_tests import LEAST, mann_whitney, sign_flip
from labctl.stats.log_ratio import (
    LEAST_SESSIONS,
    LogRatio,
    Repeat,
    are_interleaved,
    between_sessions,
    known_sessions,
    paired,
    unpaired,
    within_run,
)

#: Sessions that measured the same thing, each with its good repeats.
Sessions = Sequence[Sequence[TrialRow]]
#: Returns other sessions that measured the same thing as a side; leaves out the named runs.
History = Callable[[Side, Collection[str]], Sessions]


@dataclass(frozen=True)
class Estimate:
    """Difference of two sides. ``found`` is None if too few repeats have the figure.

    ``sessions`` is the number of sessions that show the session-to-session variation of this board;
    None: it does not matter. ``check`` is the p-value of the distribution-free test; None with too
    few repeats.
    """

    found: LogRatio | None
    basis: Basis
    sessions: int | None = None
    check: float | None = None


def other_sessions(pair: Pair, history: History | None) -> Sequence[Sessions]:
    """Return groups of sessions that show how sessions differ; empty for variants of one run.

    Each run is in them only once.
    """
    left, right = pair
    if history is None or left.runs == right.runs:
        return []
    found = [(side.variant, history(side, left.runs | right.runs)) for side in pair]
    groups: list[list[Sequence[TrialRow]]] = []
    # A change of a run affects all its variants: it counts once.
    taken: set[str] = set()
    for _, sessions in sorted(found, key=lambda one: (-len(one[1]), one[0])):
        groups.append([])
        for rows in sessions:
            if rows and rows[0].run not in taken:
                taken.add(rows[0].run)
                groups[-1].append(rows)
    return groups


def estimate(pair: Pair, figure: TrialFigure, others: Sequence[Sessions]) -> Estimate:
    """Estimate the difference of the right side's figure from the left one's."""
    left, right = pair
    stopped = any(session.stopped for side in pair for session in side.sessions)
    if left.runs == right.runs and len(left.runs) == 1:
        mine, theirs = _repeats(right, figure), _repeats(left, figure)
        found = within_run(mine, theirs, stopped=stopped)
        if found and found.is_paired:
            basis = Basis.PAIRED
        else:
            basis = Basis.FEW_ROUNDS if are_interleaved([*mine, *theirs]) else Basis.UNPAIRED
        return Estimate(found, basis, check=_check(found, mine, theirs))
    mine, theirs = _repeats(right, figure), _repeats(left, figure)
    check = _mann_whitney(mine, theirs)
    groups = [[_values(rows, figure) for rows in group] for group in others]
    groups = [[one for one in group if one] for group in groups]
    sides = [_side_sessions(right, figure), _side_sessions(left, figure)]
    known = max([known_sessions([*sides, *groups]), *map(len, groups)])
    if known >= LEAST_SESSIONS:
        found = between_sessions(sides[0], sides[1], groups)
        return Estimate(found, Basis.SESSIONS, known, check)
    if min(len(mine), len(theirs)) < 2:
        return Estimate(None, Basis.UNKNOWN_SESSIONS, known, check)
    plain = unpaired(*([r.value for r in side] for side in (mine, theirs)), stopped=stopped)
    return Estimate(plain, Basis.UNKNOWN_SESSIONS, known, check)


def estimate_pairs(values: Sequence[float], references: Sequence[float]) -> Estimate:
    """Estimate the difference of values from references measured alternately with them.

    ``found`` is None for fewer than two pairs. Raises as :func:`labctl.stats.log_ratio.paired`
    does.
    """
    if len(values) < 2:
        return Estimate(None, Basis.PAIRED)
    found = paired(values, references)
    logs = [math.log(a / b) for a, b in zip(values, references, strict=True)]
    return Estimate(found, Basis.PAIRED, check=sign_flip(logs) if len(logs) >= LEAST else None)


def _repeats(side: Side, figure: TrialFigure) -> list[Repeat]:
    return [
        Repeat(row.repeat, row.number, value)
        for row in side.repeats
        if (value := row.figures[figure.column])
    ]


def _side_sessions(side: Side, figure: TrialFigure) -> list[list[float]]:
    found = [_values(session.repeats, figure) for session in side.sessions]
    return [values for values in found if values]


def _values(rows: Sequence[TrialRow], figure: TrialFigure) -> list[float]:
    return [value for row in rows if (value := row.figures[figure.column])]


def _check(
    found: LogRatio | None, mine: Sequence[Repeat], theirs: Sequence[Repeat]
) -> float | None:
    if found is None or not found.is_paired:
        return _mann_whitney(mine, theirs)
    if found.count < LEAST:
        return None
    base = {one.round: one.value for one in theirs}
    return sign_flip([math.log(r.value / base[r.round]) for r in mine if r.round in base])


def _mann_whitney(mine: Sequence[Repeat], theirs: Sequence[Repeat]) -> float | None:
    if min(len(mine), len(theirs)) < LEAST:
        return None
    return mann_whitney([one.value for one in mine], [one.value for one in theirs])
