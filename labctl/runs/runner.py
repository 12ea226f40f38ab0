"""Runs a plan: one trial after the other, every finished one on disk before the next begins."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from labctl.config.recipe import Gate
from labctl.errors import ExitStatus, JobError, ProgramTimeout
from labctl.records import Failure, GateRecord, RunEnd, RunRecord, TrialRecord, TrialState
from labctl.runs.directory import RunDirectory
from labctl.runs.execute import Bench, run_trial, skipped_trial
from labctl.runs.gates import judge
from labctl.runs.observer import Observer
from labctl.runs.plan import Plan, PlannedTrial
from labctl.runs.summary import summarise

#: A trial that takes so many times as long as the one before of its variant hangs.
_HANGS = 2


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


@dataclass
class Runner:
    """Runs plans on one bench.

    ``max_seconds``: no trial starts or goes on after this. ``trial_seconds``: the time-out of one
    trial; without it, what is left of ``max_seconds``.
    """

    bench: Bench
    directory: RunDirectory
    max_seconds: float
    trial_seconds: float | None
    observer: Observer
    _began: float = field(default_factory=time.monotonic)
    _took: dict[str, float] = field(default_factory=dict)
    _failed: dict[str, int] = field(default_factory=dict)

    def run(self, plan: Plan, run: RunRecord, gates: Sequence[Gate]) -> Outcome:
        """Run all trials and judge the gates.

        Raises the error that ended the run early; what was finished stays in the directory, and
        ``end.json`` says what happened. A job's failure ends its variant, not the run.
        """
        records: list[TrialRecord] = []
        try:
            for trial in plan.trials:
                self._one(trial, len(plan.trials), records)
        except KeyboardInterrupt:
            self._finish("interrupted")
            raise
        except Exception as error:  # a bug too: the run says how it ended
            self._finish("failed", failure=Failure.of(error))
            raise
        parameters = {trial.variant.slug: trial.parameters for trial in plan.trials}
        judged = judge(gates, summarise(records), parameters, self.bench.facts.execution)
        self._finish("finished", gates=judged)
        return Outcome(self.directory, run, tuple(records), judged)

    def _one(self, trial: PlannedTrial, total: int, records: list[TrialRecord]) -> None:
        error: Exception | None = None
        if reason := self._reason_to_skip(trial):
            record = skipped_trial(self.bench, trial, reason)
        else:
            slug, began = trial.variant.slug, time.monotonic()
            self.observer.trial_started(trial, total, self._took.get(slug))
            left = self._left
            record, error = run_trial(
                self.bench,
                trial,
                timeout_s=min(self.trial_seconds or left, left),
                folder=self.directory.trial_path(trial.number, trial.slug),
                on_progress=self.observer.trial_progress,
            )
            if isinstance(error, ProgramTimeout) and self._ran_out(slug, left):
                record, error = self._cut_short(record, left), None
            else:
                self._took[slug] = time.monotonic() - began
        self.directory.add(record)
        records.append(record)
        self.observer.trial_finished(record, total)
        if isinstance(error, JobError):
            self._failed[trial.variant.slug] = trial.number
        elif error is not None:
            raise error

    def _ran_out(self, slug: str, left: float) -> bool:
        """Whether the end of the run's time stopped a trial, rather than its own time-out."""
        own = self.trial_seconds is not None and self.trial_seconds < left
        return not own and left < _HANGS * self._took.get(slug, 0.0)

    def _cut_short(self, record: TrialRecord, had: float) -> TrialRecord:
        """The record of a trial that says nothing about the program."""
        took = self._took[record.variant]
        reason = f"max_time: stopped after {had:.1f} s, the one before took {took:.1f} s"
        return record.model_copy(
            update={"state": TrialState.SKIPPED, "failure": None, "skip_reason": reason}
        )

    @property
    def _left(self) -> float:
        return self.max_seconds - (time.monotonic() - self._began)

    def _reason_to_skip(self, trial: PlannedTrial) -> str | None:
        if trial.variant.slug in self._failed:
            return f"trial {self._failed[trial.variant.slug]} of this variant failed"
        # What a trial of a variant took is what the next one will take.
        expected = self._took.get(trial.variant.slug, 0.0)
        if self._left > expected:
            return None
        return f"max_time: {max(self._left, 0):.1f} s left" + (
            f", the last such trial took {expected:.1f} s" if expected else ""
        )

    def _finish(
        self,
        state: Literal["finished", "failed", "interrupted"],
        *,
        failure: Failure | None = None,
        gates: tuple[GateRecord, ...] = (),
    ) -> None:
        self.directory.finish(
            RunEnd(state=state, failure=failure, gates=gates, finished=datetime.now(UTC))
        )
