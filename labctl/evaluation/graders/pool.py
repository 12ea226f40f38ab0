"""Worker processes that grade within limits of time and memory, since texts are hostile input.

A worker that exceeds a limit is ended and replaced; its text counts as wrong, with a note
(``time-limit``, ``memory-limit``), without effect on other texts. If a worker dies for another
reason, its text is retried once, and then gets the note ``crash``. The time limit is CPU time, so a
busy host does not change a grade.
"""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Self

from labctl import interrupts
from labctl.errors import HostError
from labctl.evaluation.graders.base import Grade
from labctl.evaluation.graders.worker import MEMORY_STATUS
from labctl.process import start, stop

#: Seconds that a worker may need to start, on a busy host.
START_TIMEOUT_S = 120.0
#: Items in flight per worker: enough to keep all workers busy, few enough to save memory.
AHEAD = 32
_READ_BYTES = 65_536
#: Interval in seconds at which a waiting worker checks for the end of the pool.
_LOOK_S = 0.2
CRASH = "crash"


@dataclass(frozen=True)
class Limits:
    """Limits of one grade: CPU seconds, bytes of memory, and total seconds.

    The total is for a grader that waits without CPU time; normally no grade reaches it.
    """

    cpu_s: int = 5
    memory_bytes: int = 1 << 30
    wall_s: float = 120.0


@dataclass(frozen=True)
class GradingItem:
    """One text for some graders. ``complete`` is False if a budget cut it."""

    text: str
    answer: str
    complete: bool
    graders: tuple[str, ...]


class GraderPool:
    """A pool of worker processes, each started on demand. For a ``with`` block.

    May be used from several threads.
    """

    def __init__(self, workers: int | None = None, *, limits: Limits | None = None):
        self._count = workers or len(os.sched_getaffinity(0))
        self._limits = limits or Limits()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads: list[_WorkerThread] = []
        self._waiting = threading.Semaphore(0)  # idle workers
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def submit(self, item: GradingItem) -> "Future[tuple[Grade, ...]]":
        """Start to grade; the future gets one grade per grader, or raises HostError."""
        task = _Task(item)
        if not item.graders:
            task.future.set_result(())
            return task.future
        with self._lock:
            if self._closed:
                raise ValueError("the pool is closed")
            if not self._waiting.acquire(blocking=False) and len(self._threads) < self._count:
                thread = _WorkerThread(self._tasks, self._waiting, self._limits)
                self._threads.append(thread)
                thread.start()
            self._tasks.put(task)
        return task.future

    def grade_all(self, items: Iterable[GradingItem]) -> Iterator[tuple[Grade, ...]]:
        """Yield the grades of each item, in the order of the items. Raises HostError."""
        under_way: deque[Future[tuple[Grade, ...]]] = deque()
        for item in items:
            under_way.append(self.submit(item))
            if len(under_way) >= AHEAD * self._count:
                yield interrupts.result(under_way.popleft())
        while under_way:
            yield interrupts.result(under_way.popleft())

    def close(self) -> None:
        """End all workers; pending grades are cancelled."""
        with self._lock:
            self._closed = True
            for thread in self._threads:
                thread.end()
            with suppress(queue.Empty):
                while task := self._tasks.get_nowait():
                    task.future.cancel()
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()


@dataclass
class _Task:
    item: GradingItem
    future: "Future[tuple[Grade, ...]]" = field(default_factory=Future)


class _Died(Exception):
    """The worker ended, or was ended, before it answered."""

    def __init__(self, note: str):
        super().__init__(note)
        self.note = note


class _WorkerThread(threading.Thread):
    """Thread that feeds one worker process, and replaces it when it dies."""

    def __init__(
        self,
        tasks: "queue.SimpleQueue[_Task | None]",
        waiting: threading.Semaphore,
        limits: Limits,
    ):
        super().__init__(name="grader", daemon=True)
        self._tasks, self._waiting, self._limits = tasks, waiting, limits
        self._worker: _Worker | None = None
        self._ending = threading.Event()

    def end(self) -> None:
        """End the thread; abandon a grade in progress."""
        self._ending.set()

    def run(self) -> None:
        """Grade until no more items come."""
        try:
            while task := self._tasks.get():
                if task.future.set_running_or_notify_cancel():
                    try:
                        task.future.set_result(tuple(self._grades(task.item)))
                    except Exception as error:  # the caller gets every error
                        task.future.set_exception(error)
                self._waiting.release()
        finally:
            if self._worker:
                self._worker.close()

    def _grades(self, item: GradingItem) -> Iterator[Grade]:
        left = item.graders
        crashed = False
        while left:
            if self._worker is None:
                self._worker = _Worker(self._limits, self._ending)
            try:
                self._worker.send(item, left)
                while left:
                    grade = self._worker.receive()
                    left, crashed = left[1:], False
                    yield grade
            except _Died as death:
                self._worker.close()
                self._worker = None
                if self._ending.is_set():
                    raise CancelledError from None
                if death.note == CRASH and not crashed:
                    crashed = True
                    continue
                yield Grade(None, correct=False, notes=("no-answer", death.note))
                left, crashed = left[1:], False


class _Worker:
    """One worker process."""

    def __init__(self, limits: Limits, ending: threading.Event):
        self._limits, self._ending = limits, ending
        self._buffer = b""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        words = [sys.executable, "-P", "-m", "labctl.evaluation.graders.worker"]
        words += [str(limits.cpu_s), str(limits.memory_bytes)]
        try:
            self._process = start(words, stdin=subprocess.PIPE, stderr=self._errors.fileno())
        except BaseException:
            self._errors.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        try:
            ready = self._line(START_TIMEOUT_S) == b"ready"
        except _Died:
            ready = False
        if not ready and not ending.is_set():
            self._errors.seek(0)
            details = self._errors.read().decode(errors="replace")
            self.close()
            raise HostError("a grader process does not start", details=details[-2000:])

    def send(self, item: GradingItem, graders: tuple[str, ...]) -> None:
        """Hand over a text. Raises _Died."""
        line = {"text": item.text, "answer": item.answer}
        request = json.dumps({**line, "complete": item.complete, "graders": graders})
        try:
            self._stdin.write(request.encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def receive(self) -> Grade:
        """Return the next grade. Raises _Died."""
        grade = json.loads(self._line(self._limits.wall_s))
        return Grade(grade["extracted"], grade["correct"], tuple(grade["notes"]))

    def _line(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if time.monotonic() > deadline:
                raise _Died("time-limit")
            if self._ending.is_set():
                raise _Died(CRASH)
            readable, _, _ = select.select([self._stdout], [], [], _LOOK_S)
            if readable:
                piece = os.read(self._stdout.fileno(), _READ_BYTES)
                if not piece:
                    raise self._death()
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> _Died:
        status = self._process.wait()
        if status == -signal.SIGXCPU:
            return _Died("time-limit")
        return _Died("memory-limit" if status == MEMORY_STATUS else CRASH)

    def close(self) -> None:
        """End the process if it still runs, and release its resources."""
        stop(self._process, grace=0.5)
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()
