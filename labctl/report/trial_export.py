"""Trials of many runs for other programs: CSV for spreadsheets, JSON Lines for scripts."""

import json
from collections.abc import Iterable, Mapping, Sequence

from labctl.index.index import IndexedTrial
from labctl.index.rows import RunRow, TrialRow, columns, in_columns
from labctl.report.rows import rows_csv, rows_jsonl

#: Facts of the run that are also in a trial's row.
OF_RUN = (
    "recipe",
    "engine",
    "task",
    "product",
    "version",
    "build_key",
    "build_commit",
    "compiler",
    "labctl_version",
    "lab_revision",
    "verdict",
    "note",
    "imported_from",
)
#: Mappings become a column for each key: ``parameters.threads``.
NESTED = ("parameters", "conditions", "comparability")


def trials_jsonl(trials: Sequence[IndexedTrial]) -> str:
    """Return a line of JSON for each trial: times in ns, sizes in bytes, null if unknown."""
    return rows_jsonl(map(trial_document, trials))


def trials_csv(trials: Sequence[IndexedTrial]) -> str:
    """Return a heading and a line for each trial; unknown values are empty cells."""
    rows = [flat_document(one) for one in trials]
    names = dict.fromkeys((*trial_columns(), *(name for row in rows for name in row)))
    return rows_csv(rows, names)


def trial_columns() -> dict[str, type]:
    """Return name -> kind of the columns that each trial has: its own, those of its run, tags."""
    own = {name: kind for name, (kind, _) in columns(TrialRow).items() if name not in NESTED}
    of_run = {name: columns(RunRow)[name][0] for name in OF_RUN}
    return {**own, **of_run, "tags": str}


def trial_document(one: IndexedTrial) -> dict[str, object]:
    """Return a trial with facts of its run; parameters, conditions, comparability are mappings."""
    of_run = {name: getattr(one.run, name) for name in OF_RUN}
    trial = in_columns(one.trial)
    nested = {name: dict(trial.pop(name)) for name in NESTED}
    return {**trial, **of_run, "tags": list(one.tags), **nested}


def flat_document(one: IndexedTrial) -> dict[str, object]:
    """Return a trial without mappings: each key of a mapping is its own key; values are plain."""
    row: dict[str, object] = {}
    for name, value in trial_document(one).items():
        if name in NESTED and isinstance(value, Mapping):
            row.update({f"{name}.{key}": _scalar(inner) for key, inner in value.items()})
        else:
            row[name] = _scalar(value)
    return row


#: Largest integer of databases, Parquet and pandas.
_MOST = (1 << 63) - 1


def kinds_of(mappings: Iterable[Mapping[str, object]]) -> dict[str, type]:
    """Return key -> kind of its values; ``str`` if there are several kinds."""
    found: dict[str, set[type]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            known = found.setdefault(key, set())
            if value is not None:
                is_large = isinstance(value, int) and abs(value) > _MOST
                known.add(str if is_large else type(value))
    return {key: _kind(known) for key, known in found.items()}


def _kind(known: set[type]) -> type:
    if known in ({bool}, {int}, {float}):
        return next(iter(known))
    return float if known == {int, float} else str


def _scalar(value: object) -> object:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return " ".join(value)
    return json.dumps(value) if isinstance(value, list | dict) else value
