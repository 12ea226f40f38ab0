"""Execution of a schedule: each running job in its own thread, or all in simulated time."""

import heapq
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Protocol

from labctl import interrupts
from labctl.errors import Blame, ExitStatus
from labctl.farm.interrupts import on_interrupt, raise_first
from labctl.farm.job import Executor, FarmJob, JobResult

#: A board where infrastructure failed, or that somebody else has, is retried after this (s).
AWAY_SECONDS = 15.0
#: Interval (s) between two looks for outside changes.
LOOK_SECONDS = 1.0

#: Gets a job, its board, how the attempt ended, and the job's result: None if it waits again.
OnEnd = Callable[[FarmJob, str, JobResult, JobResult | None], None]
OnBegin = Callable[[FarmJob, str], None]


class Source(Protocol):
    """Source of jobs: a :class:`labctl.farm.schedule.Schedule`, or the lab's queue."""

    @property
    def is_over(self) -> bool:
        """True if nothing runs, and nothing will run."""

    def begin(self) -> list[tuple[FarmJob, str]]:
        """Return the jobs that begin now, each with its board."""

    def end(self, job: FarmJob, result: JobResult) -> JobResult | None:
        """Note the end of an attempt; return the job's result, or None if it waits again."""

    def offer(self, board: str) -> None:
        """Allow the use of a board that failed, or that somebody else had."""


class Dispatcher:
    """Runs the jobs of a source until it is over; ``run`` may be called once.

    ``on_begin`` and ``on_end`` are called in the caller's thread. A job that they add runs too. A
    bug in one job ends only that job; the first error is raised when all jobs have ended.
    """

    def __init__(
        self,
        source: Source,
        executor: Executor,
        *,
        on_begin: OnBegin = lambda _job, _board: None,
        on_end: OnEnd = lambda _job, _board, _attempt, _result: None,
        away_seconds: float = AWAY_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ):
        self._source = source
        self._executor = executor
        self._on_begin = on_begin
        self._on_end = on_end
        self._away_seconds, self._look_seconds = away_seconds, look_seconds
        #: Gets an item after each end, and on an interrupt.
        self._woken: SimpleQueue[None] = SimpleQueue()
        #: Job -> its attempt until its end is recorded.
        self._attempts: dict[str, _Attempt] = {}
        #: Times at which boards are retried, with the boards.
        self._away: list[tuple[float, str]] = []
        self._is_interrupted = False
        #: The first one is raised when all jobs have ended; Ctrl-C only if there is no other.
        self._errors: list[BaseException] = []
        self.results: dict[str, JobResult] = {}

    def run(self) -> dict[str, JobResult]:
        """Return the results by job. On an early end, the running jobs are ended first.

        A second Ctrl-C may interrupt that: by then the jobs were asked to end.
        """
        with on_interrupt(self._interrupt):
            try:
                self._run_jobs()
            except BaseException as error:
                self._errors.append(error)
            self._end_all()
        if self._is_interrupted:
            self._errors.append(KeyboardInterrupt())
        raise_first(self._errors)
        return self.results

    def _run_jobs(self) -> None:
        while not (self._is_interrupted or self._source.is_over):
            self._offer_again()
            self._begin()
            self._note_ended()

    def _interrupt(self) -> None:
        self._executor.stop()
        self._is_interrupted = True
        self._woken.put(None)

    def _offer_again(self) -> None:
        now = time.monotonic()
        while self._away and self._away[0][0] <= now:
            self._source.offer(heapq.heappop(self._away)[1])

    def _begin(self) -> None:
        begun = [_Attempt(job, board) for job, board in self._source.begin()]
        self._attempts |= {attempt.job.id: attempt for attempt in begun}
        for attempt in begun:
            self._on_begin(attempt.job, attempt.board)
            threading.Thread(
                target=self._work, args=(attempt,), name=f"job {attempt.job.id}"
            ).start()

    def _work(self, attempt: "_Attempt") -> None:
        if not attempt.claim():
            return
        try:
            attempt.ended = self._executor.run(attempt.job, attempt.board)
        except Exception as error:  # a bug; raised in the thread of `run`
            attempt.ended = error
        except BaseException as error:  # SystemExit: its status is not one of labctl's
            attempt.ended = RuntimeError(f"{type(error).__name__} in job {attempt.job.id}")
            attempt.ended.__cause__ = error
        self._woken.put(None)

    def _note_ended(self) -> None:
        """Wait until an attempt has ended, or for a moment; note all that have ended."""
        with suppress(Empty):
            interrupts.get(self._woken, self._look_seconds)
            while True:
                self._woken.get_nowait()
        for attempt in list(self._attempts.values()):
            if attempt.ended is not None:
                del self._attempts[attempt.job.id]
                self._note(attempt.job, attempt.board, attempt.ended)

    def _end_all(self) -> None:
        """End the running jobs and record them all, even if one raises an error."""
        if self._attempts:
            self._executor.stop()
        for attempt in self._attempts.values():
            if attempt.claim():
                attempt.ended = JobResult(ExitStatus.INTERRUPTED, reason="it was stopped")
                self._woken.put(None)
        while self._attempts:
            try:
                self._note_ended()
            except Exception as error:
                self._errors.append(error)
                self._woken.put(None)  # others may have ended, too

    def _note(self, job: FarmJob, board: str, ended: JobResult | Exception) -> None:
        if isinstance(ended, Exception):
            self._errors.append(ended)
            reason = f"a bug in labctl: {type(ended).__name__}: {ended}"
            ended = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, reason=reason)
        if ended.needs_pause:
            heapq.heappush(self._away, (time.monotonic() + self._away_seconds, board))
        result = self._source.end(job, ended)
        if result is not None:
            self.results[job.id] = result
        self._on_end(job, board, ended, result)


class _Attempt:
    """A job on a board; an interrupt of the loop may come before its thread has begun."""

    def __init__(self, job: FarmJob, board: str):
        self.job, self.board = job, board
        #: How it ended; None before.
        self.ended: JobResult | Exception | None = None
        self._claimed = threading.Lock()

    def claim(self) -> bool:
        """Return True to the first caller: that one sets how the attempt ended."""
        return self._claimed.acquire(blocking=False)


def simulate(
    source: Source,
    executor: Executor,
    *,
    on_begin: Callable[[float, FarmJob, str], None] = lambda _at, _job, _board: None,
    on_end: Callable[[float, FarmJob, str, JobResult, JobResult | None], None] = (
        lambda _at, _job, _board, _attempt, _result: None
    ),
) -> float:
    """Run the jobs of a source in simulated time; return the seconds until it is over.

    Each attempt takes the ``seconds`` of its result. The callbacks get the moment as well.
    """
    now, numbers = 0.0, count()
    ends: list[tuple[float, int, FarmJob, str, JobResult]] = []
    away: list[tuple[float, str]] = []
    while not source.is_over:
        while away and away[0][0] <= now:
            source.offer(heapq.heappop(away)[1])
        for job, board in source.begin():
            on_begin(now, job, board)
            result = executor.run(job, board)
            heapq.heappush(ends, (now + result.seconds, next(numbers), job, board, result))
        if away and (not ends or away[0][0] < ends[0][0]):
            now = away[0][0]
            continue
        now, _, job, board, attempt = heapq.heappop(ends)
        if attempt.needs_pause:
            heapq.heappush(away, (now + AWAY_SECONDS, board))
        on_end(now, job, board, attempt, source.end(job, attempt))
    return now
