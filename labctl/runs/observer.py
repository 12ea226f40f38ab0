"""Observation of a run: its reports become events, which readers show or store.

Reports on a running trial use files on its board's disk: nothing is measured for them. From the
board's first answer to the end the run's directory is held, and its ``events.jsonl`` gets the
reports, one per line (:class:`RunSession`).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from labctl.board.job import JobProgress, JobState, Started
from labctl.config.lab import Board
from labctl.engines.base import Engine, EngineParameters
from labctl.engines.progress import Seen
from labctl.errors import ExitStatus, InfraError, LabctlError
from labctl.figures.trials import token_time
from labctl.progress import Throughput
from labctl.records.board import Execution
from labctl.records.events import (
    AnyEvent,
    Contact,
    Deploy,
    End,
    Fetch,
    Loss,
    Note,
    Progress,
    RunState,
    Trial,
)
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventLog


@dataclass(frozen=True)
class TrialProgress:
    """A running trial. ``None``: not known, or not reported by the board.

    ``done`` of ``total`` in ``unit`` (tokens, lines, bytes); ``remaining_s`` is the remaining time
    at the rate so far. ``elapsed_s`` is from the program's start, by the board's clock.
    """

    phase: str
    elapsed_s: float | None = None
    done: int | None = None
    total: int | None = None
    unit: str = ""
    per_second: float | None = None
    temperature_mc: int | None = None
    remaining_s: float | None = None


#: Before the program starts.
GETTING_READY = TrialProgress("getting the board ready")


def trial_progress(
    engine: Engine[Any], parameters: EngineParameters, started: Started, look: JobProgress
) -> TrialProgress:
    """Return the progress of a trial from one look at its job."""
    elapsed_s = (look.mono_ns - started.start_mono_ns) / 1e9
    if look.state is not JobState.RUNNING:
        return TrialProgress("fetching its output", elapsed_s)
    sample = look.sample
    if sample is None or sample.stdout is None or sample.stderr is None:
        return TrialProgress("started", elapsed_s)
    seen = Seen(sample.stdout, sample.stderr, look.stderr_end or "")
    progress = engine.progress(seen, parameters)
    return TrialProgress(
        phase=progress.phase,
        elapsed_s=elapsed_s,
        done=progress.done,
        total=progress.total,
        unit=progress.unit,
        per_second=progress.per_second,
        temperature_mc=sample.hottest_mc,
        remaining_s=progress.remaining_s(look.mono_ns),
    )


def remaining_of_trial(progress: TrialProgress, expected_s: float | None) -> float | None:
    """Return the remaining time of a trial in s; None if unknown.

    Without information in its output, it is the time of a similar trial (``expected_s``), minus the
    time that the program ran on the board, without waits for the board or an earlier controller. An
    expected end in the past is not reported.
    """
    if progress.remaining_s is not None or expected_s is None:
        return progress.remaining_s
    left = expected_s - (progress.elapsed_s or 0.0)
    return left if left > 0 else None


#: Gets each event, in the thread that reports it.
Reader: TypeAlias = Callable[[AnyEvent], None]


class Observer:
    """Turns the reports of a run into events, and passes each to all readers."""

    def __init__(self, *readers: Reader):
        self._readers = list(readers)
        #: The current step, and its rate.
        self._step: tuple[str, Throughput] = ("", Throughput())
        self._trial: Trial | None = None
        #: True if a controller that ended early said how its run continues.
        self.has_told_way = False

    def tell(self, event: AnyEvent) -> None:
        """Pass an event to all readers."""
        for reader in tuple(self._readers):
            reader(event)

    @contextmanager
    def also(self, reader: Reader) -> Iterator[None]:
        """Add a reader until the context ends; it is called before the others."""
        self._readers.insert(0, reader)
        try:
            yield
        finally:
            self._readers.remove(reader)

    def note(self, text: str) -> None:
        """Report a line for people."""
        self.tell(Note(text=text))

    def tell_way(self, text: str) -> None:
        """Report how a run that ended early continues."""
        self.note(text)
        self.has_told_way = True

    def step(self, step: str, done: float, total: float | None) -> None:
        """Report a step on this host (download, hash, quantize); it ends when another begins."""
        self.tell(Fetch(step=step, done=done, total=total, **self._rate(step, done, total)))

    def sent(self, step: str, done: float, total: float | None) -> None:
        """Report the number of a file's bytes on the board."""
        self.tell(Deploy(step=step, done=done, total=total, **self._rate(step, done, total)))

    def _rate(self, step: str, done: float, total: float | None) -> dict[str, float | None]:
        if self._step[0] != step:
            self._step = (step, Throughput())
        now, known = time.monotonic(), self._step[1]
        per_second = known.per_second(now, done)
        return {"remaining_s": known.remaining_s(now, done, total), "per_second": per_second}

    def measuring(self, phase: str) -> None:
        """Report a step of a probe; it ends when another begins."""
        self.tell(Progress(phase=phase))

    def trial_started(
        self,
        trial: PlannedTrial,
        total: int,
        expected_s: float | None,
        run_remaining_s: float | None = None,
    ) -> None:
        """Report a trial, one of ``total``; the last similar trial took ``expected_s``.

        ``run_remaining_s`` is the expected time of this trial and all later trials.
        """
        self._trial = Trial(
            number=trial.number,
            trials=total,
            slug=trial.slug,
            variant=trial.variant.slug,
            state="started",
            expected_s=expected_s,
            run_remaining_s=run_remaining_s,
        )
        self.tell(self._trial)

    def trial_progress(self, progress: TrialProgress) -> None:
        """Report the trial's progress; the board is asked every few seconds."""
        trial = self._trial
        self.tell(
            Progress(
                number=trial and trial.number,
                phase=progress.phase,
                elapsed_s=trial and (time.monotonic_ns() - trial.mono_ns) / 1e9,
                remaining_s=remaining_of_trial(progress, trial.expected_s if trial else None),
                done=progress.done,
                total=progress.total,
                unit=progress.unit,
                per_second=progress.per_second,
                temperature_mc=progress.temperature_mc,
            )
        )

    def link_lost(self, error: InfraError) -> None:
        """Report that the link was lost during a trial and is retried; the job continues."""
        self.tell(Loss(text=error.message))

    def repeated(self, error: Exception) -> None:
        """Report that the board interrupted the trial, which will be repeated."""
        if self._trial:
            self.tell(
                Trial(
                    number=self._trial.number,
                    trials=self._trial.trials,
                    slug=self._trial.slug,
                    variant=self._trial.variant,
                    state="retrying",
                    reason=str(error),
                )
            )

    def trial_finished(self, record: TrialRecord, total: int) -> None:
        """Report a trial that is on disk."""
        self._trial = None
        states: dict[TrialState, Literal["ok", "failed", "skipped"]] = {
            TrialState.OK: "ok",
            TrialState.FAILED: "failed",
            TrialState.SKIPPED: "skipped",
        }
        self.tell(
            Trial(
                number=record.number,
                trials=total,
                slug=record.slug,
                variant=record.variant,
                state=states[record.state],
                token_ns=token_time(record),
                reason=record.skip_reason,
                failure=record.failure,
            )
        )


class RunSession:
    """A context in which one controller drives one run, on one board or on several in turn.

    From :meth:`begin` on the run's directory is held, and its events are written. The last event
    says how the controller left the run.
    """

    def __init__(self, observer: Observer):
        self._observer = observer
        self._stack = ExitStack()
        self._ended: End | None = None
        self.directory: RunDirectory | None = None

    def contact(
        self,
        directory: RunDirectory,
        recipe: str,
        board: Board,
        execution: Execution,
        resumed: int = 0,
    ) -> None:
        """Report that a board answered; from the first board on the run is held and recorded.

        Raises as :meth:`begin` does.
        """
        self.begin(directory)
        self._observer.has_told_way = False  # with the board before
        self._observer.tell(
            Contact(
                run=directory.path.name,
                recipe=recipe,
                board=board.name,
                target=board.target,
                execution=execution,
                resumed=resumed,
            )
        )

    def begin(self, directory: RunDirectory) -> None:
        """Hold a run's directory, once, and name it.

        Raises HostTimeout if another controller has it, and ConfigError if a controller finished
        it: events of a finished run are not changed.
        """
        if self.directory is None:
            self._stack.enter_context(directory.held())
            directory.refuse_if_finished()
            # Not an event: `labctl watch` knows the directory.
            self._observer.note(f"run directory: {directory.path}")
            log = EventLog(directory.path / EVENTS, self._observer.note)
            self._stack.enter_context(log)
            self._stack.enter_context(self._observer.also(log.write))
            self.directory = directory

    def finished(
        self, exit_status: int, state: RunState = "finished", failure: Failure | None = None
    ) -> None:
        """Note how a run ended whose controller raises no error for it."""
        self._ended = End(state=state, exit_status=exit_status, failure=failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with self._stack:
            if self.directory is None:
                return
            if isinstance(error, KeyboardInterrupt):
                self._tell_way(self.directory)
                if self._observer.has_told_way:
                    error.add_note("it was said how the run continues")
            self._observer.tell(_end(error, self._ended))
            if isinstance(error, Exception):  # readers have the file of events open
                self.directory.forget_if_refused(error)
            if isinstance(error, LabctlError) and self.directory.is_resumable:
                error.run = self.directory.path.name

    def _tell_way(self, directory: RunDirectory) -> None:
        """Say how to continue, unless already said."""
        if not directory.is_unfinished:
            self._observer.tell_way(f"the run has finished: labctl report {directory.path.name}")
        elif directory.is_resumable and not self._observer.has_told_way:
            self._observer.tell_way(f"to continue: labctl resume {directory.path.name}")


def _end(error: BaseException | None, ended: End | None) -> End:
    if error is None:
        known = ended or End(state="finished", exit_status=ExitStatus.OK)
        return End(state=known.state, exit_status=known.exit_status, failure=known.failure)
    if isinstance(error, Exception):
        status = error.exit_status if isinstance(error, LabctlError) else ExitStatus.INFRA
        return End(state="failed", exit_status=status, failure=Failure.of(error))
    return End(state="interrupted", exit_status=ExitStatus.INTERRUPTED)
