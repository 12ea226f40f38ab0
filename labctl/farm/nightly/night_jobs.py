"""Runs of a night: one group of jobs in the lab's table.

Both runs of a pair are a unit: they are added to the table at once, wait for their turn like all
jobs, and no other job gets the board between them. If the unit is interrupted between its runs, the
second run is cancelled and the night repeats the pair. The night runs its jobs on boards of this
host that no worker serves, and leaves the others to workers. Its journal has the jobs' ids: the
same command waits for these jobs again, or reads their ends.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

from labctl import interrupts
from labctl.config.lab import LabFile
from labctl.database.base import patience
from labctl.errors import (
    Blame,
    BoardBusy,
    BoardOutOfService,
    ConfigError,
    HostError,
    HostTimeout,
    LabctlError,
    ProgramFailed,
    ServiceAway,
    ToolMissing,
    passes_by_itself,
)
from labctl.evaluation.any_recipe import AnyRecipe, longest_seconds
from labctl.farm.nightly.executor import Built
from labctl.farm.queue_engine import wake_workers
from labctl.farm.queue_ledger import share_inputs
from labctl.farm.run_archives import RunArchives, is_finished
from labctl.farm.run_content import RunContent
from labctl.farm.store import lab_store
from labctl.farm.worker import Worker
from labctl.records.night import NightRow
from labctl.records.run import NightPart
from labctl.retry import retry_infra
from labctl.runs.record.directory import RunDirectory
from labctl.state.attempts import MOST_FAILURES
from labctl.state.events import this_user
from labctl.state.groups import NewGroup
from labctl.state.job import Job, NewJob, new_job_id
from labctl.state.lease import busy
from labctl.state.state import lab_state
from labctl.units import duration

#: Longest wait (s) for a board in use, if there is time; after that the run counts as failed.
BUSY_SECONDS = 1800.0
_LOOK_SECONDS = 1.0
#: Longest wait (s) for an unreachable shared store; a store failure does not repeat a measurement.
_STORE_SECONDS = 120.0
#: Minimum wait (s): a pair's second run may have to begin after the night's end.
_LEAST_WAIT_SECONDS = 60.0
_WITHDRAWN = "the night no longer waits for it"
T = TypeVar("T")


@dataclass
class NightJobs:
    """The jobs of one night.

    Args:
        lab: the lab, as this host has it.
        night: id of the night.
        host: name of this lab host; workers of other hosts use their boards.
        say: gets a line for each step.
        recipe: function that returns the recipe of a row, with its program.
        deadline: end of the night, in seconds since 1970.
        stopping: set when the night must end: no further run begins.
        busy_seconds: longest wait for a board that others use.
        away_seconds: longest wait for a missing worker: its host may be restarting.
    """

    lab: LabFile
    night: str
    host: str
    say: Callable[[str], None]
    recipe: Callable[[NightRow, Built], AnyRecipe]
    deadline: float = math.inf
    stopping: Event = field(default_factory=Event)
    busy_seconds: float = BUSY_SECONDS
    away_seconds: float = 180.0
    #: This night's own worker, and a function that raises the error that ended it early.
    _worker: Worker | None = None
    _check_worker: Callable[[], None] = lambda: None
    #: Lets only one caller stop the worker: a second stop would interrupt running jobs.
    _stopped: Lock = field(default_factory=Lock)
    #: Board -> time when its worker was first missing, by the monotonic clock.
    _missed: dict[str, float] = field(default_factory=dict)
    #: Files that are in the shared store, by name and SHA-256.
    _shared: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Find the state and the store."""
        self._state, self._store = lab_state(self.lab), lab_store(self.lab)

    @contextmanager
    def served(self, worker: Worker, name: str) -> Iterator[None]:
        """Own the night's group, and run its jobs with its own worker, until the context ends.

        Jobs that wait then stay for the next process of the night, which resumes interrupted jobs.
        ``name`` is the plan's name. Raises HostTimeout while another process owns the group.
        """
        group = NewGroup(self.night, "nightly", name, this_user(), restarts=True)
        # This host's lock of the plan is ours: who had it here before is dead.
        self._state.groups.own(
            group,
            worker.name,
            lambda owner: owner.startswith(f"{worker.host}:"),
            boards=worker.boards,
        )
        try:
            with worker.beside() as check:
                self._worker, self._check_worker = worker, check
                yield
        finally:
            self._leave(worker)

    def stop(self) -> None:
        """Let no new run of the night begin, on any host; running jobs finish.

        Further calls, by each board whose work ends then, change nothing.
        """
        self.stopping.set()
        if (worker := self._worker) is not None and self._stopped.acquire(blocking=False):
            worker.stop()
            self._leave(worker)

    def break_off(self) -> None:
        """Let no new run of the night begin, and interrupt running jobs on this host."""
        self.stopping.set()
        if self._worker is not None:
            self._worker.break_off()

    def _leave(self, worker: Worker) -> None:
        with suppress(HostError, ConfigError), patience(0.0):  # it expires by itself soon
            self._state.groups.leave(self.night, worker.name)

    def job(self, known: str | None) -> str:
        """Return the job of a run: the known job, or a new one if the night withdrew it.

        A new job has an id that no job of the lab has.
        """
        if known is not None:
            found = self._get(known)
            if found is None or not _is_withdrawn(found):
                return known
        while self._get(new := new_job_id()) is not None:
            pass  # its run would be taken for this job's run
        return new

    def has_begun(self, job: str) -> bool:
        """Return True if a job runs or has ended, and the night did not withdraw it."""
        found = self._get(job)
        return found is not None and found.state != "waiting" and not _is_withdrawn(found)

    def run(
        self, row: NightRow, board: str, queued: Mapping[str, Built], began: Callable[[str], None]
    ) -> tuple[RunDirectory, float]:
        """Run the first of the jobs to its end; return its run and the time it took (s).

        Raises BoardBusy if others keep the board, HostError if no worker serves it, the job was
        cancelled or the run cannot be fetched, ConfigError, ProgramFailed.
        """
        if self.stopping.is_set():
            raise KeyboardInterrupt
        job = self._ended(row, board, queued, began)
        if job.state == "cancelled":
            what = f"job {job.id} on board {board} was cancelled: {job.reason}"
            self.say(f"{what}; the night makes its pair of runs again")
            raise HostError(what)
        directory = self._fetched(job)
        if directory is None:
            where = f"job {job.id} on board {board} of host {self._host_of(board)}"
            problem = f"{job.reason or 'it has no run'} ({where})"
            kinds = {Blame.CONFIG: ConfigError, Blame.JOB: ProgramFailed}
            if kind := kinds.get(job.blame or Blame.INFRA):
                raise kind(problem)
            if job.attempts < MOST_FAILURES:  # further attempts do not help its host
                raise ToolMissing(problem)
            error = HostError(problem)
            raise error if job.broken else error.of_host()
        return directory, (job.ended_at or 0.0) - (job.started_at or 0.0)

    def withdraw(self, jobs: Sequence[str]) -> None:
        """Cancel the jobs that have not ended."""
        try:
            with patience(0.0 if self.stopping.is_set() else None, note=self.say):
                for job in jobs:
                    with suppress(ConfigError):  # it has ended, or never existed
                        self._state.jobs.cancel(job, _WITHDRAWN)
        except LabctlError as error:  # it does not begin without the night
            self.say(f"jobs of the night are not withdrawn: {error.message}")

    def away(self, board: str) -> str | None:
        """Return an error if no worker served a board for long; None if one does or may soon."""
        if self.lab.board(board).host in (None, self.host):
            return None  # the night itself serves it
        workers = self._retry_database(self._state.workers.list)
        serving = [worker for worker in workers if board in worker.boards]
        if any(worker.is_alive for worker in serving):
            self._missed.pop(board, None)
            return None
        now = time.monotonic()
        if now - self._missed.setdefault(board, now) < self.away_seconds:
            return None
        silent = min((worker.silent_seconds for worker in serving), default=None)
        since = "" if silent is None else f", last sign of life {duration(silent * 1e9)} ago"
        there = self._host_of(board)
        return f"no worker of host {there} serves board {board}{since}: start `labctl worker` there"

    def _host_of(self, board: str) -> str:
        return self.lab.board(board).host or self.host

    def _get(self, job: str) -> Job | None:
        return self._retry_database(lambda: self._state.jobs.get(job))

    def _retry_database(self, operation: Callable[[], T]) -> T:
        with patience(note=self.say, stopping=self.stopping):
            return operation()

    def _submit(self, row: NightRow, board: str, queued: Mapping[str, Built]) -> None:
        """Add the missing jobs to the queue, all at once."""
        new = [
            self._new(row, board, job, built, unit=next(iter(queued)))
            for job, built in queued.items()
            if self._get(job) is None
        ]
        if new:
            self._retry_database(lambda: self._state.jobs.submit(*new))
            wake_workers(self.lab, [board])

    def _new(self, row: NightRow, board: str, job: str, built: Built, *, unit: str) -> NewJob:
        recipe = self.recipe(row, built)
        found = RunContent.of(recipe, self.lab.root, target=self.lab.board(board).target)
        content = replace(found, night=NightPart(id=self.night, side=built.side))
        tools = content.build.tools if content.build else {}
        files = {*content.files.items(), *((name, tool.sha256) for name, tool in tools.items())}
        if not files <= self._shared:
            try:
                share_inputs(self.lab, self._store, content)
            except HostError as error:
                raise _of_store(error) from error
            self._shared |= files
        return NewJob(
            recipe.name,
            content.document(),
            (board,),
            expected_seconds=row.seconds or recipe.max_time,
            max_seconds=longest_seconds(recipe, [self.lab.board(board)]),
            group_id=self.night,
            unit=unit,
            id=job,
        )

    def _ended(
        self, row: NightRow, board: str, queued: Mapping[str, Built], began: Callable[[str], None]
    ) -> Job:
        """Wait for the end of the first job. Cancel it when giving up."""
        name = next(iter(queued))
        left = max(_LEAST_WAIT_SECONDS, self.deadline - time.time() - row.seconds)
        looked = time.monotonic()
        until, told = looked + min(self.busy_seconds, left), None
        self._submit(row, board, queued)
        while True:
            self._check_worker()
            job = self._get(name)
            if self.stopping.is_set() and (job is None or job.state == "waiting"):
                raise KeyboardInterrupt  # a run that has begun finishes
            if job is None:  # the database came back from an older backup
                self._submit(row, board, queued)
                continue
            if job.run is not None and job.run != told:
                began(job.run)
                told = job.run
            if job.state in ("done", "cancelled"):
                return job
            before, looked = looked, time.monotonic()
            if job.state == "running":
                until += looked - before  # its worker may be lost: then it waits again
            if error := self._overdue(job, board, until):
                self.withdraw([*queued])
                raise error
            interrupts.check()
            if self.stopping.wait(_LOOK_SECONDS):
                interrupts.sleep(_LOOK_SECONDS)

    def _overdue(self, job: Job, board: str, until: float) -> LabctlError | None:
        """Return why to stop waiting for a job; None: continue to wait.

        The job must begin before ``until``, by the monotonic clock.
        """
        if job.damaged or (away := self.away(board)):
            return HostError(f"job {job.id} is {job.damaged}" if job.damaged else str(away))
        if job.state == "waiting":
            try:
                self._retry_database(lambda: self._state.health.get(board)).require_work()
            except BoardOutOfService as error:
                return error
        if job.state == "waiting" and time.monotonic() > until:
            if lease := self._retry_database(lambda: self._state.leases.get(board)):
                return busy(lease, board)
            why = job.reason or "others came first"
            return BoardBusy(f"job {job.id} still waits for board {board}: {why}")
        if job.state == "running" and time.time() > self.deadline + job.max_seconds:
            return HostTimeout(f"job {job.id} on board {board} did not end in its time")
        return None

    def _fetched(self, job: Job) -> RunDirectory | None:
        """Return the finished run of a job; None without a finished run. Raises HostError."""
        if job.run is None or job.blame in (Blame.INFRA, Blame.CONFIG):
            return None
        runs = Path(self.lab.root) / "runs"
        if self._store is not None:
            fetch = partial(RunArchives(self._store, self._state, runs).fetch, job.run)
            try:
                retry_infra(fetch, on=(HostError,), timeout=_STORE_SECONDS)
            except ConfigError as error:  # the shared store lost it; do not blame the plan
                raise HostError(f"run {job.run} cannot be fetched: {error.message}") from None
            except HostError as error:
                raise _of_store(error) from error
        directory = RunDirectory(runs / job.run)
        if directory.is_planned and is_finished(directory):
            return directory
        if job.blame is Blame.JOB:
            return None  # it failed before its trials
        raise HostError(
            f"run {job.run} is only on host {self._host_of(str(job.board))}: its worker"
            " sends it to the shared store when it starts again"
        )


def _of_store(error: HostError) -> HostError:
    """Return ServiceAway for an error of a store that does not answer; other errors unchanged."""
    if not passes_by_itself(error):
        return error
    return ServiceAway(error.message, hint=error.hint, details=error.details)


def _is_withdrawn(job: Job) -> bool:
    """Return True if the night withdrew a job; its worker soon stops a running one."""
    return {"running": job.stop, "cancelled": job.reason}.get(job.state) == _WITHDRAWN
