"""Runs of a night on boards of other hosts: jobs of the lab's queue, for those hosts' workers.

Both runs of a pair are put into the queue at once and wait for their turn like all jobs. When the
first begins, the night holds the board until the second has ended, so a night that is stopped or
killed separates no pair. Its journal has the jobs' ids: the same command waits for them again, or
finds them ended. The history of the board shows if somebody used it between the two runs; such a
pair does not count.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from labctl.checked import LONGEST_USE_SECONDS, SHORTEST_USE_SECONDS
from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.database import patience
from labctl.errors import (
    Blame,
    BoardBusy,
    BoardOutOfService,
    ConfigError,
    HostError,
    HostTimeout,
    LabctlError,
    ProgramFailed,
)
from labctl.farm.nightly.executor import Built
from labctl.farm.queue_engine import wake_workers
from labctl.farm.queue_ledger import share_inputs
from labctl.farm.run_archives import RunArchives, is_finished
from labctl.farm.run_content import RunContent
from labctl.farm.store import lab_store
from labctl.records.night import NightRow
from labctl.retry import retry_infra
from labctl.runs.planning.time_limits import longest_seconds
from labctl.runs.record.directory import RunDirectory
from labctl.state import Job, NewJob, lab_state
from labctl.state.events import this_user
from labctl.state.job import new_job_id
from labctl.state.leases import busy
from labctl.state.reservations import Reservation
from labctl.units import duration

#: Longest wait (s) for a board in use, if there is time; after that it counts as failed.
BUSY_SECONDS = 1800.0
_LOOK_SECONDS = 1.0
#: Time (s) to bring a build and models to a host and its board, besides both runs.
_HOLD_MARGIN_SECONDS = 300.0
#: Longest wait (s) for an unreachable shared store; a store failure repeats no measurement.
_STORE_SECONDS = 120.0
#: A pair's second run may have to begin after the night's time is over.
_LEAST_WAIT_SECONDS = 60.0
#: Key of a job's request: its night.
_NIGHT = "night"
_WITHDRAWN = "the night no longer waits for it"
T = TypeVar("T")


@dataclass
class QueuedRuns:
    """The jobs of one night.

    Args:
        lab: the lab, as this host has it.
        night: the night's id.
        host: name of this lab host: boards of other hosts are used by their workers.
        say: gets a line for each step.
        recipe: function that returns the recipe of a row, with its program.
        deadline: end of the night, in seconds since 1970.
        stopping: set when the night is to end.
        busy_seconds: longest wait for a board that others use.
        away_seconds: longest wait for a missing worker: its host may be restarting.
        hold_again_seconds: delay before a refused hold is requested again.
    """

    lab: LabFile
    night: str
    host: str
    say: Callable[[str], None]
    recipe: Callable[[NightRow, Built], Recipe]
    deadline: float = math.inf
    stopping: Event = field(default_factory=Event)
    busy_seconds: float = BUSY_SECONDS
    away_seconds: float = 180.0
    hold_again_seconds: float = 10.0
    #: Board -> when its worker was first missing, by the monotonic clock.
    _missed: dict[str, float] = field(default_factory=dict)
    #: Board -> when to hold it again, by the monotonic clock.
    _hold_due: dict[str, float] = field(default_factory=dict)
    #: Board -> why it could not be held.
    _hold_refused: dict[str, str] = field(default_factory=dict)
    #: Files that are in the shared store, by name and SHA-256.
    _shared: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Find the state and the store."""
        self._state, self._store = lab_state(self.lab), lab_store(self.lab)

    def serves(self, board: str) -> bool:
        """Return True if a board is attached to another host."""
        known = self.lab.lab.boards.get(board)
        return known is not None and known.host not in (None, self.host)

    def job(self, known: str | None) -> str:
        """Return the job of a run: the one that is known, unless the night took it back.

        A new one has an id that no job of the lab has.
        """
        if known is not None:
            found = self._get(known)
            # Its worker stops one that runs soon.
            words = {"running": found.stop, "cancelled": found.reason} if found else {}
            if found is None or words.get(found.state) != _WITHDRAWN:
                return known
        while self._get(new := new_job_id()) is not None:
            pass  # its run would be mistaken for this one's
        return new

    def run(
        self, row: NightRow, board: str, queued: Mapping[str, Built], began: Callable[[str], None]
    ) -> tuple[RunDirectory, float]:
        """Run the first of the jobs to its end; return its run, and how long it took (s).

        Raises BoardBusy where others keep the board, HostError where no worker serves it or the run
        cannot be fetched, ConfigError, ProgramFailed.
        """
        job = self._ended(row, board, queued, began)
        if job.state == "cancelled":
            raise HostError(f"job {job.id} was cancelled: {job.reason}")
        directory = self._fetched(job)
        if directory is None:
            where = f"job {job.id} on board {board} of host {self._host_of(board)}"
            problem = f"{job.reason or 'it has no run'} ({where})"
            kinds = {Blame.CONFIG: ConfigError, Blame.JOB: ProgramFailed}
            raise kinds.get(job.blame or Blame.INFRA, HostError)(problem)
        return directory, (job.ended_at or 0.0) - (job.started_at or 0.0)

    def withdraw(self, board: str, jobs: Sequence[str]) -> None:
        """Cancel the jobs that have not ended, and release the board if this night holds it."""
        try:
            with patience(0.0 if self.stopping.is_set() else None, note=self.say):
                for job in jobs:
                    with suppress(ConfigError):  # it has ended, or was never there
                        self._state.jobs.cancel(job, _WITHDRAWN)
                self._hold_due.pop(board, None)
                for one in self._state.reservations.in_force():
                    if (one.board, one.kind, one.reason) == (board, "hold", self._reason):
                        self._state.holds.release(board, by=this_user(), via="nightly")
        except LabctlError as error:  # it ends by itself
            self.say(f"board {board} is kept for this night a while longer: {error.message}")

    def parted(self, jobs: Sequence[str]) -> str | None:
        """Return who used the board between the runs of these jobs; None: nobody.

        A run begins when its job last took the board. Users before the first run, such as a health
        check, do not count, nor users after the last run, whose job may still have to store it.
        """
        found = [job for name in jobs if (job := self._get(name)) is not None]
        if len(found) < len(jobs):
            return "the database no longer has a job of the pair"
        began = min(job.submitted_at for job in found)
        ended = max(job.ended_at or math.inf for job in found)
        board = str(found[0].board)
        uses = self._retry_database(lambda: self._state.events.uses(board, began, ended))
        last = {str(event.details.get("job")): number for number, event in enumerate(uses)}
        runs = [last[job] for job in jobs if job in last]
        between = uses[min(runs) : max(runs)] if len(runs) == len(jobs) else uses
        for event in between:
            if event.damaged or not self._is_own(event.details.get("job")):
                return f"{event.made_by} used board {event.board} between its runs: {event.reason}"
        return None

    def _is_own(self, name: object) -> bool:
        job = self._get(name) if isinstance(name, str) else None
        return job is not None and job.content.get(_NIGHT) == self.night

    def away(self, board: str) -> str | None:
        """Return that no worker serves a board, after a wait; None: one does, or may soon."""
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

    @property
    def _reason(self) -> str:
        return f"night {self.night}"

    def _get(self, job: str) -> Job | None:
        return self._retry_database(lambda: self._state.jobs.get(job))

    def _retry_database(self, operation: Callable[[], T]) -> T:
        with patience(note=self.say, stopping=self.stopping):
            return operation()

    def _submit(self, row: NightRow, board: str, queued: Mapping[str, Built]) -> None:
        """Put the missing jobs into the queue, all at once."""
        new = [
            self._new(row, board, job, built)
            for job, built in queued.items()
            if self._get(job) is None
        ]
        if new:
            self._retry_database(lambda: self._state.jobs.submit(*new))
            wake_workers(self.lab, [board])

    def _new(self, row: NightRow, board: str, job: str, built: Built) -> NewJob:
        recipe = self.recipe(row, built)
        content = RunContent.of(recipe, self.lab.root)
        tools = content.build.tools if content.build else {}
        files = {*content.files.items(), *((name, tool.sha256) for name, tool in tools.items())}
        if not files <= self._shared:
            share_inputs(self.lab, self._store, content)
            self._shared |= files
        return NewJob(
            recipe.name,
            {**content.document(), _NIGHT: self.night},
            (board,),
            expected_seconds=row.seconds or recipe.max_time,
            max_seconds=longest_seconds(recipe, [self.lab.board(board)]),
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
            if self.stopping.is_set():
                raise KeyboardInterrupt
            job = self._get(name)
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
                until += looked - before  # it may have to wait again: its worker was lost
                self._retry_database(partial(self._keep, board, job))
            if error := self._overdue(job, board, until):
                self.withdraw(board, [name])
                raise error
            self.stopping.wait(_LOOK_SECONDS)

    def _overdue(self, job: Job, board: str, until: float) -> LabctlError | None:
        """Return why not to wait for a job any longer; None: continue to wait.

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

    def _keep(self, board: str, job: Job) -> None:
        """Hold the board for the rest of the pair, unless its user already holds it.

        Release it if it is now out of service.
        """
        if not self._state.health.get(board).may_work:
            self.withdraw(board, ())  # whoever looks what it has may hold it
            return
        now, wanted = time.monotonic(), 2 * job.max_seconds + _HOLD_MARGIN_SECONDS
        seconds = max(SHORTEST_USE_SECONDS, min(wanted, LONGEST_USE_SECONDS))
        if now < self._hold_due.get(board, -math.inf):
            return
        if any(one.reason != self._reason and one.lets_in(this_user()) for one in self._on(board)):
            self._hold_due[board] = now + self.hold_again_seconds
            return
        try:
            self._state.holds.hold(
                board,
                by=this_user(),
                via="nightly",
                reason=self._reason,
                seconds=seconds,
                program="nightly",
            )
        except BoardBusy as error:  # the history shows if somebody comes between
            if self._hold_refused.get(board) != error.message:
                self.say(f"board {board} is not kept for both runs of a pair: {error.message}")
            self._hold_refused[board] = error.message
            self._hold_due[board] = now + self.hold_again_seconds
        else:
            self._hold_due[board] = now + seconds / 2

    def _on(self, board: str) -> list[Reservation]:
        """Return the holds of a board, under whichever of its names."""
        reservations = self._state.reservations
        of_names = [one for name, one in reservations.of_leased() if name == board]
        of_name = [one for one in reservations.in_force() if one.board == board]
        return [one for one in (*of_name, *of_names) if one.kind == "hold"]

    def _fetched(self, job: Job) -> RunDirectory | None:
        """Return the finished run of a job; None if it has none. Raises HostError."""
        if job.run is None or job.blame in (Blame.INFRA, Blame.CONFIG):
            return None
        runs = Path(self.lab.root) / "runs"
        assert self._store is not None
        archives = RunArchives(self._store, self._state, runs)
        try:
            retry_infra(partial(archives.fetch, job.run), on=(HostError,), timeout=_STORE_SECONDS)
        except ConfigError as error:  # the shared store lost it, whatever the plan says
            raise HostError(f"run {job.run} cannot be fetched: {error.message}") from None
        directory = RunDirectory(runs / job.run)
        if directory.is_planned and is_finished(directory):
            return directory
        if job.blame is Blame.JOB:
            return None  # it failed before its trials
        raise HostError(
            f"run {job.run} is only on host {self._host_of(str(job.board))}: its worker"
            " sends it to the shared store when it starts again"
        )
