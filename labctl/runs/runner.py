"""Runs a plan: one trial after the other, every finished one on disk before the next begins."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from labctl.config.recipe import Gate, Precision
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardNotReady,
    BoardPermission,
    ExitStatus,
    HostError,
    InfraError,
    IntegrityError,
    JobError,
    LeaseLost,
    ProgramTimeout,
)
from labctl.records import Failure, GateRecord, RunEnd, RunRecord, TrialRecord, TrialState
from labctl.results.gates import judge
from labctl.results.stopping_rule import is_enough
from labctl.results.summary import summarise
from labctl.runs.observer import Observer
from labctl.runs.plan.time_budget import RunClock
from labctl.runs.plan.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Attempt, Journal, stays_open
from labctl.runs.trial.context import Bench, is_begun, leave_nothing, leave_quiet
from labctl.runs.trial.trial import run_trial, skipped_trial

#: What cuts a trial and may be over: it restarted, its agent was killed, bytes came wrong.
_REPEATED = (BoardError, IntegrityError)
_LASTING = (LeaseLost, BoardNoSpace, BoardNotReady, BoardPermission)


@dataclass(frozen=True)
class Outcome:
    """A run that came to its end."""

    directory: RunDirectory
    run: RunRecord
    trials: tuple[TrialRecord, ...]
    gates: tuple[GateRecord, ...]

    @property
    def exit_status(self) -> int:
        """0 when every variant has a result, no trial failed and no gate was missed."""
        failed = any(trial.state is TrialState.FAILED for trial in self.trials)
        missed = any(gate.passed is False for gate in self.gates)
        without = any(summary.trials_ok == 0 for summary in summarise(self.trials))
        return ExitStatus.JOB if failed or missed or without else ExitStatus.OK


#: Given what raises LeaseLost once another controller has the board.
Held: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[None]]


@dataclass
class Runner:
    """Runs plans on one bench.

    ``clock`` holds it to its time. ``renew`` gives a bench for the same board after it failed, or
    raises; ``infra_retries``: how often a trial that the board cut is repeated; what cuts a trial
    that an earlier controller began counts as that one's.
    ``precision``: how well results must be known for optional trials to be left out.
    ``take_anew`` makes the bench after the first trial, one that an earlier controller began, of
    the bench as that trial left it: its board may have restarted.
    ``held`` keeps the board in the state that is asked for, and puts it back.
    """

    bench: Bench
    directory: RunDirectory
    journal: Journal
    clock: RunClock
    observer: Observer
    renew: Callable[[Bench], Bench]
    infra_retries: int = 0
    precision: Precision | None = None
    take_anew: Callable[[Bench], Bench] | None = None
    held: Held = lambda _mine: nullcontext()
    _failed: dict[str, int] = field(default_factory=dict)
    #: Before another trial was to begin.
    _lost: InfraError | None = None

    def run(
        self,
        trials: Sequence[PlannedTrial],
        run: RunRecord,
        gates: Sequence[Gate],
        done: Sequence[TrialRecord] = (),
    ) -> Outcome:
        """Run all trials but those that are ``done``, and judge the gates.

        Raises the error that ended the run early; what was finished stays in the directory, and
        ``end.json`` says what happened. A job's failure ends its variant, not the run.
        """
        records = {record.number: record for record in done}
        self._remember(done)
        try:
            with self.held(self._check_lease):
                for trial in trials:
                    if trial.number not in records and not self._needless(trial, records.values()):
                        records[trial.number] = self._one(trial, len(trials))
                        if self.take_anew:
                            self.bench, self.take_anew = self.take_anew(self.bench), None
        except KeyboardInterrupt:
            self._break_off("interrupted")
            raise
        except Exception as error:  # a bug too: the run says how it ended
            self._break_off("failed", Failure.of(error))
            raise
        parameters = {trial.variant.slug: trial.parameters for trial in trials}
        found = tuple(records[t.number] for t in trials if t.number in records)
        summaries = summarise(found, run.variants)
        judged = judge(gates, summaries, parameters, self.bench.facts.execution)
        self._finish("finished", gates=judged)
        return Outcome(self.directory, run, found, judged)

    def _check_lease(self) -> None:
        """Raise LeaseLost once another controller has the board."""
        self.bench.check_lease()

    def _needless(self, trial: PlannedTrial, records: Iterable[TrialRecord]) -> bool:
        """Whether a repeat would tell little that is not known."""
        if not trial.optional or self.precision is None:
            return False
        limit = self.precision.max_time
        if self.journal.attempt(trial.number).open:
            return False  # its job may run, and nothing else beside it
        if limit is not None and self.clock.spent >= limit:
            return True
        slug = trial.variant.slug
        return slug in self._failed or is_enough(
            self.precision, [record for record in records if record.variant == slug]
        )

    def _remember(self, done: Sequence[TrialRecord]) -> None:
        """What an earlier controller would know by now."""
        for record in done:
            self.clock.remember(record)
            if record.state is TrialState.FAILED:
                self._failed[record.variant] = record.number

    def _one(self, trial: PlannedTrial, total: int) -> TrialRecord:
        if self._lost:
            raise self._lost
        error: Exception | None = None
        attempt = self.journal.attempt(trial.number)
        if attempt.open and not is_begun(self.bench, attempt):
            # Its controller died, or was interrupted, before the job was on the board.
            attempt = replace(attempt, open=False)
        reason = None if attempt.open else self._reason_to_skip(trial)
        if reason:
            record = skipped_trial(self.bench, trial, attempt, reason)
        else:
            record, error, attempt = self._measure(trial, attempt, total)
        self.directory.add(record)
        if reason is None and not (error and stays_open(error)):
            # Only now: until the record is on disk, the board's files are the only ones for sure.
            self._tidy_up(attempt)
        self.observer.trial_finished(record, total)
        if isinstance(error, JobError):
            self._failed[trial.variant.slug] = trial.number
        elif error is not None:
            raise error
        return record

    def _tidy_up(self, attempt: Attempt) -> None:
        """A board that is lost now is no trial's failure, nor the run's after its last trial."""
        try:
            leave_nothing(self.bench, attempt)
        except KeyboardInterrupt:
            leave_quiet(self.bench, attempt)
            raise
        except InfraError as error:
            self._lost = error
            directory = self.bench.job_directory(attempt)
            self.observer.note(f"note: {directory} stays on the board: {error.message}")

    def _measure(
        self, trial: PlannedTrial, attempt: Attempt, total: int
    ) -> tuple[TrialRecord, Exception | None, Attempt]:
        """Begin a trial until nothing of host, link or board cuts it, or the budget is used."""
        budget = self.infra_retries + attempt.open
        while True:
            record, error = self._attempt(trial, attempt, total)
            if error is None or isinstance(error, JobError):
                return record, error, attempt
            if not stays_open(error):
                self.journal.cut(trial.number, attempt, error)
            passing = isinstance(error, _REPEATED) and not isinstance(error, _LASTING)
            if budget == 0 or not passing:
                return record, error, attempt
            budget -= 1
            self.observer.repeated(error)
            self.directory.set_aside(trial.number, trial.slug, attempt.number)
            try:
                self.bench = self.renew(self.bench)
            except InfraError as worse:  # what the run ends with; the record keeps what cut it
                return record, worse, attempt
            leave_quiet(self.bench, attempt)
            attempt = self.journal.attempt(trial.number)

    def _attempt(
        self, trial: PlannedTrial, attempt: Attempt, total: int
    ) -> tuple[TrialRecord, Exception | None]:
        began = self.clock.spent
        self.observer.trial_started(trial, total, self.clock.took(trial))
        if not attempt.open:
            self.journal.started(trial.number, attempt, self.bench.facts.boot_id)
        record, error = run_trial(
            self.bench,
            trial,
            attempt,
            clock=self.clock,
            folder=self.directory.trial_path(trial.number, trial.slug),
            on_progress=self.observer.trial_progress,
        )
        self.clock.note(record, self.clock.spent - began)
        if isinstance(error, ProgramTimeout) and record.limit:
            reason = self.clock.reason_cut_short(trial, record.limit)
            if reason is not None:
                skipped = {"state": TrialState.SKIPPED, "failure": None, "skip_reason": reason}
                return record.model_copy(update=skipped), None
        return record, error

    def _reason_to_skip(self, trial: PlannedTrial) -> str | None:
        if trial.variant.slug in self._failed:
            return f"trial {self._failed[trial.variant.slug]} of this variant failed"
        return self.clock.reason_to_skip(trial)

    def _break_off(
        self, state: Literal["failed", "interrupted"], failure: Failure | None = None
    ) -> None:
        """Say how the run ended; a host that cannot write it hides nothing of why."""
        try:
            self._finish(state, failure=failure)
        except HostError as error:
            self.observer.note(f"note: {error.message}")
        run = self.directory.path.name
        self.observer.note(f"what was finished is kept; to go on: labctl resume {run}")

    def _finish(
        self,
        state: Literal["finished", "failed", "interrupted"],
        *,
        failure: Failure | None = None,
        gates: tuple[GateRecord, ...] = (),
    ) -> None:
        self.directory.finish(
            RunEnd(
                state=state,
                failure=failure,
                gates=gates,
                resumed=self.journal.resumptions,
                finished=datetime.now(UTC),
            )
        )
