"""The lab's queue as a source of a dispatcher: one host, the database that the lab has.

A job is claimed when its board is free, its health and holds allow the job's user, and its shared
limits have room. If this process counts as dead and its jobs went to another process, its later
reports on them are refused.
"""

import importlib.metadata
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from labctl.database import patience
from labctl.errors import HostError, LeaseLost
from labctl.farm.job import QUEUED_KINDS, FarmJob, JobResult
from labctl.farm.queue_ledger import RunsOfJobs
from labctl.farm.run_content import RunContent
from labctl.state import Job, LabState
from labctl.state.health import BoardHealth
from labctl.state.job import worker_name
from labctl.state.job_order import Suits, Waiting
from labctl.state.leases import steady_seconds


class QueueSource:
    """Jobs of the queue for the boards of this host, and the ledger of their runs.

    Args:
        runs: this host's run directories.
        boards: the served boards -> the shared limits of each.
        limits: how many jobs may use each shared limit at once.
        drain: end when no job waits for these boards.
    """

    def __init__(
        self,
        state: LabState,
        runs: Path,
        boards: Mapping[str, Sequence[str]],
        limits: Mapping[str, int],
        *,
        drain: bool = False,
    ):
        self.name = worker_name()
        self._state = state
        self._own_runs = RunsOfJobs(runs)
        self._boards = dict(boards)
        self._limits = dict(limits)
        self._drain = drain
        self._running: dict[str, Job] = {}
        self._away: set[str] = set()
        self._is_idle = False
        self._sign_due = 0.0
        #: The database did not answer when all jobs were to end.
        self._has_given_up = False
        #: Stops a running job; the executor's.
        self.on_stop: Callable[[str], None] = lambda _job: None
        #: Set when all running jobs must end; the executor's.
        self.stopping: Event | None = None
        #: Gets lines for people.
        self.note: Callable[[str], None] = lambda _line: None

    @property
    def is_over(self) -> bool:
        """True if this source is drained and has to end."""
        return self._drain and self._is_idle and not self._running

    def begin(self) -> list[tuple[FarmJob, str]]:
        """Claim jobs for the free boards; wait for a database that is away.

        Raises KeyboardInterrupt instead once all jobs must end.
        """
        with patience(note=self.note, stopping=self.stopping):
            return self._begin()

    def _begin(self) -> list[tuple[FarmJob, str]]:
        self._give_sign()
        if self._running:
            for job in self._state.jobs.to_stop(self.name):
                self.on_stop(job.id)
        wanted = self._wanted()
        busy = {job.board for job in self._running.values()} | self._away
        if not (free := wanted - busy):
            return []
        held = {lease.board for lease in self._state.leases.list()}
        claimed = self._state.jobs.claim(sorted(free - held), self.name, suits=self._suits)
        for job in claimed:
            self._running[job.id] = job
        return [(FarmJob.queued(job), str(job.board)) for job in claimed]

    def end(self, job: FarmJob, result: JobResult) -> JobResult | None:
        """Report the end of an attempt to the queue; wait for a database that is away.

        Raises DatabaseAway instead once all jobs must end. Then no further end is reported, and the
        next process that takes the jobs finds their runs.
        """
        ran = self._running.pop(job.id)
        if result.needs_pause:
            self._away.add(str(ran.board))
        if self._has_given_up:
            return None
        try:
            with patience(note=self.note, stopping=self.stopping):
                return self._finish_or_requeue(ran, result)
        except KeyboardInterrupt as interrupt:
            if interrupt.__cause__ is None:
                raise  # Ctrl-C itself
            self._has_given_up = True
            raise interrupt.__cause__ from None

    def _finish_or_requeue(self, ran: Job, result: JobResult) -> JobResult | None:
        with suppress(LeaseLost):  # this process counted as dead: another has the job
            if result.is_final:
                status, blame = result.exit_status, result.blame
                self._state.jobs.finish(ran, status, blame=blame, reason=result.reason)
                self._state.health.job_done(str(ran.board))
                return result
            now = self._state.jobs.get(ran.id)
            if now is not None and now.stop is not None and not result.is_counted:
                status = result.exit_status
                self._state.jobs.finish(ran, status, reason=now.stop, state="cancelled")
                return result
            again = self._state.jobs.requeue(
                ran,
                result.reason or "",
                blame_board=result.is_board_broken,
                counted=result.is_counted,
            )
            self._is_idle = False  # it was looked at while this job ran
            if again.state == "waiting":
                return None
            status = result.exit_status if again.exit_status is None else again.exit_status
            return replace(result, exit_status=status, blame=again.blame, reason=again.reason)
        return None

    def offer(self, board: str) -> None:
        """Let a board be used again."""
        self._away.discard(board)

    def close(self) -> None:
        """Remove this process from the workers."""
        with suppress(HostError), patience(0.0):  # it counts as gone soon
            self._state.workers.remove(self.name)
        self._sign_due = 0.0

    def has_work(self) -> bool:
        """Return whether a job waits for these boards."""
        self._wanted()
        return not self._is_idle

    def _wanted(self) -> set[str]:
        """Return the boards that jobs wait for; note if health excludes all but holders."""
        wanted = [one for one in self._state.jobs.wanted_boards() if one[0] in self._boards]
        known = {one.board: one for one in self._state.health.list()}
        self._is_idle = not any(
            self._may_do(known.get(board, BoardHealth(board)), kind) for board, kind in wanted
        )
        return {board for board, _kind in wanted}

    def _may_do(self, health: BoardHealth, kind: str) -> bool:
        """Return True if a board may do jobs of a kind, or may do so soon."""
        is_fit = kind in QUEUED_KINDS and health.may_do(kind)
        return is_fit or self._state.health.has_untrusted_use(health)

    def content(self, job: FarmJob) -> RunContent:
        """Return the content of a job. Raises ConfigError."""
        return RunContent.read(self._running[job.id].content)

    def run_of(self, job: FarmJob) -> str | None:
        """Return the finished run of a job, else its last run, as the database knows it.

        In a database restored from an older backup some are missing: the run directories have
        these.
        """
        claimed = self._running[job.id]
        run = self._own_runs.find(job.id, claimed.submitted_at, claimed.run)
        if run is not None and run != claimed.run:
            self.note_run(job, str(claimed.board), run)
        return run

    def note_run(self, job: FarmJob, board: str, run: str) -> None:  # noqa: ARG002 - it is known
        """Record the run of a job. Raises LeaseLost if somebody else now has the job."""
        attempt = self._running[job.id]
        with patience(note=self.note, stopping=self.stopping):
            self._running[job.id] = self._state.jobs.start(attempt, run)

    def _give_sign(self) -> None:
        now = steady_seconds()  # a host that slept renews its jobs before it gives any out
        if now < self._sign_due:
            return
        version = importlib.metadata.version("labctl")
        host, boards = socket.gethostname(), sorted(self._boards)
        self._state.workers.give_sign(self.name, host, boards, version)
        self._state.jobs.renew(self.name)
        self._sign_due = now + self._state.lease_seconds / 4

    def _suits(self) -> Suits:
        """Return a function: True if a job may have a board and the shared limits have room.

        Each True uses some of that room. A job of an unknown kind is left alone.
        """
        used = Counter(
            limit for job in self._running.values() for limit in self._boards[str(job.board)]
        )

        def suits(job: Waiting, board: str) -> bool:
            if not (job.is_foreground or job.kind in QUEUED_KINDS):
                return False
            if job.id in self._running:
                return False  # this process was suspended and counted as lost: the run continues
            limits = [one for one in self._boards[board] if one in self._limits]
            if any(used[limit] >= self._limits[limit] for limit in limits):
                return False
            used.update(limits)
            return True

        return suits
