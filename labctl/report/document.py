"""A run as JSON, for ``--json`` of ``run``, ``resume`` and ``report``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from labctl.records import RunRecord, TrialRecord
from labctl.report.references import ReferenceRow
from labctl.results.summary import summarise, wanted_precision


def run_document(
    run: RunRecord,
    trials: Sequence[TrialRecord],
    directory: Path,
    references: Sequence[ReferenceRow] = (),
) -> dict[str, object]:
    """Return a run as JSON: its place, its record, the rows of its table, its trials, and published
    figures where they are asked for.

    Keys are those of the records.
    """
    return {
        "directory": str(directory.resolve()),
        "run": run.model_dump(mode="json"),
        "rows": [
            {**asdict(row), "model": row.model.model_dump(mode="json")}
            for row in summarise(trials, run.variants, wanted_precision(run))
        ],
        **({"references": [row.document() for row in references]} if references else {}),
        "trials": [trial.model_dump(mode="json") for trial in trials],
    }
