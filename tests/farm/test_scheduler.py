"""The scheduler with real threads."""

import sys
import threading

import pytest

from labctl import process
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.schedule import Schedule
from labctl.farm.scheduler import Scheduler


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
    results = Scheduler(made("a", "b", "c"), Blocking(3)).run()
    assert {job: result.run for job, result in results.items()} == {
        "j0": "j0 on rk0",
        "j1": "j1 on rk1",
        "j2": "j2 on rk2",
    }


def test_a_bug_breaks_off_its_own_job_alone_and_is_not_hidden() -> None:
    executor = Blocking(1)
    source = made("bug", "a")
    attempts: list[JobResult] = []
    scheduler = Scheduler(
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
    source = made("waits")

    def interrupt(_job: FarmJob, _board: str) -> None:
        raise KeyboardInterrupt

    scheduler = Scheduler(source, executor, on_begin=interrupt)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run()
    assert [job.id for job in source.waiting] == []


INTERRUPTED = """
import os, random, signal, threading, time
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.schedule import Schedule
from labctl.farm.scheduler import Scheduler

class Short:
    def __init__(self):
        self.stopped = threading.Event()
    def run(self, job, board):
        self.stopped.wait(random.uniform(0, 0.004))
        return JobResult(0)
    def stop(self):
        self.stopped.set()

def interrupt():
    time.sleep(random.uniform(0.001, 0.02))
    os.kill(os.getpid(), signal.SIGINT)

boards = {f"rk{n}": () for n in range(6)}
for _ in range(300):
    source = Schedule(boards, {})
    source.add(*(FarmJob(str(n), "any", tuple(boards)) for n in range(60)))
    scheduler = Scheduler(source, Short())
    try:
        threading.Thread(target=interrupt).start()
        scheduler.run()
        time.sleep(60)
    except KeyboardInterrupt:
        pass
print("all ended")
"""


def test_ctrl_c_at_any_moment_loses_no_jobs_end() -> None:
    """It came between the end of a job and its note: that end was waited for for ever."""
    done = process.run([sys.executable, "-c", INTERRUPTED], timeout=120)
    assert done.text == "all ended\n", done.stderr
