"""The first line of everything that shows a run: its state, its good trials, since when, and why.

Made from the records alone, and the same for terminals, Markdown and pages.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from labctl.errors import Blame
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.results import results_of
from labctl.index.entry import evaluation_verdict, timing_verdict
from labctl.index.rows import verdict_of
from labctl.records.run import PlanRecord, RunEnd, RunRecord
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.report.page.language import Language
from labctl.results.summary import good_trials
from labctl.runs.record.directory import RunDirectory

State = Literal["running", "interrupted", "failed", "passed", "imported"]
#: What a reader must know first comes first.
STATES: Sequence[State] = ("failed", "interrupted", "running", "passed", "imported")
#: Number of lines of a program's standard error that are shown, and of characters of each.
_MOST_LINES, _MOST_TEXT = 8, 160


@dataclass(frozen=True)
class Reason:
    """Reason for a run that is not good: who must act, what happened, a program's last lines."""

    text: str
    blame: str = ""
    last_lines: Sequence[str] = ()

    @classmethod
    def of(cls, failure: Failure, where: str = "") -> "Reason":
        """Return the reason of a failure; ``where``: the trial, before its message."""
        text = f"{where}: {failure.told}" if where else failure.told
        return cls(text, str(failure.blame), last_lines(failure))


@dataclass(frozen=True)
class Status:
    """The state of a run.

    ``since``: when it began if it is running, else when it ended; None if unknown. ``planned``:
    number of trials of each variant. ``unit``: what ``good`` and ``total`` count.
    """

    run: str
    state: State
    good: int
    total: int
    since: datetime | None
    unit: Literal["trials", "answers", "loads"] = "trials"
    reason: Reason | None = None
    planned: Counter[str] = field(default_factory=Counter)
    #: False for a run of another lab, and for a sum of runs.
    is_resumable: bool = False

    @property
    def is_bad(self) -> bool:
        """True unless the run is running or passed."""
        return self.state in ("failed", "interrupted")

    def line(self, words: Language) -> str:
        """Return the status for people."""
        return f"{words(self.state)}: {words.clauses(self._clauses(words))}"

    def why_missing(self, words: Language) -> str:
        """Return why a planned variant has no trial."""
        return words("not begun yet" if self.state == "running" else "not begun: the run ended")

    def _clauses(self, words: Language) -> Iterator[str]:
        counts = {"good": self.good, "total": self.total}
        if self.unit == "trials" and self.state == "running":
            yield words("{good} of {total} trials good so far", **counts)
        elif self.unit == "trials":
            yield words("{good} of {total} trials good", **counts)
        elif self.unit == "answers":
            yield words("{good} of {total} answers", **counts)
        else:
            yield words("loads measured: {good}", good=self.good)
        if self.since is not None:
            when = f"{self.since:%Y-%m-%d %H:%M} UTC"
            yield words("since {when}" if self.state == "running" else "ended {when}", when=when)
        if self.reason:
            blame = f"{self.reason.blame}: " if self.reason.blame else ""
            yield blame + self.reason.text
        if self.state == "interrupted" and self.is_resumable:
            yield words("continue with `labctl resume {run}`", run=self.run)


def run_status(directory: RunDirectory) -> Status:
    """Return the status of a run of any kind. Raises ConfigError if its files cannot be read."""
    return replace(_status_of(directory), is_resumable=not directory.is_imported)


def _status_of(directory: RunDirectory) -> Status:
    if directory.is_evaluation:
        return _evaluation_status(EvaluationDirectory(directory), is_held=directory.is_held())
    if directory.is_load_test:
        return _load_test_status(directory)
    return timing_status(
        directory.run(),
        directory.trials(),
        directory.end(),
        directory.plan(),
        is_held=directory.is_held(),
    )


def timing_status(
    run: RunRecord,
    trials: Sequence[TrialRecord],
    end: RunEnd | None,
    plan: PlanRecord,
    *,
    is_held: bool = False,
) -> Status:
    """Return the status of a timing run. ``is_held``: a controller drives it."""
    planned = plan.due({trial.number for trial in trials})
    verdict = timing_verdict(run, end, trials)
    state = _state(end, verdict, is_held=is_held)
    reason = _early(end, is_held=is_held)
    if reason is None and state != "passed":
        reason = _of_trials(trials, end)
    return Status(
        run.id,
        state,
        good=len(good_trials(trials)),
        total=planned.total() or run.trials_planned,
        since=_since(run.started, end, is_held=is_held),
        reason=reason,
        planned=planned,
    )


def last_lines(failure: Failure) -> list[str]:
    """Return a program's last lines of standard error, and the console's, cut to be readable."""
    lines = [line.rstrip() for line in (failure.details or "").splitlines() if line.strip()]
    last = [*lines[-_MOST_LINES:], *(f"console: {line}" for line in failure.console_messages)]
    return [line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}…" for line in last]


def _state(end: RunEnd | None, verdict: str | None, *, is_held: bool) -> State:
    if end is None:
        return "running" if is_held else "interrupted"
    if end.state == "interrupted":
        return "interrupted"
    if verdict is None:
        return "imported"
    return "passed" if verdict == "passed" else "failed"


def _since(started: datetime, end: RunEnd | None, *, is_held: bool) -> datetime | None:
    if end is not None:
        return end.finished
    return started if is_held else None


def _early(end: RunEnd | None, *, is_held: bool) -> Reason | None:
    """Return why a run ended early; None for a run that is running or reached its end."""
    if end is None:
        return None if is_held else Reason("labctl was killed, or its host stopped", Blame.INFRA)
    return Reason.of(end.failure) if end.failure else None


def _of_trials(trials: Sequence[TrialRecord], end: RunEnd | None) -> Reason | None:
    """Return the first failure of the program, or else a missed gate, another failure, a skip."""
    failed = [(t, t.failure) for t in trials if t.state is TrialState.FAILED and t.failure]
    failed.sort(key=lambda pair: pair[1].blame is not Blame.JOB)
    missed = _missed(end)
    for trial, failure in failed:
        if missed is None or failure.blame is Blame.JOB:
            return Reason.of(failure, f"trial {trial.number}, {trial.variant}")
    if missed:
        return missed
    skipped = (t for t in trials if t.skip_reason)
    return next((Reason(f"{t.variant}: {t.skip_reason}") for t in skipped), None)


def _missed(end: RunEnd | None) -> Reason | None:
    missed = [gate for gate in end.gates if gate.passed is False] if end else []
    return next((Reason(f"gate missed: {one.sentence}", Blame.JOB) for one in missed), None)


def _evaluation_status(directory: EvaluationDirectory, *, is_held: bool) -> Status:
    record, end = directory.record(), directory.end()
    if end is None:
        kept = (one for one in directory.generations() if one.check is None)
        good = sum(one.failure is None for one in kept)
    else:
        good = end.answered
    return Status(
        record.id,
        _state(end, evaluation_verdict(end), is_held=is_held),
        good=good,
        total=max(end.planned if end else record.planned, good),
        since=_since(record.started, end, is_held=is_held),
        unit="answers",
        reason=_early(end, is_held=is_held) or _missed(end),
    )


def _load_test_status(directory: RunDirectory) -> Status:
    record, end, is_held = directory.serving(), directory.end(), directory.is_held()
    results = results_of(LoadTestDirectory(directory.path))
    loads = sum(bool(one.metrics and one.metrics.completed) for one in results.stages)
    return Status(
        record.id,
        _state(end, verdict_of(end), is_held=is_held),
        good=loads,
        total=loads,
        since=_since(record.started, end, is_held=is_held),
        unit="loads",
        reason=_early(end, is_held=is_held) or _missed(end),
    )
