"""Ctrl-C while many jobs run."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Lock

import pytest

from labctl.config.lab import Lab, LabFile
from labctl.database import DatabaseAway
from labctl.database.base import patiently
from labctl.farm.interrupts import on_interrupt
from labctl.farm.job import JobResult
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.queue_source import QueueSource
from labctl.state import Job, NewJob, lab_state


@pytest.fixture(autouse=True)
def _as_in_a_shell() -> Iterator[None]:
    """Whoever started the tests may have these ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(one, signal.default_int_handler) for one in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_is_told_and_the_second_raises(number: signal.Signals) -> None:
    told = Event()
    with on_interrupt(told.set):
        interrupt(number)
        assert told.wait(60)
        with pytest.raises(KeyboardInterrupt):
            interrupt(number)
    assert signal.getsignal(number) is signal.default_int_handler


def test_one_at_the_very_end_is_told_before_the_context_is_left() -> None:
    told: list[str] = []

    def tell() -> None:
        time.sleep(0.2)  # it takes its time
        told.append("told")

    with on_interrupt(tell):
        interrupt()
    assert told == ["told"]


def test_one_inside_a_lock_that_is_told_of_waits_for_it() -> None:
    lock, told = Lock(), Event()

    def tell() -> None:
        with lock:
            told.set()

    with on_interrupt(tell):
        with lock:
            interrupt()
        assert told.wait(60)


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with on_interrupt(lambda: pytest.fail("it was told")):
        interrupt(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def night(tmp_path: Path) -> LabExecutor:
    lab = LabFile(tmp_path, Lab(boards={}))
    return LabExecutor(lab, None, None, print, {})  # type: ignore[arg-type]


def test_ctrl_c_in_a_night_waits_for_the_runs_of_all_boards(tmp_path: Path) -> None:
    executor, done = night(tmp_path), []

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
        assert executor.stopping.wait(60)
        done.append(board)

    with pytest.raises(KeyboardInterrupt):
        executor.each(work, ["rk1", "rk2", "rk3"])
    assert sorted(done) == ["rk1", "rk2", "rk3"]


def test_the_first_error_of_a_night_stops_the_others_at_once(tmp_path: Path) -> None:
    executor = night(tmp_path)

    def work(board: str) -> None:
        if board == "rk2":
            raise OSError("no space")
        assert executor.stopping.wait(60)
        raise KeyboardInterrupt  # as `measure` does from then on

    with pytest.raises(OSError, match="no space"):
        executor.each(work, ["rk1", "rk2", "rk3"])


def test_an_error_of_a_night_is_not_hidden_by_ctrl_c(tmp_path: Path) -> None:
    executor = night(tmp_path)

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
        assert executor.stopping.wait(60)
        if board == "rk2":
            raise KeyboardInterrupt
        time.sleep(0.2)  # its error comes last
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        executor.each(work, ["rk1", "rk2", "rk3"])


def no_answer() -> None:
    raise DatabaseAway("no answer")


def queue_of(tmp_path: Path, *jobs: str) -> QueueSource:
    state = lab_state(LabFile(tmp_path, Lab(boards={})))
    for number, name in enumerate(jobs):
        state.jobs.submit(NewJob(name, {}, (f"rk{number}",)))
    boards = {f"rk{number}": () for number, _ in enumerate(jobs)}
    source = QueueSource(state, tmp_path / "runs", boards, {})
    source.stopping = Event()
    return source


def test_a_queue_that_is_to_end_waits_for_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, asked = queue_of(tmp_path), list[str]()

    def away() -> None:
        asked.append("asked")
        if len(asked) == 3:
            source.stopping.set()
        raise DatabaseAway("no answer")

    monkeypatch.setattr(source, "_give_sign", partial(patiently, away))
    with pytest.raises(KeyboardInterrupt):
        source.begin()
    assert asked == ["asked"] * 3


def test_a_queue_that_is_to_end_tells_a_database_that_is_away_of_no_further_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, asked = queue_of(tmp_path, "a", "b", "c"), list[str]()

    def away(job: Job, *_: object, **__: object) -> None:
        asked.append(job.name)
        source.stopping.set()
        patiently(no_answer)

    (first, _), *others = source.begin()
    monkeypatch.setattr(source._state.jobs, "finish", away)
    with pytest.raises(DatabaseAway, match="no answer"):
        source.end(first, JobResult(0, "run"))
    assert [source.end(job, JobResult(0, "run")) for job, _ in others] == [None, None]
    assert asked == [first.name]
