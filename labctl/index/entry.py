"""Index rows of a run, an evaluation or a load test, made from its records."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from labctl.errors import Blame
from labctl.figures.accuracy import ACCURACY
from labctl.figures.trials import FIGURES
from labctl.index.rows import Entry, ModelRow, RunRow, TrialRow, moment, verdict_of
from labctl.records.board import Execution
from labctl.records.evaluation import EvaluationEnd, EvaluationRecord
from labctl.records.run import Annotations, Origin, PlanRecord, RunEnd, RunRecord
from labctl.records.serving import ServingRecord
from labctl.records.trial import ModelIdentity, TrialRecord, TrialState
from labctl.results.summary import good_trials

#: The first part of a run id: ``<UTC time>-<recipe>-<short id>``.
_TIME = "%Y%m%dT%H%M%SZ"


def entry_of(
    run_id: str,
    run: RunRecord,
    trials: Sequence[TrialRecord],
    end: RunEnd | None,
    *,
    annotations: Annotations,
    stamp: str,
    plan: PlanRecord | None = None,
    origin: Origin | None = None,
) -> Entry:
    """Return the rows of a run. ``run_id``: name of its directory, by which it is found.

    ``plan``: None if unknown. ``origin``: origin of an imported run.
    """
    states = [trial.state for trial in trials if trial.repeat > 0]
    engine = _mapping(run.recipe_resolved.get("engine"))
    row = replace(
        _row(run_id, run, end, annotations=annotations, stamp=stamp),
        board=run.board or None,
        target=run.target or None,
        execution=run.facts.execution,
        verdict=timing_verdict(run, end, trials),
        trials_planned=(plan.due({t.number for t in trials}).total() if plan else 0)
        or run.trials_planned,
        trials_recorded=len(trials),
        trials_ok=states.count(TrialState.OK),
        trials_failed=states.count(TrialState.FAILED),
        trials_skipped=states.count(TrialState.SKIPPED),
        figures=_estimates(trials),
        engine=_text(engine.get("name")),
        task=_text(engine.get("task")),
        untrusted=int(run.untrusted_recipe or run.untrusted_board),
    )
    if build := run.program:
        row = replace(
            row,
            product=build.product,
            version=build.version,
            build_key=build.key,
            build_commit=build.commit,
            compiler=build.toolchain,
        )
    elif origin:
        row = replace(row, build_commit=_stated_commit(trials))
    if origin:
        row = replace(row, imported_from=origin.file, imported_sha256=origin.sha256)
    if run.night:
        row = replace(row, night=run.night.id, night_side=run.night.side)
    rows = tuple(trial_row(run_id, trial) for trial in trials)
    return Entry(row, _model_rows(run_id, run.models), _tags(annotations), rows)


def _row(
    run_id: str,
    record: RunRecord | EvaluationRecord | ServingRecord,
    end: RunEnd | None,
    *,
    annotations: Annotations,
    stamp: str,
) -> RunRow:
    """Return the columns that every kind of runs fills in the same way."""
    row = RunRow(
        id=run_id,
        stamp=stamp,
        state="unfinished",
        recipe=record.recipe,
        started=moment(record.started),
        recorded=record.recorded,
        labctl_version=record.labctl_version or None,
        lab_revision=record.lab_revision,
        host=record.host or None,
        note=annotations.note,
    )
    if end is None:
        return row
    gates = [gate.passed for gate in end.gates]
    return replace(
        row,
        state=end.state,
        finished=moment(end.finished),
        failure=end.failure.kind if end.failure else None,
        gates_passed=gates.count(True),
        gates_missed=gates.count(False),
    )


def _tags(annotations: Annotations) -> tuple[str, ...]:
    return tuple(dict.fromkeys(annotations.tags))


def damaged_entry(run_id: str, damage: str, annotations: Annotations, stamp: str) -> Entry:
    """Return the row of a run whose files cannot be read: the facts in its id, and the reason."""
    time, _, rest = run_id.partition("-")
    started = datetime.strptime(time, _TIME).replace(tzinfo=UTC)
    row = RunRow(
        id=run_id,
        stamp=stamp,
        state="damaged",
        recipe=rest.rpartition("-")[0],
        started=moment(started),
        note=annotations.note,
        damage=damage,
    )
    return Entry(row, tags=_tags(annotations))


def timing_verdict(run: RunRecord, end: RunEnd | None, trials: Sequence[TrialRecord]) -> str | None:
    """Return the verdict on a timing run, as in the exit status of ``labctl run``.

    Settings of a search may fail; its default may not.
    """
    if run.is_search:
        trials = [trial for trial in trials if trial.variant in run.variants[:1]]
    if end is None or end.state == "interrupted":
        return None
    if all(trial.execution is Execution.UNKNOWN for trial in trials) and trials:
        return None  # an imported file has the measurements, not the plan
    if end.state == "failed":
        blame = end.failure.blame if end.failure else Blame.INFRA
        return "failed" if blame is Blame.JOB else str(blame)
    failed = any(trial.state is TrialState.FAILED for trial in trials)
    missed = any(gate.passed is False for gate in end.gates)
    good = {trial.variant for trial in good_trials(trials)}
    without = any(trial.variant not in good for trial in trials)
    return "failed" if failed or missed or without else "passed"


def _estimates(trials: Iterable[TrialRecord]) -> dict[str, float | None]:
    """Return the smallest and the largest estimate of the variants, as in a report."""
    variants: dict[str, list[TrialRecord]] = {}
    for trial in good_trials(trials):
        variants.setdefault(trial.variant, []).append(trial)
    found: dict[str, float | None] = {}
    for figure in (one for one in FIGURES if one.listed):
        found |= figure.ends_of(figure.over_all(group) for group in variants.values())
    return found


def _stated_commit(trials: Iterable[TrialRecord]) -> str | None:
    """Return the commit stated by programs without an artifact, if all state the same one."""
    stated = {trial.timing.program_version for trial in trials if trial.timing}
    only = stated.pop() if len(stated) == 1 else None
    return only.partition(" ")[0] if only else None


def trial_row(run_id: str, trial: TrialRecord) -> TrialRow:
    """Return the row of a trial."""
    failure, model = trial.failure, trial.model
    return TrialRow(
        run=run_id,
        number=trial.number,
        slug=trial.slug,
        variant=trial.variant,
        repeat=trial.repeat,
        state=trial.state,
        started=moment(trial.started),
        finished=moment(trial.finished),
        board=trial.board or None,
        target=trial.target or None,
        execution=trial.execution,
        attempt=trial.attempt,
        blame=failure.blame if failure else None,
        failure=failure.kind if failure else None,
        skip_reason=trial.skip_reason,
        checks_failed=" ".join(check.name for check in trial.checks if check.ok is False),
        checks_open=" ".join(check.name for check in trial.checks if check.is_open),
        model=model.key,
        model_file=model.file,
        model_name=model.name,
        model_sha256=model.sha256 or None,
        model_bytes=model.size_bytes,
        quantization=model.quantization,
        bits_per_weight=model.bits_per_weight,
        figures={one.column: one.of(trial) for one in FIGURES},
        bound=trial.bound.kind if trial.bound else None,
        parameters=trial.parameters,
        conditions={one.name: one.had for one in trial.conditions},
        comparability=trial.comparability,
    )


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


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
    graded = [one for one in (end.accuracies if end else ()) if one.grader == record.graders[0]]
    boards = {one.board for one in record.endpoints if one.board}
    executions = {one.execution for one in record.endpoints if one.execution}
    row = replace(
        _row(run_id, record, end, annotations=annotations, stamp=stamp),
        kind="evaluation",
        board=boards.pop() if len(boards) == 1 else None,
        execution=executions.pop() if len(executions) == 1 else None,
        verdict=evaluation_verdict(end),
        trials_planned=end.planned if end else record.planned,
        trials_recorded=recorded,
        trials_ok=end.answered if end else recorded,
        trials_failed=end.failed if end else 0,
        figures=ACCURACY.ends_of(map(ACCURACY.of, graded)),
    )
    return Entry(row, _model_rows(run_id, record.models), _tags(annotations))


def evaluation_verdict(end: EvaluationEnd | None) -> str | None:
    """Return the verdict on an evaluation, as in its exit status."""
    return verdict_of(end, failed=end is not None and (end.failed > 0 or not end.accuracies))


def load_test_entry(
    run_id: str,
    record: ServingRecord,
    end: RunEnd | None,
    *,
    annotations: Annotations,
    stamp: str,
) -> Entry:
    """Return the rows of a load test. ``run_id``: name of its directory."""
    row = replace(
        _row(run_id, record, end, annotations=annotations, stamp=stamp),
        kind="load-test",
        board=record.endpoint.board,
        execution=record.endpoint.execution,
        verdict=verdict_of(end),
    )
    models = () if record.model is None else (record.model,)
    return Entry(row, _model_rows(run_id, models), _tags(annotations))


def _model_rows(run_id: str, models: Iterable[ModelIdentity]) -> tuple[ModelRow, ...]:
    return tuple(
        ModelRow(
            run_id, model.key, model.file, model.sha256 or None, model.name, model.quantization
        )
        for model in models
    )
