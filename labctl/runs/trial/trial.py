"""One trial, from an argument vector to a record."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import JsonValue

from labctl.board.job import DEFAULT_SAMPLE_MS, TELEMETRY, JobSpec, Started
from labctl.config.recipe import Recipe
from labctl.engines.base import EngineParameters, Inputs, RawOutput
from labctl.errors import BoardError, BoardNotReady, BoardRebooted, ConfigError, ProgramTimeout
from labctl.files import host_writes
from labctl.performance.bottleneck import explain
from labctl.records.board import BoardFacts, Execution, PhoneState
from labctl.records.energy import EnergyRecord
from labctl.records.timing import TimingRecord
from labctl.records.trial import (
    Check,
    ConditionRecord,
    JobStatus,
    TelemetrySummary,
    TrialLimit,
    TrialPrediction,
    TrialRecord,
    TrialState,
)
from labctl.results.comparability import classes
from labctl.results.telemetry import awake, steadiness, summarise_telemetry
from labctl.results.timing_checks import drift, judged_on, stamped, stamps_check
from labctl.runs.board.deploy_preview import program_path
from labctl.runs.context import RunContext
from labctl.runs.observer import GETTING_READY, trial_progress
from labctl.runs.planning.forecast import as_scheduled
from labctl.runs.planning.time_limits import timed_out
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.journal import Attempt
from labctl.runs.trial.energy import Metering, idle_floor


@dataclass
class PartialTrial:
    """Known part of a trial: after a failure, the facts before it stay."""

    argv: tuple[str, ...] = ()
    comparability: dict[str, JsonValue] = field(default_factory=dict)
    conditions: tuple[ConditionRecord, ...] = ()
    phone_state: PhoneState | None = None
    took_ns: int | None = None
    waited_ns: int | None = None
    limit: TrialLimit | None = None
    job: JobStatus | None = None
    timing: TimingRecord | None = None
    evidence: TelemetrySummary | None = None
    energy: EnergyRecord | None = None
    checks: tuple[Check, ...] = ()


def run_trial(
    context: RunContext, trial: PlannedTrial, attempt: Attempt
) -> tuple[TrialRecord, Exception | None]:
    """Run one trial on the board, or continue an earlier controller's attempt.

    Its raw files end up in its folder of the run directory; the job's directory stays on the board
    until the caller, with the record on disk, removes it by :meth:`RunContext.remove_job`. Always
    returns the record, and the error that made it a failure, if any; the caller raises errors other
    than the job's. An interruption stops the job on the board and is raised.
    """
    found, started = PartialTrial(), datetime.now(UTC)
    context.began = began = time.monotonic()
    error: Exception | None = None
    try:
        _measure(context, trial, attempt, found)
    except Exception as caught:  # also a bug: facts found before it stay
        error = caught
    found.took_ns = round((time.monotonic() - began) * 1e9)
    return _record(context, trial, attempt, found, started, error=error), error


def skipped_trial(
    context: RunContext, trial: PlannedTrial, attempt: Attempt, reason: str
) -> TrialRecord:
    """Return the record of a planned trial that did not run."""
    return _record(context, trial, attempt, PartialTrial(), datetime.now(UTC), reason=reason)


def _measure(
    context: RunContext,
    trial: PlannedTrial,
    attempt: Attempt,
    found: PartialTrial,
) -> None:
    prepared = context.inputs_of(trial)
    engine = prepared.engine
    folder = context.directory.trial_path(trial.number, trial.slug)
    model = context.model_path(trial.variant.model_key)
    parameters = engine.parameters(trial.parameters)
    found.comparability = {
        **engine.comparability(prepared.tool, parameters),
        **context.comparability,
    }
    cpus = as_scheduled(prepared.recipe, context.facts).cpus_allowed
    files, program = context.files, program_path(prepared, context.paths)
    adapters = tuple((files[one.file], one.scale) for one in prepared.recipe.lora)
    inputs = Inputs(program, model, prepared.prompt, files, adapters=adapters, cpus=cpus)
    found.argv = tuple(engine.command(prepared.tool, parameters, inputs))
    with host_writes(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        job, metering = _on_board(context, trial, attempt, found, parameters)
    except KeyboardInterrupt:
        context.stop_job(attempt)
        raise
    raw = RawOutput.read(folder)
    if failure := engine.diagnose(job, raw):
        if isinstance(failure, ProgramTimeout):
            failure = timed_out(failure, found.limit)
        raise failure
    found.timing = timing = stamped(engine.parse(raw, parameters), job)
    found.energy = metering.record(job, timing)
    found.evidence = summarise_telemetry(folder / TELEMETRY, job, timing)
    found.comparability |= classes(job.state, found.evidence)
    baseline = context.forecast.baseline(trial.variant.slug)
    built = engine.build_check(timing, prepared.revision)
    checks = (
        *engine.checks(timing, parameters),
        *((built,) if built else ()),
        *drift(timing, context.facts, baseline.work.bytes_at if baseline else None),
        *stamps_check(timing, job),
        *steadiness(found.evidence, context.facts),
        *awake(job),
    )
    found.checks = judged_on(context.facts.execution, checks)


def _on_board(
    context: RunContext,
    trial: PlannedTrial,
    attempt: Attempt,
    found: PartialTrial,
    parameters: EngineParameters,
) -> tuple[JobStatus, Metering]:
    held, recipe = context.held, context.prepared.recipe
    folder = context.directory.trial_path(trial.number, trial.slug)
    # The agent compares only epochs: the board's owner is checked before and after.
    context.retry(held.claim.check_before_trial)
    if not attempt.open:  # else it is running
        if context.meter and context.idle is None:
            context.observer.note("measuring the power of the idle board")
            context.idle = idle_floor(context.meter)
        context.observer.trial_progress(GETTING_READY)
        began = time.monotonic()
        clock, conditions = context.clock, context.conditions
        try:
            found.conditions = context.retry(
                lambda: conditions.ready(clock.longest_wait(trial), held.claim.check)
            )
        except (BoardNotReady, ConfigError):
            found.conditions = conditions.last
            raise
        found.waited_ns = round((time.monotonic() - began) * 1e9)
    if context.facts.phone:
        found.phone_state = state = context.retry(context.conditions.phone_state)
        if state and state.power_source:
            found.comparability["power_source"] = state.power_source
    found.limit = limit = context.clock.limit(trial)
    spec = JobSpec(
        directory=context.job_directory(attempt),
        argv=found.argv,
        timeout_s=limit.seconds,
        epoch=held.claim.epoch,
        lease_path=held.claim.leases.path,
        cpus=recipe.scheduling.cpus and as_scheduled(recipe, context.facts).cpus_allowed,
        nice=recipe.scheduling.nice or 0,
        sample_ms=_sample_ms(recipe),
        resident=context.model_path(trial.variant.model_key),
        memlock=context.inputs_of(trial).engine.locks_memory(parameters),
    )
    metering = Metering(
        context.meter, folder, lambda: context.agent.poll(spec.directory).mono_ns, context.idle
    )
    try:
        with metering:
            found.job = job = _run_job(context, trial, attempt, found, spec)
    finally:
        found.energy = metering.record(found.job, None)
    context.agent.collect(
        spec.directory,
        folder,
        status=job,
        reattach_s=context.reattach_seconds,
        on_link_loss=context.observer.link_lost,
        ask=held.claim.check_and_run,
    )
    return job, metering


def _run_job(
    context: RunContext,
    trial: PlannedTrial,
    attempt: Attempt,
    found: PartialTrial,
    spec: JobSpec,
) -> JobStatus:
    agent, engine = context.agent, context.inputs_of(trial).engine
    parameters = engine.parameters(trial.parameters)
    started = agent.start(
        spec,
        again=attempt.open,
        reattach_s=context.reattach_seconds,
        on_link_loss=context.observer.link_lost,
    )
    if wrong := _not_the_board(context.facts, started):
        context.stop_job(attempt)
        raise wrong
    # The actual values, requested or not: records with other values are not comparable.
    found.comparability |= {"cpus": started.cpus, "nice": started.nice, "sample_ms": spec.sample_ms}
    if spec.memlock:
        found.comparability["memlock_bytes"] = started.memlock_bytes
    return agent.wait(
        started,
        timeout_s=spec.timeout_s,
        reattach_s=context.reattach_seconds,
        on_progress=lambda look: context.observer.trial_progress(
            trial_progress(engine, parameters, started, look)
        ),
        on_link_loss=context.observer.link_lost,
    )


def _record(
    context: RunContext,
    trial: PlannedTrial,
    attempt: Attempt,
    found: PartialTrial,
    started: datetime,
    *,
    error: Exception | None = None,
    reason: str | None = None,
) -> TrialRecord:
    state = TrialState.SKIPPED if reason else TrialState.FAILED if error else TrialState.OK
    board = context.held.board
    baseline = context.forecast.baseline(trial.variant.slug)
    predicted = context.forecast.of(trial)
    return TrialRecord(
        number=trial.number,
        slug=trial.slug,
        variant=trial.variant.slug,
        repeat=trial.repeat,
        model=context.prepared.models[trial.variant.model_key].identity,
        parameters={**trial.parameters},
        workload=context.inputs_of(trial).engine.roles.workload(trial.parameters),
        board=board.name,
        target=board.target,
        execution=context.facts.execution,
        state=state,
        failure=None if error is None else context.failure(error),
        skip_reason=reason,
        attempt=attempt.number,
        earlier_failures=attempt.failures,
        resumed=context.journal.resumptions,
        started=started,
        finished=datetime.now(UTC),
        predicted=predicted,
        measured_to_predicted=_ratio(found.timing, predicted),
        bound=explain(found.timing, baseline, found.evidence) if baseline else None,
        argv=found.argv,
        comparability=found.comparability,
        conditions=found.conditions,
        phone_state=found.phone_state,
        took_ns=found.took_ns,
        waited_ns=found.waited_ns,
        limit=found.limit,
        job=found.job,
        timing=found.timing,
        evidence=found.evidence,
        energy=found.energy,
        checks=found.checks,
    )


def _sample_ms(recipe: Recipe) -> int:
    interval = recipe.sampling_interval
    return DEFAULT_SAMPLE_MS if interval is None else round(interval * 1000)


def _ratio(timing: TimingRecord | None, predicted: TrialPrediction | None) -> float | None:
    measured = timing.mean_ns if timing else None
    if not measured or predicted is None or predicted.storage_token_ns is not None:
        return None  # two times were predicted, near the limit of memory
    return measured / predicted.token_ns


def _not_the_board(facts: BoardFacts, started: Started) -> BoardError | None:
    """Return the error if a job does not run on the recorded board."""
    if started.boot_id != facts.boot_id:
        return BoardRebooted(
            "the board restarted since the run began", hint="continue: `labctl resume`"
        )
    if started.emulator is not None and facts.execution is not Execution.EMULATED:
        return BoardError(
            f"the board runs the program in an emulator ({started.emulator}), which its facts"
            " do not tell"
        )
    return None
