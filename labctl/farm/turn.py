"""The job of a process that uses a board itself: it waits in the lab's fair queue for the board."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labctl import interrupts
from labctl.database.base import patience
from labctl.errors import (
    BoardBusy,
    BoardOutOfService,
    ConfigError,
    ExitStatus,
    HostError,
    LabctlError,
    LeaseLost,
)
from labctl.runs.record.directory import RunDirectory, run_directories
from labctl.runs.record.under_way import last_board
from labctl.state.attempts import LEFT
from labctl.state.job import Job, NewJob, claimed_by, worker_name
from labctl.state.lease import StateLease, busy, steady_seconds
from labctl.state.state import LabState

LOOK_SECONDS = 2.0
#: A board that refused is retried after this time (s): only the refusal shows a holder from outside
#: this lab.
AGAIN_SECONDS = 10.0
#: Reason of a job whose process got Ctrl-C.
_INTERRUPTED = "its labctl was interrupted"
#: Number of the newest runs in which to look for the run that has a board now.
_RUNS = 20


@dataclass(frozen=True)
class Place:
    """A place in the queue; ``seconds`` until its turn, None if unknown."""

    number: int
    of: int
    seconds: float | None


class Turn:
    """The use of the first free board of some equal boards, by a job of this process.

    ``expected`` returns the expected time (s) of the job; called when other jobs may need it.
    ``on_place`` gets each new place, ``note`` other lines for people. ``in_use`` returns the error
    for a board that somebody else has. While the database is away, the job waits.
    """

    def __init__(
        self,
        state: LabState,
        lab_root: Path,
        job: NewJob,
        on_place: Callable[[Place], None],
        note: Callable[[str], None],
        *,
        expected: Callable[[], float | None] = lambda: None,
        in_use: Callable[[StateLease], BoardBusy] = busy,
        look_seconds: float = LOOK_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
    ):
        self._state = state
        self._root = lab_root
        self._new = job
        self._on_place = on_place
        self._note = note
        self._expected = expected
        self._in_use = in_use
        self._look_seconds, self._again_seconds = look_seconds, again_seconds
        self._worker = worker_name()
        self._reported: int | None = None
        #: The job in the state of its last claim.
        self._claimed: Job | None = None
        #: Board -> time of the retry after it refused, by the monotonic clock.
        self._refused: dict[str, float] = {}

    def take(
        self, use: Callable[[Job], int], is_refusal: type[LabctlError], *, waits: bool = True
    ) -> int:
        """Wait, use the board of the claimed job, and return what ``use`` returns.

        If the board refuses, wait again, unless a run had begun on it. Raises LeaseLost if somebody
        cancels the job, BoardOutOfService if no board may be used any more, what ``use`` raises,
        and, unless it ``waits``, BoardBusy if no board is free now.
        """
        refusal: LabctlError | None = None
        try:
            (job,) = self._state.jobs.submit(self._new)
            while True:
                claimed = self._claimed = self._look(job, job.boards)
                if claimed is None:
                    if not waits:
                        raise refusal or self._refusal(job)
                    self._report_place(job)
                    interrupts.sleep(self._look_seconds)
                    continue
                try:
                    with self._alive():
                        status = use(claimed)
                except is_refusal as error:
                    if error.run is not None:
                        self._end(claimed, error.exit_status, error)
                        raise
                    self._state.jobs.requeue(
                        claimed, error.message, blame_board=False, counted=False
                    )
                    if waits and refusal is None:
                        self._note(error.message)
                    refusal = error
                    self._refused[str(claimed.board)] = time.monotonic() + self._again_seconds
                    continue
                except LabctlError as error:
                    self._end(claimed, error.exit_status, error)
                    raise
                self._end(claimed, status)
                return status
        except (KeyboardInterrupt, LabctlError) as error:
            reason = error.message if isinstance(error, LabctlError) else _INTERRUPTED
            with interrupts.finishing() as signals:
                signals.hold()  # a job left behind keeps its board until the attempt expires
                with suppress(HostError, ConfigError), patience(0.0):  # it ends by itself soon
                    self._leave(self._new.id, reason)
            raise

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the board to others in this context; at its end wait for the same board again.

        Raises what :meth:`take` raises. An error ends the job, with the blame of the error.
        """
        claimed = self._claimed
        assert claimed is not None
        self._state.jobs.step_aside(claimed, "its inputs are fetched")
        try:
            yield
        except LabctlError as error:
            self._state.groups.give_up(
                [claimed.id], error.message, blame=error.blame, exit_status=error.exit_status
            )
            raise
        while self._look(claimed, (str(claimed.board),)) is None:
            self._report_place(claimed)
            interrupts.sleep(self._look_seconds)

    def _look(self, job: Job, boards: Sequence[str]) -> Job | None:
        untrusted = job.kind == "untrusted"
        working = self._state.health.working(boards, job.submitter, untrusted=untrusted)
        now, held = time.monotonic(), {lease.board for lease in self._state.leases.list()}
        free = [
            board for board in working if board not in held and self._refused.get(board, 0.0) <= now
        ]
        return self._state.jobs.claim_own(job.id, free, self._worker)

    def _refusal(self, job: Job) -> BoardBusy:
        """Return why a job does not get a board now."""
        for board in job.boards:
            try:
                self._state.health.require_work(board, job.submitter)
            except BoardBusy as error:  # an untrusted recipe has it
                return error
            except BoardOutOfService:
                pass
        for lease in self._state.leases.list():
            if lease.board in job.boards:
                return self._in_use(lease)
        for other in self._state.jobs.list():
            if other.state == "running" and other.board in job.boards:
                return claimed_by(other)
        now, place = self._state.jobs.get(job.id), place_of(self._state, self._root, job)
        why = now.reason if now is not None else None
        names = ", ".join(job.boards)
        return BoardBusy(why or f"{place.number - 1} jobs wait for {names} before this one")

    def _report_place(self, job: Job) -> None:
        if self._reported is None and (seconds := self._expected()) is not None:
            self._state.jobs.expect(job.id, seconds)
        place = place_of(self._state, self._root, job)
        if place.number != self._reported:
            self._on_place(place)
        self._reported = place.number

    def _end(self, job: Job, status: int, error: LabctlError | None = None) -> None:
        with suppress(LeaseLost):  # the database was away for long: the run's record counts
            blame, reason = (error.blame, error.message) if error else (None, None)
            self._state.jobs.finish(job, status, blame=blame, reason=reason)

    def _leave(self, job: str, reason: str) -> None:
        now = self._state.jobs.get(job)
        if now is not None and now.state == "waiting":
            self._state.jobs.cancel(job, reason)
        elif now is not None and now.state == "running" and now.stop is not None:
            status = ExitStatus.INTERRUPTED
            self._state.jobs.finish(now, status, reason=now.stop, state="cancelled")
        elif now is not None and now.state == "running":
            self._end(now, ExitStatus.INTERRUPTED)

    def _is_cancelled(self) -> bool:
        """Return True if somebody cancelled the job, also while others have the board."""
        job = self._claimed and self._state.jobs.get(self._claimed.id)
        if job is None:
            return False
        # If the database was away for long, the job left the queue by itself: its run counts.
        is_cancelled = job.state == "cancelled" and job.reason != LEFT
        return is_cancelled or (job.state == "running" and job.stop is not None)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Renew the job; its cancellation interrupts this process."""
        over = threading.Event()

        def renew() -> None:
            seconds = self._state.lease_seconds / 4
            due = steady_seconds() + seconds
            while not over.wait(self._look_seconds):
                with suppress(HostError), patience(0.0):
                    if steady_seconds() >= due:
                        self._state.jobs.renew(self._worker)
                        due = steady_seconds() + seconds
                    if self._is_cancelled():
                        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # by `&`
                        os.kill(os.getpid(), signal.SIGTERM if ignored else signal.SIGINT)
                        return

        thread = threading.Thread(target=renew, name="place in the queue")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def place_of(state: LabState, lab_root: Path, job: Job) -> Place:
    """Return the place of a waiting job among the jobs that wait for its boards."""
    boards, jobs, stopped = set(job.boards), state.jobs.list(), state.groups.stopped()
    waiting = [
        one
        for one in jobs
        if one.waits and one.group_id not in stopped and boards & set(one.boards)
    ]
    ahead = [one.id for one in waiting].index(job.id) if job.id in {w.id for w in waiting} else 0
    left = [_remaining(state, lab_root, jobs, board) for board in job.boards]
    before = [one.expected_seconds for one in waiting[:ahead]]
    known = [seconds for seconds in before if seconds is not None]
    soonest = min((seconds for seconds in left if seconds is not None), default=None)
    seconds = None
    if soonest is not None and len(known) == len(before):
        seconds = soonest + sum(known) / len(boards)
    return Place(ahead + 1, len(waiting), seconds)


def _remaining(state: LabState, lab_root: Path, jobs: Sequence[Job], board: str) -> float | None:
    """Return the remaining time (s) of the job or run on a board; None if unknown."""
    for job in jobs:
        if job.state == "running" and job.board == board and job.expected_seconds is not None:
            return max(0.0, job.expected_seconds - (state.jobs.now() - (job.started_at or 0.0)))
    for directory in reversed(run_directories(lab_root / "runs")[-_RUNS:]):
        if directory.is_held() and _board_of(directory) == board:
            run, plan = directory.run(), directory.plan()
            if plan.predicted_seconds is None:
                return None
            return max(0.0, plan.predicted_seconds - _age(run.started))
    return None


def _board_of(directory: RunDirectory) -> str | None:
    try:
        return last_board(directory)
    except ConfigError:
        return None  # moved away or damaged meanwhile


def _age(started: datetime) -> float:
    return (datetime.now(UTC) - started).total_seconds()
