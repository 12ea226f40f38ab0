"""Rows of an evaluation, made from its records."""

from labctl.index.rows import Entry, ModelRow, RunRow, moment, verdict_of
from labctl.records import Annotations, EvaluationEnd, EvaluationRecord


def evaluation_entry(
    run_id: str,
    record: EvaluationRecord,
    end: EvaluationEnd | None,
    *,
    annotations: Annotations,
    stamp: str,
    recorded: int,
) -> Entry:
    """Return the rows of an evaluation. ``run_id`` is the name of its directory.

    ``recorded``: number of generations in its journal.
    """
    shares = [
        one.correct / one.graded
        for one in (end.accuracies if end else ())
        if one.grader == record.graders[0] and one.graded
    ]
    boards = {one.board for one in record.endpoints if one.board}
    executions = {one.execution for one in record.endpoints if one.execution}
    gates = [gate.passed for gate in end.gates] if end else []
    row = RunRow(
        id=run_id,
        stamp=stamp,
        state=end.state if end else "unfinished",
        recipe=record.recipe,
        started=moment(record.started),
        kind="evaluation",
        finished=moment(end.finished) if end else None,
        board=boards.pop() if len(boards) == 1 else None,
        execution=executions.pop() if len(executions) == 1 else None,
        verdict=verdict_of(end, failed=end is not None and (end.failed > 0 or not end.accuracies)),
        failure=end.failure.kind if end and end.failure else None,
        gates_passed=gates.count(True),
        gates_missed=gates.count(False),
        trials_planned=record.planned,
        trials_recorded=recorded,
        trials_ok=end.answered if end else recorded,
        trials_failed=end.failed if end else 0,
        accuracy_low=min(shares, default=None),
        accuracy_high=max(shares, default=None),
        labctl_version=record.labctl_version or None,
        lab_revision=record.lab_revision,
        host=record.host or None,
        note=annotations.note,
    )
    models = tuple(
        ModelRow(
            run_id, model.key, model.file, model.sha256 or None, model.name, model.quantization
        )
        for model in record.models
    )
    return Entry(row, models, tuple(dict.fromkeys(annotations.tags)))
