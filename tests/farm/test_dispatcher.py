"""The scheduler with real threads."""

import os
import signal
import sys
import threading

import pytest

from labctl import process
from labctl.farm.dispatcher import Dispatcher
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.schedule import Schedule


class Blocking:
    """An executor whose jobs run until they are let go, or the scheduler stops."""

    def __init__(self, at_once: int) -> None:
        self.together = threading.Barrier(at_once)
        self.stopped = threading.Event()

    def run(self, job: FarmJob, board: str) -> JobResult:
        self.together.wait(60)
        if job.name == "waits":
            self.stopped.wait(60)
            return JobResult(130)
        if job.name == "bug":
            raise ZeroDivisionError
        return JobResult(0, run=f"{job.id} on {board}")

    def stop(self) -> None:
        self.stopped.set()


def made(*names: str) -> Schedule:
    boards = [f"rk{n}" for n, _ in enumerate(names)]
    schedule = Schedule(dict.fromkeys(boards, ()), {})
    schedule.add(*(FarmJob(f"j{n}", name, (boards[n],)) for n, name in enumerate(names)))
    return schedule


def test_jobs_of_several_boards_run_at_once() -> None:
    results = Dispatcher(made("a", "b", "c"), Blocking(3)).run()
    assert {job: result.run for job, result in results.items()} == {
        "j0": "j0 on rk0",
        "j1": "j1 on rk1",
        "j2": "j2 on rk2",
    }


def test_a_bug_breaks_off_its_own_job_alone_and_is_not_hidden() -> None:
    executor = Blocking(1)
    source = made("bug", "a")
    attempts: list[JobResult] = []
    scheduler = Dispatcher(
        source,
        executor,
        on_end=lambda _j, _b, one, _r: attempts.append(one),
        away_seconds=0.05,
        look_seconds=0.02,
    )
    with pytest.raises(ZeroDivisionError):
        scheduler.run()
    assert scheduler.results["j1"].exit_status == 0
    assert scheduler.results["j0"].exit_status == 3
    assert [one.reason for one in attempts].count("a bug in labctl: ZeroDivisionError: ") == 3


def test_ctrl_c_ends_the_running_jobs_before_it_is_passed_on() -> None:
    executor = Blocking(1)
    source = made("waits", "waits")

    def interrupt(_job: FarmJob, _board: str) -> None:
        raise KeyboardInterrupt

    ended: list[JobResult] = []
    scheduler = Dispatcher(
        source, executor, on_begin=interrupt, on_end=lambda _j, _b, one, _r: ended.append(one)
    )
    with pytest.raises(KeyboardInterrupt):
        scheduler.run()
    # Neither had begun; the source knows that they wait again.
    assert [one.exit_status for one in ended] == [130, 130]
    assert [job.id for job in source.waiting] == ["j0", "j1"]


def test_ctrl_c_at_the_end_of_the_last_job_is_passed_on() -> None:
    """The queue would go on with the next job, and stop it at once, again and again."""
    scheduler = Dispatcher(
        made("a"),
        Blocking(1),
        on_end=lambda _j, _b, _one, _r: os.kill(os.getpid(), signal.SIGINT),
    )
    with pytest.raises(KeyboardInterrupt):
        scheduler.run()
    assert scheduler.results.keys() == {"j0"}


def test_an_error_of_the_caller_ends_the_running_jobs_and_all_of_them_are_noted() -> None:
    executor = Blocking(3)
    ended: list[str] = []

    def full(job: FarmJob, _board: str, _attempt: JobResult, _result: JobResult | None) -> None:
        ended.append(job.id)
        raise OSError(f"no space for {job.id}")

    scheduler = Dispatcher(made("a", "waits", "waits"), executor, on_end=full)
    with pytest.raises(OSError, match="no space for j0"):
        scheduler.run()
    assert sorted(ended) == ["j0", "j1", "j2"]


def test_an_error_while_ctrl_c_ends_the_jobs_is_not_hidden() -> None:
    def interrupt(_job: FarmJob, _board: str) -> None:
        raise KeyboardInterrupt

    def full(_job: FarmJob, _board: str, _attempt: JobResult, _result: JobResult | None) -> None:
        raise OSError("no space")

    scheduler = Dispatcher(made("a"), Blocking(1), on_begin=interrupt, on_end=full)
    with pytest.raises(OSError, match="no space"):
        scheduler.run()


def test_a_program_that_ends_its_thread_is_a_bug_and_is_not_waited_for() -> None:
    class Leaving(Blocking):
        def run(self, job: FarmJob, board: str) -> JobResult:
            sys.exit(5)

    scheduler = Dispatcher(made("a"), Leaving(1), away_seconds=0.01, look_seconds=0.01)
    with pytest.raises(RuntimeError, match="SystemExit in job j0"):
        scheduler.run()
    assert scheduler.results["j0"].blame == "infra"


INTERRUPTED = """
import os, random, signal, threading, time
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.schedule import Schedule
from labctl.farm.dispatcher import Dispatcher

class Short:
    def __init__(self):
        self.stopped = threading.Event()
    def run(self, job, board):
        self.stopped.wait(random.uniform(0, 0.004))
        return JobResult(0)
    def stop(self):
        self.stopped.set()

def interrupt():
    time.sleep(random.uniform(0.001, 0.02))  # the moment, wherever the scheduler is
    os.kill(os.getpid(), signal.SIGINT)

boards = {f"rk{n}": () for n in range(6)}
for _ in range(300):
    source = Schedule(boards, {})
    source.add(*(FarmJob(str(n), "any", tuple(boards)) for n in range(60)))
    open_ = set()
    scheduler = Dispatcher(
        source,
        Short(),
        on_begin=lambda job, _board: open_.add(job.id),
        on_end=lambda job, _board, _attempt, _result: open_.remove(job.id),
    )
    try:
        threading.Thread(target=interrupt).start()
        scheduler.run()
        time.sleep(60)  # Ctrl-C ends it, if it came late
    except KeyboardInterrupt:
        pass
    assert not open_ and not source._running
print("all ended")
"""


def test_ctrl_c_at_any_moment_loses_no_jobs_end() -> None:
    """One came between the end of a job and its note: that end was waited for for ever."""
    done = process.run([sys.executable, "-c", INTERRUPTED], timeout=120)
    assert done.text == "all ended\n", done.stderr
