"""Past sessions that measured the same thing, to show how much sessions differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from labctl.compare.estimates import History, Sessions
from labctl.compare.likeness import row_values
from labctl.compare.sides import Side, is_good
from labctl.index.filters import Filter
from labctl.index.rows import TrialRow
from labctl.results.comparability import REVISION
from labctl.runs.record.repository import RunRepository

#: Number of a board's last runs that are searched: older ones say little about its present state.
_RUNS = 30


@dataclass(frozen=True)
class _Past:
    """A good past trial, with all values that must agree."""

    row: TrialRow
    compiler: str | None
    values: Mapping[str, object]


def board_history(repository: RunRepository) -> History:
    """Return a function that finds the repository's sessions that are comparable with a side.

    They ran on the same board and have the same comparability; the source's revision may differ. So
    a step in their speed counts as noise: rather too few differences are reported than too many.
    Trials with failed checks are comparable only with a side that has some too.
    """
    boards: dict[tuple[str, frozenset[str]], list[_Past]] = {}

    def sessions(side: Side, without: Collection[str]) -> Sessions:
        named = {row.board for row in side.repeats}
        board = next(iter(named), None)
        if len(named) != 1 or board is None:
            return []
        key = (board, frozenset(without))
        if key not in boards:
            boards[key] = _past(repository, *key)
        compilers = {session.facts.get("compiler") for session in side.sessions}
        like: list[Mapping[str, object]] = []
        for row in side.repeats:
            if (values := _kept(row)) not in like:
                like.append(values)
        models = {row.model_sha256 for row in side.repeats}
        contradicted = any(row.checks_failed for row in side.repeats)
        found: dict[tuple[str, str], list[TrialRow]] = {}
        unlike = set()
        for past in boards[key]:
            if past.row.model_sha256 not in models:
                continue
            if past.row.checks_failed and not contradicted:
                continue
            session = (past.row.run, past.row.variant)
            known = "build_spec" in past.values or past.compiler in compilers
            if known and past.values in like:
                found.setdefault(session, []).append(past.row)
            else:
                unlike.add(session)
        return [rows for session, rows in found.items() if session not in unlike]

    return sessions


def _past(repository: RunRepository, board: str, without: frozenset[str]) -> list[_Past]:
    """Return the good trials of the last runs on a board."""
    last = repository.query(Filter(board=board, kind="timing"), limit=_RUNS + len(without))
    ids = tuple(one.run.id for one in last if one.run.id not in without)[:_RUNS]
    trials = repository.trials(Filter(ids=ids, board=board)) if ids else []
    return [
        _Past(one.trial, one.run.compiler, _kept(one.trial))
        for one in trials
        if is_good(one.trial) and one.run.is_history
    ]


def _kept(row: TrialRow) -> dict[str, object]:
    return {key: value for key, value in row_values(row).items() if key not in REVISION}
