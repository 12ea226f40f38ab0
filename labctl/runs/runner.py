"""Run a plan: one trial after the other; each is on disk before the next begins."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardNotReady,
    BoardPermission,
    ConfigError,
    ExitStatus,
    HostError,
    InfraError,
    IntegrityError,
    JobError,
    LeaseLost,
    ProgramTimeout,
    SurvivingProcess,
)
from labctl.records.run import GateRecord, RunEnd, RunRecord
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.results.gates import judge
from labctl.results.repeats import is_enough
from labctl.results.summary import good_trials, summarise
from labctl.runs.context import RunContext
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Attempt, Journal, stays_open
from labctl.runs.record.repository import note_in_index
from labctl.runs.trial.trial import run_trial, skipped_trial

#: Errors that may pass: the board restarted, its agent was killed, bytes arrived wrong.
_REPEATED = (BoardError, IntegrityError)
_LASTING = (LeaseLost, BoardNoSpace, BoardNotReady, BoardPermission, SurvivingProcess)


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    directory: RunDirectory
    run: RunRecord
    trials: tuple[TrialRecord, ...]
    gates: tuple[GateRecord, ...]

    @property
    def exit_status(self) -> int:
        """0 if every variant has a result, no trial failed and no gate was missed.

        A search needs a result of its default only: settings that fail are a part of its answer.
        """
        if self.run.is_search:
            found = any(one.variant in self.run.variants[:1] for one in good_trials(self.trials))
            return ExitStatus.OK if found else ExitStatus.JOB
        failed = any(trial.state is TrialState.FAILED for trial in self.trials)
        missed = any(gate.passed is False for gate in self.gates)
        without = any(summary.trials_ok == 0 for summary in summarise(self.trials))
        return ExitStatus.JOB if failed or missed or without else ExitStatus.OK


#: Returns the exit status of a finished run, judged by the caller.
Judge = Callable[[Outcome], int]


def usual_status(outcome: Outcome) -> int:
    """Return the run's own exit status."""
    return outcome.exit_status


def run_trials(
    context: RunContext,
    trials: Sequence[PlannedTrial],
    done: Sequence[TrialRecord] = (),
    *,
    still_ours: bool = False,
) -> Outcome:
    """Run all trials except ``done``, and judge the gates.

    ``still_ours``: nobody else had the board since this run had it; a job may be running. Raises
    the error that ended the run early; finished trials stay in the directory, and ``end.json`` has
    the reason. A job's failure ends its variant, not the run.
    """
    records = {record.number: record for record in done}
    _remember(context, done)
    try:
        restore = context.held.has_changes and not still_ours
        with (
            context.console or nullcontext(),
            context.conditions.held(context.held.claim.check, restore=restore),
        ):
            trials = list(trials)
            for trial in _ahead(context, trials, records):
                if _is_needless(context, trial, records.values()):
                    continue
                records[trial.number] = _one(context, trial, len(trials))
        last, context.last = context.last, None
        if last is not None:
            _tidy_up(context, last, context.leave_board)
    except KeyboardInterrupt:
        _break_off(context, "interrupted")
        raise
    except Exception as error:  # also a bug: the run's end is recorded
        _break_off(context, "failed", context.failure(error))
        raise
    run, gates = context.run, context.prepared.recipe.gates
    parameters = {trial.variant.slug: trial.parameters for trial in trials}
    found = tuple(records[t.number] for t in trials if t.number in records)
    judged = judge(gates, summarise(found, run.variants), parameters, context.facts.execution)
    judged += context.compare(run, found, parameters)
    _finish(context, "finished", gates=judged)
    return Outcome(context.directory, run, found, judged)


def _ahead(
    context: RunContext, trials: list[PlannedTrial], records: Mapping[int, TrialRecord]
) -> Iterator[PlannedTrial]:
    """Yield the trials that have no record; a search adds trials whenever all have run."""
    ahead = remaining(context.journal, trials, records)
    while True:
        for index, trial in enumerate(ahead):
            context.ahead = ahead[index:]
            yield trial
        ahead = list(context.search.more(records, len(trials))) if context.search else []
        if not ahead:
            return
        context.directory.extend_plan(trial.record() for trial in ahead)
        trials.extend(ahead)


def remaining(
    journal: Journal, trials: Sequence[PlannedTrial], done: Container[int]
) -> list[PlannedTrial]:
    """Return the trials that are not ``done``: first a trial that may be running, then as planned.

    An earlier repeat that was left out has no record either; running it first would take the board
    again and end the running job.
    """
    undone = [trial for trial in trials if trial.number not in done]
    return sorted(undone, key=lambda trial: not journal.attempt(trial.number).open)


def _is_needless(context: RunContext, trial: PlannedTrial, records: Iterable[TrialRecord]) -> bool:
    """Return True if a repeat would add little information."""
    precision = context.prepared.recipe.repeats_until
    if not trial.optional or precision is None:
        return False
    limit = precision.max_time
    if context.journal.attempt(trial.number).open:
        return False  # its job may be running, and nothing else may run beside it
    if limit is not None and context.clock.spent >= limit:
        return True
    slug = trial.variant.slug
    return slug in context.failed or is_enough(
        precision, [record for record in records if record.variant == slug]
    )


def _remember(context: RunContext, done: Sequence[TrialRecord]) -> None:
    """Note facts that an earlier controller would know now."""
    for record in done:
        context.clock.remember(record)
        if record.state is TrialState.FAILED:
            context.failed[record.variant] = record.number


def _one(context: RunContext, trial: PlannedTrial, total: int) -> TrialRecord:
    if context.lost:
        raise context.lost
    error: Exception | None = None
    attempt = context.journal.attempt(trial.number)
    if attempt.open and not context.is_begun(attempt):
        # Its controller died, or was interrupted, before the job was on the board.
        attempt = replace(attempt, open=False)
    reason = None if attempt.open else _reason_to_skip(context, trial)
    if not attempt.open and not reason:
        context.directory.check_space()
    if reason:
        record = skipped_trial(context, trial, attempt, reason)
    else:
        context.held.claim.refuse_if_kept_for_another()
        record, error, attempt = _measure(context, trial, attempt, total)
    context.held.claim.require()
    context.directory.add(record)
    if reason is None and not (error and stays_open(error)):
        # Only now: until the record is on disk, the board may have the only copy of the files.
        is_last = len(context.ahead) == 1 and context.search is None
        if is_last and (error is None or isinstance(error, JobError)):
            context.last = attempt  # settings are put back first
        else:
            _tidy_up(context, attempt, context.remove_job)
    context.observer.trial_finished(record, total)
    if isinstance(error, JobError) or (
        isinstance(error, ConfigError) and _may_drop(context, trial)
    ):
        context.failed[trial.variant.slug] = trial.number
    elif error is not None:
        raise error
    return record


def _tidy_up(context: RunContext, attempt: Attempt, remove: Callable[[Attempt], None]) -> None:
    """Remove a job. Losing the board here fails neither a trial nor the run."""
    try:
        remove(attempt)
    except KeyboardInterrupt:
        context.stop_job(attempt)
        raise
    except InfraError as error:
        context.lost = error
        directory = context.job_directory(attempt)
        context.observer.note(f"note: {directory} stays on the board: {error.message}")


def _measure(
    context: RunContext, trial: PlannedTrial, attempt: Attempt, total: int
) -> tuple[TrialRecord, Exception | None, Attempt]:
    """Repeat a trial until host, link and board do not interrupt it, or the budget is used."""
    if context.held.claim.is_inherited and not attempt.open:
        context.take_lease()  # the job for which it was kept has ended
    budget = context.prepared.recipe.infra_retries + attempt.open
    while True:
        record, error = _attempt(context, trial, attempt, total)
        if error is None or isinstance(error, JobError):
            return record, error, attempt
        context.held.claim.require()
        if not stays_open(error):
            context.journal.cut(trial.number, attempt, error)
        passing = isinstance(error, _REPEATED) and not isinstance(error, _LASTING)
        goes_on = budget == 0 and _may_drop(context, trial)
        if not passing or (budget == 0 and not goes_on):
            return record, error, attempt
        budget -= 1
        if not goes_on:
            context.observer.repeated(error)
            context.directory.set_aside(trial.number, trial.slug, attempt.number)
        try:
            context.renew()
            context.stop_job(attempt)
            if context.lost:
                raise context.lost
        except InfraError as worse:  # the run ends with this; the record keeps the first error
            return record, worse, attempt
        if goes_on:  # the setting loses the board: its record is a result
            return record, None, attempt
        attempt = context.journal.attempt(trial.number)


def _may_drop(context: RunContext, trial: PlannedTrial) -> bool:
    return context.search is not None and context.search.may_drop(trial)


def _attempt(
    context: RunContext, trial: PlannedTrial, attempt: Attempt, total: int
) -> tuple[TrialRecord, Exception | None]:
    clock, observer = context.clock, context.observer
    began = clock.spent
    coming = (t for t in context.ahead if not t.optional and t.variant.slug not in context.failed)
    observer.trial_started(trial, total, clock.took(trial), clock.remaining(coming))
    if not attempt.open:
        context.journal.started(trial.number, attempt, context.facts.boot_id)
    record, error = run_trial(context, trial, attempt)
    clock.note(record, clock.spent - began)
    if isinstance(error, ProgramTimeout) and record.limit:
        reason = clock.reason_cut_short(trial, record.limit)
        if reason is not None:
            skipped = {"state": TrialState.SKIPPED, "failure": None, "skip_reason": reason}
            return record.model_copy(update=skipped), None
    return record, error


def _reason_to_skip(context: RunContext, trial: PlannedTrial) -> str | None:
    if trial.variant.slug in context.failed and not context.search:  # it decides by itself
        return f"trial {context.failed[trial.variant.slug]} of this variant failed"
    reason = context.search.reason_to_skip(trial) if context.search else None
    return reason or context.clock.reason_to_skip(trial)


def _break_off(
    context: RunContext, state: Literal["failed", "interrupted"], failure: Failure | None = None
) -> None:
    """Record how the run ended; a failure to write must not hide the reason."""
    try:
        _finish(context, state, failure=failure)
    except HostError as error:
        context.observer.note(f"note: {error.message}")
    run = context.directory.path.name
    way = f"to continue: labctl resume {run}"
    if context.run.untrusted_recipe:
        way = "an untrusted recipe is not resumed: a new run measures all trials"
    context.observer.tell_way(f"finished trials are kept; {way}")
    last, context.last = context.last, None
    if last is not None:
        context.stop_job(last)


def _finish(
    context: RunContext,
    state: Literal["finished", "failed", "interrupted"],
    *,
    failure: Failure | None = None,
    gates: tuple[GateRecord, ...] = (),
) -> None:
    context.directory.finish(
        RunEnd(
            state=state,
            failure=failure,
            gates=gates,
            resumed=context.journal.resumptions,
            finished=datetime.now(UTC),
        )
    )
    note_in_index(context.directory, context.observer.note)
