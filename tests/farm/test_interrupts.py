"""Ctrl-C while many jobs run."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Lock

import pytest
from workers_made import Recorded, Started, start

from labctl.config.lab import Lab, LabFile
from labctl.database.base import DatabaseAway, patiently
from labctl.farm.interrupts import on_interrupt
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.nightly.night_jobs import NightJobs
from labctl.farm.worker import Worker
from labctl.retry import wait_until
from labctl.state.job import Job, NewJob
from labctl.state.jobs import Jobs
from labctl.state.state import lab_state


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
    jobs = NightJobs(lab, "n1", "lab1", print, lambda *_: pytest.fail("nothing runs"))
    return LabExecutor(lab, None, jobs, print)  # type: ignore[arg-type]


def test_ctrl_c_in_a_night_waits_for_the_runs_of_all_boards(tmp_path: Path) -> None:
    executor, done = night(tmp_path), []

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
        assert executor.jobs.stopping.wait(60)
        done.append(board)

    with pytest.raises(KeyboardInterrupt):
        executor.each(work, ["rk1", "rk2", "rk3"])
    assert sorted(done) == ["rk1", "rk2", "rk3"]


def test_what_runs_is_not_broken_off_when_the_boards_of_a_night_end_after_each_other(
    tmp_path: Path,
) -> None:
    executor, calls = night(tmp_path), list[str]()

    class Serving:
        host, name = "lab1", "lab1:1:ab"

        def stop(self) -> None:
            calls.append("stop")

    executor.jobs._worker = Serving()  # type: ignore[assignment]

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
        assert executor.jobs.stopping.wait(60)
        raise KeyboardInterrupt  # as before its next run

    with pytest.raises(KeyboardInterrupt):
        executor.each(work, ["rk1", "rk2", "rk3"])
    assert calls == ["stop"]  # a second one would interrupt what runs on the other boards


def test_a_second_ctrl_c_in_a_night_breaks_off_the_runs_of_all_boards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, broken_off = night(tmp_path), Event()
    monkeypatch.setattr(executor.jobs, "break_off", broken_off.set)

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
            assert executor.jobs.stopping.wait(60)
            interrupt()
        assert broken_off.wait(60)

    with pytest.raises(KeyboardInterrupt):
        executor.each(work, ["rk1", "rk2", "rk3"])


def test_the_first_error_of_a_night_stops_the_others_at_once(tmp_path: Path) -> None:
    executor = night(tmp_path)

    def work(board: str) -> None:
        if board == "rk2":
            raise OSError("no space")
        assert executor.jobs.stopping.wait(60)
        raise KeyboardInterrupt  # as `measure` does from then on

    with pytest.raises(OSError, match="no space"):
        executor.each(work, ["rk1", "rk2", "rk3"])


def test_an_error_of_a_night_is_not_hidden_by_ctrl_c(tmp_path: Path) -> None:
    executor = night(tmp_path)

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
        assert executor.jobs.stopping.wait(60)
        if board == "rk2":
            raise KeyboardInterrupt
        time.sleep(0.2)  # its error comes last
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        executor.each(work, ["rk1", "rk2", "rk3"])


def no_answer() -> None:
    raise DatabaseAway("no answer")


def test_a_worker_whose_jobs_are_broken_off_waits_for_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    """Each end is reported once; the next worker finds the runs of the others."""
    state, asked, said = lab_state(LabFile(tmp_path, Lab(boards={}))), list[str](), list[str]()
    boards = [f"rk{number}" for number in range(3)]
    state.jobs.submit(*(NewJob(board, {}, (board,)) for board in boards))
    executor = Recorded()

    def run(_job: FarmJob, _board: str) -> JobResult:
        assert executor.stopped.wait(60)
        return JobResult(0, "run")

    def away(_self: Jobs, job: Job, *_: object, **__: object) -> None:
        asked.append(job.name)
        patiently(no_answer)

    executor.run = run  # type: ignore[method-assign]
    worker = Worker(state, "lab1", boards, executor, look_seconds=0.1)
    worker.note = said.append
    monkeypatch.setattr(Jobs, "start", away)
    start(started, worker)
    assert wait_until(lambda: len(state.jobs.attempts(worker.name)) == 3, timeout=60, interval=0.05)
    worker.stop()
    worker.stop()
    started[0][1].join(60)
    assert not started[0][1].is_alive()
    assert sorted(asked) == boards
    assert sum("is not reported: no answer" in line for line in said) == 3
