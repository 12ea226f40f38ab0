"""Rows of a load test, made from its records."""

from labctl.index.rows import Entry, ModelRow, RunRow, moment, verdict_of
from labctl.records import Annotations, RunEnd, ServingRecord


def load_test_entry(
    run_id: str,
    record: ServingRecord,
    end: RunEnd | None,
    *,
    annotations: Annotations,
    stamp: str,
) -> Entry:
    """Return the rows of a load test. ``run_id`` is the name of its directory."""
    gates = [gate.passed for gate in end.gates] if end else []
    row = RunRow(
        id=run_id,
        stamp=stamp,
        state=end.state if end else "unfinished",
        recipe=record.recipe,
        started=moment(record.started),
        kind="load-test",
        finished=moment(end.finished) if end else None,
        board=record.endpoint.board,
        execution=record.endpoint.execution,
        verdict=verdict_of(end),
        failure=end.failure.kind if end and end.failure else None,
        gates_passed=gates.count(True),
        gates_missed=gates.count(False),
        labctl_version=record.labctl_version or None,
        lab_revision=record.lab_revision,
        host=record.host or None,
        note=annotations.note,
    )
    model = record.model
    models = (
        ()
        if model is None
        else (
            ModelRow(
                run_id, model.key, model.file, model.sha256 or None, model.name, model.quantization
            ),
        )
    )
    return Entry(row, models, tuple(dict.fromkeys(annotations.tags)))
