"""Time inside the lab's write lock, and in all, of what the queue does: 2,000 jobs, 200 boards."""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labctl.config.lab import Lab, LabFile
from labctl.database.sqlite import SqliteDatabase
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState, lab_state

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
BOARDS, WAITING, ROUNDS = tuple(f"rk{number}" for number in range(200)), 2000, 30
USERS = ("ann@desk", "bob@desk", "carl@desk", "dora@desk")
#: A recipe as a job keeps it is about as large.
RECIPE = {"recipe": {"parameters": [f"parameter {number}" for number in range(200)]}}


class Lock:
    """The write lock: CPU time (s) of each transaction under it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.held: list[float] = []
        writing = SqliteDatabase.writing

        @contextmanager
        def measured(database: SqliteDatabase) -> Iterator[object]:
            with writing(database) as connection:
                began = time.thread_time()
                yield connection
                self.held.append(time.thread_time() - began)

        monkeypatch.setattr(SqliteDatabase, "writing", measured)

    def of(self, do: Callable[[], object]) -> tuple[float, float]:
        """Return the CPU time (s) of something: under the lock, and in all."""
        self.held, began = [], time.thread_time()
        do()
        return sum(self.held), time.thread_time() - began


def full_queue(state: LabState) -> None:
    """A job runs on each board, and all others wait for any of them."""
    jobs = [
        NewJob("q8", {**RECIPE, "number": number % 10}, BOARDS, submitter=USERS[number % 4])
        for number in range(len(BOARDS) + WAITING)
    ]
    state.jobs.submit(*jobs)
    state.workers.give_sign("worker", "lab1", BOARDS, "1")
    assert len(state.jobs.claim(BOARDS, "worker")) == len(BOARDS)


def test_time_under_the_write_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = lab_state(LabFile(tmp_path, Lab(boards={})))
    full_queue(state)
    (run,) = state.jobs.submit(NewJob("run", RECIPE, BOARDS, runner="process", priority=-1))
    lock = Lock(monkeypatch)
    found: dict[str, list[tuple[float, float]]] = {}

    def measured(what: str, do: Callable[[], object]) -> None:
        found.setdefault(what, []).append(lock.of(do))

    for number in range(ROUNDS):
        ran = next(job for job in state.jobs.list() if job.board == BOARDS[number])
        measured("finish", lambda ran=ran: state.jobs.finish(ran, 0))  # type: ignore[misc]
        board = [str(ran.board)]
        measured("look, a board is free", lambda b=board: look(state, run, b))  # type: ignore[misc]
        measured("claim", lambda b=board: claim(state, b))  # type: ignore[misc]
        measured("look, no board is free", lambda: look(state, run, ()))
        measured("claim in vain", lambda b=board: in_vain(state, b))  # type: ignore[misc]
        measured("list", state.jobs.list)
    for what, times in found.items():
        held, whole = (statistics.median(one) * 1000 for one in zip(*times, strict=True))
        print(f"\n{what}: {held:.2f} ms of {whole:.2f} ms under the lock", file=sys.stderr, end="")
    print(file=sys.stderr)


def look(state: LabState, run: Job, boards: object) -> None:
    """A waiting run, behind all others."""
    assert state.jobs.claim_own(run.id, boards, "run") is None  # type: ignore[arg-type]


def in_vain(state: LabState, boards: list[str]) -> None:
    assert state.jobs.claim(boards, "another") == []


def claim(state: LabState, boards: list[str]) -> None:
    assert len(state.jobs.claim(boards, "worker")) == 1
