"""Sessions of the past that measured the same thing: they tell how much sessions differ."""

from collections.abc import Collection, Mapping

from labctl.compare.estimates import History, Sessions
from labctl.compare.likeness import row_values
from labctl.compare.sides import Side, is_good
from labctl.index import Filter, TrialRow
from labctl.results.comparability import REVISION
from labctl.runs.record.repository import RunRepository

#: So many of a board's last runs are looked through: older ones say little of how it is today.
_RUNS = 30


def board_history(repository: RunRepository) -> History:
    """Return what gives the sessions of the repository that are like a side.

    They are of the same board, and agree in all that must agree; the source's revision may differ.
    A step in their speed counts as noise then, so that less is told rather than too much.
    """

    def sessions(side: Side, without: Collection[str]) -> Sessions:
        wanted = {
            (row.board, row.model_sha256): None for row in side.repeats
        }  # in the order of the repeats
        if len(wanted) != 1:
            return []
        ((board, model),) = wanted
        chosen = Filter(board=board, model=model)
        runs = [one.run.id for one in repository.query(chosen, limit=_RUNS + len(without))]
        ids = tuple(run for run in runs if run not in without)[:_RUNS]
        if not ids:
            return []
        compilers = {session.facts.get("compiler") for session in side.sessions}
        like = _distinct(side.repeats)
        found: dict[tuple[str, str], list[TrialRow]] = {}
        unlike = set()
        for one in repository.trials(Filter(ids=ids, board=board, model=model)):
            row, key = one.trial, (one.trial.run, one.trial.variant)
            if not is_good(row) or one.run.imported_from is not None:
                continue  # another lab's board of this name is another board
            values = _kept(row)
            known = "build_spec" in values or one.run.compiler in compilers
            if known and values in like:
                found.setdefault(key, []).append(row)
            else:
                unlike.add(key)
        return [rows for key, rows in found.items() if key not in unlike]

    return sessions


def _distinct(rows: Collection[TrialRow]) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    for row in rows:
        if (values := _kept(row)) not in found:
            found.append(values)
    return found


def _kept(row: TrialRow) -> dict[str, object]:
    return {key: value for key, value in row_values(row).items() if key not in REVISION}
