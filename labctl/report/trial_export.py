"""Trials of many runs for other programs: CSV for spreadsheets, JSON Lines for scripts."""

import json
from collections.abc import Mapping, Sequence

from labctl.index.index import IndexedTrial
from labctl.index.rows import TrialRow, columns, in_columns
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
    names = dict.fromkeys((*_plain_columns(), *(name for row in rows for name in row)))
    return rows_csv(rows, names)


def _plain_columns() -> list[str]:
    own = [name for name in columns(TrialRow) if name not in NESTED]
    return [*own, *OF_RUN, "tags"]


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


def _scalar(value: object) -> object:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return " ".join(value)
    return json.dumps(value) if isinstance(value, list | dict) else value
