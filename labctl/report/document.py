"""A run as JSON, for ``--json`` of ``run``, ``resume`` and ``report``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from labctl.records import RunRecord, TrialRecord
from labctl.results.summary import summarise, wanted_precision


def run_document(
    run: RunRecord, trials: Sequence[TrialRecord], directory: Path
) -> dict[str, object]:
    """Return a run as JSON: its place, its record, the rows of its table, its trials.

    Keys are those of the records.
    """
    return {
        "directory": str(directory.resolve()),
        "run": run.model_dump(mode="json"),
        "rows": [
            {**asdict(row), "model": row.model.model_dump(mode="json")}
            for row in summarise(trials, run.variants, wanted_precision(run))
        ],
        "trials": [trial.model_dump(mode="json") for trial in trials],
    }
