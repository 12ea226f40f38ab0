"""Jobs that run recipes on real boards. Each run is in the thread of its job.

Only the record of a trial shows that it is done: a job continues a run that exists, and does not
repeat a finished run.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from labctl.build.plan import BuildRequest
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.database.base import patience
from labctl.errors import Blame, BoardBusy, ConfigError, ExitStatus, LabctlError
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_content import RunContent
from labctl.records.events import AnyEvent, Contact, Evaluation, LoadTest, Trial
from labctl.results.gates import CompareGates, leave_open
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.under_way import last_board
from labctl.runs.resume import ResumeRequest, resume
from labctl.runs.run import RunRequest, run_recipe
from labctl.runs.runner import Outcome
from labctl.transport.base import Transport
from labctl.units import counted

Connect = Callable[[Board], Transport]

#: Number of jobs that prepare their boards in parallel. With this limit the first of many jobs
#: start soon; without it all jobs would start together, and late. Preparing is mostly waiting for
#: the board.
READY_AT_ONCE = 8 * (os.cpu_count() or 1)
#: A job stops waiting for its turn after this time (s): the jobs before it send gigabytes.
_READY_SECONDS = 30.0
#: A waiting job checks for a stop request at this interval (s).
_LOOK_SECONDS = 1.0


class RunExecutor:
    """Runs recipes on the boards of a lab; ``readying`` jobs at once get their boards ready.

    Before each job ``before_job`` gets it and its board; it raises BoardOutOfService if the
    board may not work, and is retried while the database is away.
    """

    def __init__(
        self,
        lab: LabFile,
        ledger: QueueLedger,
        connect: Connect,
        *,
        compare: CompareGates = leave_open,
        build: Callable[[BuildRequest], object] | None = None,
        before_job: Callable[[FarmJob, str], None] = lambda _job, _board: None,
        readying: int = READY_AT_ONCE,
    ):
        self._lab = lab
        self._ledger = ledger
        self._connect = connect
        self._compare = compare
        self._build = build
        self._before_job = before_job
        self._readying = threading.Semaphore(readying)
        #: Set when all running jobs must end.
        self.stopping = threading.Event()
        self._stopped: set[str] = set()

    def stop(self) -> None:
        """End all running jobs soon; finished trials are kept."""
        self.stopping.set()

    def stop_job(self, job: str) -> None:
        """End one job soon."""
        self._stopped.add(job)

    def run(self, job: FarmJob, board: str) -> JobResult:
        """Run a job, or resume its run."""
        result = self._attempt(job, board)
        if not result.is_final:
            return result
        if job.untrusted and job.submitter is not None:
            from labctl.farm.untrusted_run import discard_files

            discard_files(self._lab.root, job.id)
        return result

    def _attempt(self, job: FarmJob, board: str) -> JobResult:
        began, watcher = time.monotonic(), _Watcher(self, job, board)
        if self._has_turn(job, began + _READY_SECONDS):
            watcher.on_ready = self._readying.release
        try:
            with patience(note=Observer(watcher).note, stopping=self.stopping):
                watcher.stop_if_wanted()
                noted = watcher.run = self._ledger.run_of(job)
                # An untrusted run checks the board's health itself.
                if not (job.untrusted or job.follows):
                    self._before_job(job, board)
                outcome = self._outcome(job, self._lab.board(board), noted, watcher)
        except LabctlError as error:
            return JobResult.of(error, watcher.run, time.monotonic() - began)
        except KeyboardInterrupt:
            return JobResult(ExitStatus.INTERRUPTED, watcher.run, reason="it was stopped")
        finally:
            watcher.ready()
        result = outcome if isinstance(outcome, JobResult) else _of(outcome)
        return replace(result, seconds=time.monotonic() - began)

    def _has_turn(self, job: FarmJob, until: float) -> bool:
        """Wait until ``until``, by the monotonic clock, to get the board ready."""
        while not self._readying.acquire(timeout=_LOOK_SECONDS):
            if self._is_to_stop(job) or time.monotonic() > until:
                return False
        return True

    def _outcome(
        self, job: FarmJob, board: Board, noted: str | None, watcher: "_Watcher"
    ) -> Outcome | JobResult:
        observer = Observer(watcher)
        if job.untrusted:
            return self._untrusted(job, board, noted, observer)
        if noted is not None and self._directory(noted).is_held():
            # An earlier attempt was suspended for a while and counted as dead, but still runs.
            raise BoardBusy(f"run {noted} of job {job.id} is active in another process or thread")
        before = None if noted is None else self._directory(noted)
        if before is not None and (before.is_evaluation or before.is_load_test):
            return self._served(job, board, before, watcher)
        if before is not None and before.is_planned:
            if (ended := _finished(before)) is not None:
                return ended
            try:
                again = ResumeRequest(
                    before,
                    board,
                    self._lab,
                    compare=self._compare,
                    build=self._build,
                    use=_use_of(job),
                )
                return resume(again, partial(self._connect, board), observer)
            except ConfigError as error:
                if error.is_of_host or last_board(before) == board.name:
                    raise
                observer.note(f"note: {error.message}; a new run begins on board {board.name}")
        request = self._request(job, board)
        if isinstance(request, RunContent):
            return self._served(job, board, None, watcher, request)
        return run_recipe(request, self._connect, observer)

    def _served(
        self,
        job: FarmJob,
        board: Board,
        before: RunDirectory | None,
        watcher: "_Watcher",
        content: RunContent | None = None,
    ) -> JobResult:
        """Run an evaluation or a load test, or resume an evaluation on its earlier board."""
        from labctl.farm import served_job

        observer = Observer(watcher)
        use = _use_of(job)
        if before is not None:
            if (ended := served_job.finished(before)) is not None:
                return ended
            if served_job.is_on(before, board):
                return served_job.resume_served(before, self._lab, self._connect, observer, use)
        content = content or self._content(job)
        assert not isinstance(content.recipe, Recipe)
        return served_job.run_served(
            content.recipe,
            board,
            self._lab,
            self._connect,
            observer,
            use=use,
        )

    def _untrusted(
        self, job: FarmJob, board: Board, noted: str | None, observer: Observer
    ) -> Outcome:
        """Run an untrusted job; an interrupted job starts again."""
        from labctl.farm.untrusted_run import (
            check_paths,
            inspection_of,
            look_if_due,
            run_untrusted,
        )

        ended = None if noted is None else _finished(self._directory(noted))
        if ended is not None:  # its files may be gone
            use = inspection_of(_use_of(job))
            look_if_due(self._lab, board, self._connect, observer, use)
            return ended
        request = self._request(job, board)
        assert isinstance(request, RunRequest)
        if job.submitter is not None:
            check_paths(request.recipe, self._lab.root, job.id)
        return run_untrusted(request, self._connect, observer)

    def _content(self, job: FarmJob) -> RunContent:
        content = self._ledger.content(job)
        content.check(self._lab.root)
        return content

    def _request(self, job: FarmJob, board: Board) -> RunRequest | RunContent:
        """Return the request for a timing run; of another kind of recipe its content."""
        content = self._content(job)
        if not isinstance(content.recipe, Recipe):
            return content
        return RunRequest(
            content.recipe,
            board,
            self._lab,
            compare=self._compare,
            build=None if job.untrusted else self._build,
            untrusted=job.untrusted,
            use=_use_of(job),
            night=content.night,
        )

    def _directory(self, run: str) -> RunDirectory:
        return RunDirectory(Path(self._lab.root) / "runs" / run)

    def _heard(self, job: FarmJob, board: str, event: AnyEvent) -> None:
        if isinstance(event, Contact | Evaluation | LoadTest):
            self._ledger.note_run(job, board, event.run)

    def _is_to_stop(self, job: FarmJob) -> bool:
        return self.stopping.is_set() or job.id in self._stopped


class _Watcher:
    """Reader of a run's events: records the run, and interrupts it once on a stop request.

    The interruption is raised in the thread of the run, like Ctrl-C in ``labctl run``.
    """

    def __init__(self, executor: RunExecutor, job: FarmJob, board: str):
        self._executor = executor
        self._job = job
        self._board = board
        self._is_stopping = False
        #: The last run of the job, as far as known.
        self.run: str | None = None
        #: Called once: when the board is ready, or when the job has ended before.
        self.on_ready: Callable[[], None] | None = None

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, Contact | Evaluation | LoadTest):
            self.run = event.run
        if isinstance(event, Trial | Evaluation | LoadTest):
            self.ready()
        self._executor._heard(self._job, self._board, event)
        self.stop_if_wanted()

    def ready(self) -> None:
        """Let the next job prepare its board."""
        on_ready, self.on_ready = self.on_ready, None
        if on_ready is not None:
            on_ready()

    def stop_if_wanted(self) -> None:
        """Raise KeyboardInterrupt, once, if the job must stop."""
        if not self._is_stopping and self._executor._is_to_stop(self._job):
            self._is_stopping = True
            raise KeyboardInterrupt


def _use_of(job: FarmJob) -> BoardUse:
    """Return the use of a board by a job; one without a submitter is in no lab's table."""
    queued = job.id if job.submitter else None
    return BoardUse(job.name, holder=job.submitter, job=queued, attempt=job.attempt)


def _finished(directory: RunDirectory) -> Outcome | None:
    """Return the end of a run; None if the run has not ended."""
    end = directory.end() if directory.is_planned else None
    if end is None or end.state != "finished":
        return None
    return Outcome(directory, directory.run(), tuple(directory.trials()), end.gates)


def _of(outcome: Outcome) -> JobResult:
    """Return the end of a timing run."""
    status = outcome.exit_status
    return JobResult(status, outcome.run.id, Blame.JOB if status else None, _reason(outcome))


def _reason(outcome: Outcome) -> str | None:
    """Return the first thing that went wrong in a run; None if nothing did."""
    for trial in outcome.trials:
        if trial.failure is not None:
            return f"trial {trial.number}: {trial.failure.message}"
    missed = [gate for gate in outcome.gates if gate.passed is False]
    return f"{counted(len(missed), 'gate')} missed" if missed else None
