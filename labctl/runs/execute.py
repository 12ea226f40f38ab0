"""One trial, from an argument vector to a record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from labctl.board import BoardAgent, JobProgress
from labctl.engines import Engine, Tool
from labctl.errors import LabctlError
from labctl.records import (
    BoardFacts,
    Check,
    Failure,
    JobStatus,
    ModelIdentity,
    TimingRecord,
    TrialRecord,
    TrialState,
)
from labctl.runs.plan import PlannedTrial


@dataclass(frozen=True)
class Bench:
    """Everything that stays the same from trial to trial."""

    board: str
    target: str
    facts: BoardFacts
    agent: BoardAgent
    epoch: int
    run_id: str
    engine: Engine[Any]
    tool: Tool
    program: str
    prompt: str
    models: Mapping[str, "DeployedModel"]


@dataclass(frozen=True)
class DeployedModel:
    """A model, and where it lies on the board."""

    identity: ModelIdentity
    remote: str


@dataclass
class _Findings:
    """What is known of a trial so far; a failure keeps what was found before it."""

    argv: tuple[str, ...] = ()
    conditions: dict[str, JsonValue] | None = None
    job: JobStatus | None = None
    timing: TimingRecord | None = None
    checks: tuple[Check, ...] = ()


def run_trial(
    bench: Bench,
    trial: PlannedTrial,
    *,
    timeout_s: float,
    folder: Path,
    on_progress: Callable[[JobProgress], None],
) -> tuple[TrialRecord, LabctlError | None]:
    """Run one trial on the board; its raw files end up in ``folder``.

    Returns the record whatever happens, and the error that made it a failure, if any. An
    interruption stops the job on the board and goes on upwards.
    """
    model = bench.models[trial.variant.model_key]
    parameters = bench.engine.parameters(trial.parameters)
    started = datetime.now(UTC)
    findings = _Findings()
    error: LabctlError | None = None
    try:
        _measure(bench, trial, parameters, model, findings, timeout_s, folder, on_progress)
    except LabctlError as caught:
        error = caught
    record = TrialRecord(
        number=trial.number,
        slug=trial.slug,
        variant=trial.variant.slug,
        repeat=trial.repeat,
        model=model.identity,
        parameters=parameters.model_dump(mode="json"),
        board=bench.board,
        target=bench.target,
        execution=bench.facts.execution,
        argv=findings.argv,
        conditions=findings.conditions or {},
        state=TrialState.OK if error is None else TrialState.FAILED,
        failure=None if error is None else Failure.of(error),
        started=started,
        finished=datetime.now(UTC),
        job=findings.job,
        timing=findings.timing,
        checks=findings.checks,
    )
    return record, error
