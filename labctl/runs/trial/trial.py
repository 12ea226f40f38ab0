"""One trial, from an argument vector to a record."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from labctl.board import JobSpec, Started
from labctl.board.job import TELEMETRY
from labctl.engines import EngineParameters, Inputs, RawOutput
from labctl.errors import BoardError, BoardRebooted, ProgramTimeout
from labctl.files import host_writes
from labctl.performance.bottleneck import explain
from labctl.performance.drift import drift
from labctl.records import (
    BoardFacts,
    Check,
    ConditionRecord,
    Execution,
    Failure,
    JobStatus,
    TimingRecord,
    TrialEvidence,
    TrialLimit,
    TrialPrediction,
    TrialRecord,
    TrialState,
)
from labctl.results.comparability import classes
from labctl.results.lateness import stamped, stamps_check
from labctl.results.telemetry_summary import awake, evidence_of, steadiness
from labctl.runs.plan.time_budget import RunClock
from labctl.runs.plan.timeouts import timed_out
from labctl.runs.plan.trials import PlannedTrial
from labctl.runs.progress import GETTING_READY, TrialProgress, trial_progress
from labctl.runs.record.journal import Attempt
from labctl.runs.trial.context import Bench, again, leave_quiet
from labctl.runs.trial.energy import Metering


def run_trial(
    bench: Bench,
    trial: PlannedTrial,
    attempt: Attempt,
    *,
    clock: RunClock,
    folder: Path,
    on_progress: Callable[[TrialProgress], None],
) -> tuple[TrialRecord, Exception | None]:
    """Run one trial on the board, or go on with what an earlier controller began.

    Its raw files end up in ``folder``; the job's directory stays on the board until the caller,
    with the record on disk, removes it by :func:`.bench.leave_nothing`. Returns the record whatever
    happens, and the error that made it a failure, if any; the caller raises what is no job's. An
    interruption stops the job on the board and goes on upwards.
    """
    measurement = _Measurement(bench, trial, attempt)
    error: Exception | None = None
    try:
        measurement.measure(clock, folder, on_progress)
    except Exception as caught:  # a bug too: what was found before it stays
        error = caught
    return measurement.record(TrialState.FAILED if error else TrialState.OK, error=error), error


def skipped_trial(bench: Bench, trial: PlannedTrial, attempt: Attempt, reason: str) -> TrialRecord:
    """The record of a trial that was planned and not run."""
    return _Measurement(bench, trial, attempt).record(TrialState.SKIPPED, reason=reason)


@dataclass
class _Measurement:
    """A trial under way; a failure keeps what was found before it."""

    bench: Bench
    trial: PlannedTrial
    attempt: Attempt
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    argv: tuple[str, ...] = ()
    comparability: dict[str, JsonValue] = field(default_factory=dict)
    job: JobStatus | None = None
    timing: TimingRecord | None = None
    evidence: TrialEvidence | None = None
    metering: Metering | None = None
    conditions: tuple[ConditionRecord, ...] = ()
    waited_ns: int | None = None
    limit: TrialLimit | None = None
    checks: tuple[Check, ...] = ()

    def measure(
        self, clock: RunClock, folder: Path, on_progress: Callable[[TrialProgress], None]
    ) -> None:
        bench, engine = self.bench, self.bench.engine
        model = bench.models[self.trial.variant.model_key]
        parameters = engine.parameters(self.trial.parameters)
        self.comparability = {**engine.comparability(bench.tool, parameters), **bench.comparability}
        inputs = Inputs(bench.program, model.remote, bench.prompt, bench.files)
        self.argv = tuple(engine.command(bench.tool, parameters, inputs))
        with host_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            job = self._on_board(clock, folder, parameters, on_progress)
        except KeyboardInterrupt:
            leave_quiet(bench, self.attempt)
            raise
        raw = RawOutput.read(folder)
        if failure := engine.diagnose(job, raw):
            if isinstance(failure, ProgramTimeout):
                failure = timed_out(failure, self.limit)
            raise failure
        self.timing = stamped(engine.parse(raw, parameters), job)
        self.evidence = evidence_of(folder / TELEMETRY, self.job, self.timing)
        ground = bench.ground(self.trial.variant.slug)
        self.comparability |= classes(job.state, self.evidence)
        built = engine.build_check(self.timing, bench.revision)
        self.checks = (
            *engine.checks(self.timing, parameters),
            *((built,) if built else ()),
            *drift(self.timing, bench.facts, ground.work if ground else None),
            *stamps_check(self.timing, job),
            *steadiness(self.evidence, bench.facts),
            *awake(self.job),
        )

    def _on_board(
        self,
        clock: RunClock,
        folder: Path,
        parameters: EngineParameters,
        on_progress: Callable[[TrialProgress], None],
    ) -> JobStatus:
        bench, agent = self.bench, self.bench.agent
        # The agent compares epochs, and two controllers that took the board in the same moment can
        # have the same one: whose the board is, is asked before and after.
        again(bench, bench.check_lease)
        if not self.attempt.open:  # else it is under way
            on_progress(GETTING_READY)
            began = time.monotonic()
            self.conditions = again(bench, lambda: bench.ready(clock.longest_wait(self.trial)))
            self.waited_ns = round((time.monotonic() - began) * 1e9)
        self.limit = limit = clock.limit(self.trial)
        spec = JobSpec(
            directory=bench.job_directory(self.attempt),
            argv=self.argv,
            timeout_s=limit.seconds,
            epoch=bench.epoch,
            lease_path=bench.lease_path,
            cpus=bench.scheduling.cpus,
            nice=bench.scheduling.nice or 0,
            sample_ms=bench.sample_ms,
            resident=bench.models[self.trial.variant.model_key].remote,
            memlock=bench.engine.locks_memory(parameters),
        )
        self.metering = Metering(bench.meter, folder, lambda: agent.poll(spec.directory).mono_ns)
        with self.metering:
            self.job = job = self._run_job(spec, parameters, on_progress)
        agent.collect(
            spec.directory,
            folder,
            status=job,
            reattach_s=bench.reattach_seconds,
            on_link_loss=bench.on_link_loss,
        )
        again(bench, bench.check_lease)
        return job

    def _run_job(
        self,
        spec: JobSpec,
        parameters: EngineParameters,
        on_progress: Callable[[TrialProgress], None],
    ) -> JobStatus:
        bench = self.bench
        started = bench.agent.start(
            spec,
            again=self.attempt.open,
            reattach_s=bench.reattach_seconds,
            on_link_loss=bench.on_link_loss,
        )
        if wrong := _not_the_board(bench.facts, started):
            leave_quiet(bench, self.attempt)
            raise wrong
        # As they are, whether asked for or not: they make records unlike.
        self.comparability |= {
            "cpus": started.cpus,
            "nice": started.nice,
            "sample_ms": spec.sample_ms,
        }
        if spec.memlock:
            self.comparability["memlock_bytes"] = started.memlock_bytes
        return bench.agent.wait(
            started,
            timeout_s=spec.timeout_s,
            reattach_s=bench.reattach_seconds,
            on_progress=lambda look: on_progress(
                trial_progress(bench.engine, parameters, started, look)
            ),
            on_link_loss=bench.on_link_loss,
        )

    def record(
        self, state: TrialState, *, error: Exception | None = None, reason: str | None = None
    ) -> TrialRecord:
        bench, trial = self.bench, self.trial
        foresight = bench.foresight
        ground = bench.ground(trial.variant.slug)
        predicted = foresight.of(trial) if foresight else None
        return TrialRecord(
            number=trial.number,
            slug=trial.slug,
            variant=trial.variant.slug,
            repeat=trial.repeat,
            model=bench.models[trial.variant.model_key].identity,
            parameters={**trial.parameters},
            workload=bench.engine.roles.workload(trial.parameters),
            board=bench.board,
            target=bench.target,
            execution=bench.facts.execution,
            argv=self.argv,
            comparability=self.comparability,
            conditions=self.conditions,
            state=state,
            failure=None if error is None else Failure.of(error),
            skip_reason=reason,
            attempt=self.attempt.number,
            earlier_failures=self.attempt.failures,
            resumed=bench.resumed,
            started=self.started,
            finished=datetime.now(UTC),
            waited_ns=self.waited_ns,
            limit=self.limit,
            job=self.job,
            timing=self.timing,
            evidence=self.evidence,
            energy=self.metering.record(self.job, self.timing) if self.metering else None,
            predicted=predicted,
            measured_to_predicted=_ratio(self.timing, predicted),
            bound=explain(self.timing, ground, self.evidence) if ground else None,
            checks=self.checks,
        )


def _ratio(timing: TimingRecord | None, predicted: TrialPrediction | None) -> float | None:
    measured = timing.mean_ns if timing else None
    if not measured or predicted is None or predicted.storage_token_ns is not None:
        return None  # near the border of memory two times were predicted
    return measured / predicted.token_ns


def _not_the_board(facts: BoardFacts, started: Started) -> BoardError | None:
    """Why a job does not run on what the run's record says, if so."""
    if started.boot_id != facts.boot_id:
        return BoardRebooted(
            "the board restarted since the run began", hint="`labctl resume` goes on"
        )
    if started.emulator is not None and facts.execution is not Execution.EMULATED:
        return BoardError(
            f"the board runs the program in an emulator ({started.emulator}), which its facts"
            " do not tell"
        )
    return None
