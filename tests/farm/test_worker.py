"""A host's worker, on SQLite and PostgreSQL: what it claims, and the ends that it reports."""

import itertools
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import NoReturn, cast

import pytest
from workers_made import Recorded, Started, looks_of, made_worker, new_job, start

from labctl.config.lab import Board, LabFile
from labctl.database.base import DatabaseAway, patiently
from labctl.errors import (
    Blame,
    BoardOutOfService,
    ConfigError,
    ExitStatus,
    HostError,
    ToolMissing,
)
from labctl.farm import worker as worker_module
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_executor import RunExecutor
from labctl.farm.worker import Worker
from labctl.retry import wait_until
from labctl.state import lease, sql
from labctl.state.groups import NewGroup
from labctl.state.health import Health, Healths
from labctl.state.job import NewJob
from labctl.state.jobs import Jobs
from labctl.state.state import LabState, lab_state
from labctl.transport.base import Transport


def test_a_worker_that_ends_with_the_queue_runs_what_its_boards_may_run(
    lab: LabFile, state: LabState
) -> None:
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk2", "rk1"), new_job("c", "rk9"))
    executor = Recorded()
    made_worker(lab, executor, "rk1", "rk2").run(until_empty=True)
    assert sorted(executor.ran) == [("a", "rk1"), ("b", "rk2")]
    assert {job.id: job.state for job in state.jobs.list(ended=9)} == {
        "a": "done",
        "b": "done",
        "c": "waiting",
    }
    assert not state.workers.list()


def test_infrastructure_that_broke_a_job_off_sends_it_to_another_board(
    lab: LabFile, state: LabState
) -> None:
    broken = JobResult(
        ExitStatus.INFRA, blame=Blame.INFRA, reason="link lost", is_board_broken=True
    )
    state.jobs.submit(new_job("a", "rk1", "rk2"))
    executor = Recorded({"a": [broken]})
    made_worker(lab, executor, "rk1", "rk2").run(until_empty=True)
    assert sorted(executor.ran) == [("a", "rk1"), ("a", "rk2")]
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.exit_status, job.attempts) == ("done", 0, 2)


def test_a_failed_program_is_the_jobs_and_is_not_tried_again(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(new_job("a", "rk1"))
    executor = Recorded({"a": [JobResult(1, blame=Blame.JOB, reason="SIGILL")]})
    made_worker(lab, executor, "rk1").run(until_empty=True)
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.exit_status, job.blame, job.reason) == ("done", 1, Blame.JOB, "SIGILL")


def test_a_board_of_somebody_else_is_left_alone(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(new_job("a", "rk1"))
    held = state.leases.acquire("rk1", purpose="debugging")
    executor = Recorded()
    worker = made_worker(lab, executor, "rk1")
    looks = looks_of(worker)
    thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    thread.start()
    assert wait_until(lambda: len(looks) > 5, timeout=60, interval=0.05)
    assert not executor.ran
    state.leases.release(held)
    thread.join(60)
    assert executor.ran == [("a", "rk1")]


def test_a_job_of_a_newer_labctl_stays_for_a_newer_worker(lab: LabFile, state: LabState) -> None:
    said: list[str] = []
    newer = NewJob("new", {"version": 2}, ("rk1",), id="new")
    state.jobs.submit(newer, new_job("known", "rk1"))
    executor = Recorded()
    worker = made_worker(lab, executor, "rk1")
    worker.understands, worker.note = lambda job: job.content["version"] == 1, said.append
    worker.run(until_empty=True)
    assert executor.ran == [("known", "rk1")]
    assert "job new (new) waits for a worker of a newer labctl" in said


def test_a_board_is_kept_for_the_one_that_waits_for_it_in_the_foreground(
    lab: LabFile, state: LabState, started: Started
) -> None:
    said: list[str] = []
    state.jobs.submit(new_job("shell", "rk1", runner="process"), new_job("queued", "rk1"))
    worker = made_worker(lab, executor := Recorded(), "rk1")
    worker.understands, worker.note = lambda job: job.kind == "run", said.append
    looks = looks_of(worker)
    start(started, worker)
    assert wait_until(lambda: len(looks) > 5, timeout=60, interval=0.05)
    assert executor.ran == []
    assert not [line for line in said if "newer labctl" in line]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_worker_that_is_stopped_makes_no_pause(
    lab: LabFile,
    state: LabState,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
    is_away: bool,
) -> None:
    """Also while it waits for a database that is away."""
    worker, looked = made_worker(lab, Recorded(), "rk1"), threading.Event()
    worker.look_seconds = 3600.0
    plain = Jobs.free_lost

    def free_lost(self: Jobs) -> None:
        looked.set()
        if is_away:
            patiently(_away)
        plain(self)

    monkeypatch.setattr(Jobs, "free_lost", free_lost)
    start(started, worker)
    assert looked.wait(60)
    worker.stop()
    started[0][1].join(60)
    assert not started[0][1].is_alive()
    assert state.workers.list() == []


def _away() -> NoReturn:
    raise DatabaseAway("no answer")


def test_a_running_worker_finds_a_job_and_ends_after_it(
    lab: LabFile, state: LabState, started: Started
) -> None:
    executor = Recorded()
    begun, go_on = threading.Event(), threading.Event()
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        begun.set()
        assert go_on.wait(60)
        return plain(job, board)

    executor.run = run  # type: ignore[method-assign]
    worker = made_worker(lab, executor, "rk1", host="lab2")
    start(started, worker)
    assert wait_until(lambda: bool(state.workers.list()), timeout=60, interval=0.05)
    (known,) = state.workers.list()
    assert (known.host, known.boards, known.is_alive) == ("lab2", ("rk1",), True)
    state.jobs.submit(new_job("a", "rk1"))
    assert begun.wait(60)
    state.jobs.submit(new_job("b", "rk1"))
    worker.stop()
    go_on.set()
    started[0][1].join(60)
    assert executor.ran == [("a", "rk1")]
    states = {job.id: job.state for job in state.jobs.list(ended=9)}
    assert states == {"a": "done", "b": "waiting"}
    worker.stop()
    assert executor.stopped.is_set()


def test_a_job_that_somebody_cancels_is_stopped_before_its_next_sign_of_life(
    lab: LabFile,
    state: LabState,
    started: Started,
) -> None:
    """Its board is well: the next job begins without a pause."""
    executor, told = Recorded(), threading.Event()
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        if job.id == "b":
            return plain(job, board)
        assert told.wait(lab.lease_seconds / 8), "the next sign is due after twice that"
        return JobResult(ExitStatus.INTERRUPTED)

    executor.run = run  # type: ignore[method-assign]
    worker = made_worker(lab, executor, "rk1")
    worker.away_seconds = 3600.0
    worker.stop_job = lambda _job: told.set()
    start(started, worker)
    state.jobs.submit(new_job("a", "rk1"))
    assert wait_until(lambda: state.jobs.find("a").state == "running", timeout=60, interval=0.05)
    state.jobs.cancel("a", "wrong model")
    assert wait_until(lambda: state.jobs.find("a").state == "cancelled", timeout=60, interval=0.05)
    assert state.jobs.find("a").reason == "wrong model"
    state.jobs.submit(new_job("b", "rk1"))
    assert wait_until(lambda: state.jobs.find("b").state == "done", timeout=20, interval=0.05)


def test_a_worker_whose_host_slept_does_not_take_its_own_jobs_for_lost(
    lab: LabFile,
    state: LabState,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, hours, executor = threading.Event(), itertools.count(1), Recorded()
    plain, began = executor.run, lease.steady_seconds()

    def run(job: FarmJob, board: str) -> JobResult:
        result = plain(job, board)
        assert go_on.wait(60)
        return result

    def after_sleep() -> float:
        """The time each time that somebody asks, an hour after the last; so all leases are over."""
        with state.changing() as connection:
            sql.update(connection, "job", {"state": "running"}, {"expires": 0.0})
        return began + 3600.0 * next(hours)

    executor.run = run  # type: ignore[method-assign]
    seldom = replace(lab, lease_seconds=3600.0)  # the thread of its signs has none to give
    start(started, made_worker(seldom, executor, "rk1", "rk2"))
    state.jobs.submit(new_job("a", "rk1", "rk2"))
    assert wait_until(lambda: len(executor.ran) == 1, timeout=60, interval=0.05)
    monkeypatch.setattr(worker_module, "steady_seconds", after_sleep)
    assert wait_until(lambda: next(hours) > 20, timeout=60, interval=0.2)
    monkeypatch.undo()
    go_on.set()
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=60, interval=0.05)
    assert state.jobs.find("a").attempts == len(executor.ran) == 1


def test_a_bug_in_the_loop_ends_the_worker_and_leaves_no_job_running(
    lab: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Recorded()

    def run(_job: FarmJob, _board: str) -> JobResult:
        monkeypatch.setattr(Worker, "_mend", lambda _worker: 1 // 0)
        assert executor.stopped.wait(60)
        return JobResult(ExitStatus.INTERRUPTED, reason="it was stopped")

    executor.run = run  # type: ignore[method-assign]
    state.jobs.submit(new_job("a", "rk1"))
    with pytest.raises(ZeroDivisionError):
        made_worker(lab, executor, "rk1").run()
    assert (state.jobs.find("a").state, state.jobs.find("a").failures) == ("waiting", 0)
    assert state.workers.list() == []


def test_a_bug_in_an_attempt_is_reported_at_once_and_frees_the_job(
    lab: LabFile, state: LabState, started: Started
) -> None:
    said: list[str] = []
    executor = Recorded()
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        result = plain(job, board)
        if job.id == "a":
            raise ZeroDivisionError("of the test")
        return result

    executor.run = run  # type: ignore[method-assign]
    worker = made_worker(lab, executor, "rk1", "rk2")
    worker.note, worker.away_seconds = said.append, 3600.0
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk2"))
    start(started, worker)
    done = lambda: (state.jobs.find("a").failures, state.jobs.find("b").state)  # noqa: E731
    assert wait_until(lambda: done() == (1, "done"), timeout=60, interval=0.05)
    job = state.jobs.find("a")
    assert (job.state, job.reason) == (
        "waiting",
        "a bug in labctl: ZeroDivisionError: of the test",
    )
    assert any("please report it" in line for line in said)
    assert any(line.startswith("Traceback") for line in said)


def test_a_job_whose_end_cannot_be_stored_is_given_back(
    lab: LabFile,
    state: LabState,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its worker would renew it for ever."""
    said: list[str] = []

    def finish(*_: object, **__: object) -> NoReturn:
        raise ConfigError("cannot store it")

    monkeypatch.setattr(Jobs, "finish", finish)
    worker = made_worker(lab, Recorded(), "rk1")
    worker.note = said.append
    state.jobs.submit(new_job("a", "rk1"))
    start(started, worker)
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=60, interval=0.05)
    job = state.jobs.find("a")
    assert (job.attempts, job.blame) == (3, Blame.INFRA)
    assert "its worker could not report its end" in str(job.reason)
    assert "the end of job a is not reported: cannot store it" in said


def test_a_lost_job_is_free_also_where_nobody_could_run_it_now(
    lab: LabFile, state: LabState, started: Started
) -> None:
    """Its user sees that it waits; a host that comes up finds it so."""
    executor, go_on = Recorded(), threading.Event()

    def run(job: FarmJob, _board: str) -> JobResult:
        assert go_on.wait(120)
        return JobResult(0, run=f"run-of-{job.id}")

    executor.run = run  # type: ignore[method-assign]
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk2"))
    assert state.jobs.claim(["rk2"], "dead")
    start(started, made_worker(lab, executor, "rk1"))
    try:
        assert wait_until(
            lambda: state.jobs.find("a").state == "running", timeout=60, interval=0.05
        )
        with state.changing() as connection:
            connection.exec_driver_sql("UPDATE job SET expires = 0 WHERE id = 'b'")
        assert wait_until(
            lambda: state.jobs.find("b").state == "waiting", timeout=60, interval=0.05
        )
        assert "gave no sign of life" in str(state.jobs.find("b").reason)
    finally:
        go_on.set()


@pytest.mark.parametrize("jump", [-86_400.0, 20 * 365 * 86_400.0])
def test_a_wall_clock_that_is_set_keeps_no_worker_from_its_work(
    lab: LabFile,
    state: LabState,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
    jump: float,
) -> None:
    """A host without a battery begins in 1970, and is told the time later."""
    executor = Recorded()
    start(started, made_worker(lab, executor, "rk1"))
    state.jobs.submit(new_job("a", "rk1"))
    assert wait_until(lambda: ("a", "rk1") in executor.ran, timeout=60, interval=0.05)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    state.jobs.submit(new_job("b", "rk1"))
    assert wait_until(lambda: ("b", "rk1") in executor.ran, timeout=60, interval=0.05)


def test_a_job_whose_earlier_run_cannot_be_fetched_is_given_back(
    lab: LabFile, state: LabState, started: Started
) -> None:
    """The disk is full: what is renewed for ever would never be anybody else's."""
    state.jobs.submit(new_job("a", "rk1"))

    class Full:
        def run_of(self, job: FarmJob) -> str | None:
            raise HostError(f"cannot write the run of {job.id}: No space left on device")

    def connect(board: Board) -> Transport:
        raise AssertionError

    executor = RunExecutor(lab, cast("QueueLedger", Full()), connect)
    start(started, Worker(state, "lab1", ["rk1"], executor))
    assert wait_until(lambda: state.jobs.find("a").failures == 1, timeout=60, interval=0.05)
    assert state.jobs.find("a").state == "waiting"


def test_a_database_that_is_away_when_a_board_broke_does_not_keep_the_job(
    lab: LabFile,
    state: LabState,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, is_board_broken=True)
    state.jobs.submit(new_job("a", "rk1"))
    plain, refused = Healths.want_check, [HostError("the database is away")]

    def want_check(self: Healths, board: str, reason: str) -> None:
        if refused:
            raise refused.pop()
        plain(self, board, reason)

    monkeypatch.setattr(Healths, "want_check", want_check)
    start(started, made_worker(lab, Recorded({"a": [broken]}), "rk1"))
    assert wait_until(lambda: state.jobs.find("a").failures == 1, timeout=60, interval=0.05)
    assert state.jobs.find("a").state == "waiting"


def test_a_lost_attempt_is_not_told_as_a_result(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(new_job("a", "rk1"))
    executor = Recorded()
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        """Take so long that another worker gets the job."""
        result = plain(job, board)
        with state.changing() as connection:
            connection.exec_driver_sql("UPDATE job SET expires = 0 WHERE id = 'a'")
        (again,) = lab_state(lab).jobs.claim(["rk1"], "other worker")
        assert again.attempts == 2
        return result

    executor.run = run  # type: ignore[method-assign]
    made_worker(lab, executor, "rk1").run(until_empty=True)
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.worker, job.run) == ("running", "other worker", None)


def test_a_sick_board_gets_no_job_and_a_broken_one_is_checked(
    lab: LabFile, state: LabState, started: Started
) -> None:
    """The check before the first job found it sick: the job waits for it, at no cost."""
    out = JobResult.of(BoardOutOfService("board rk1 is bad"))
    broken = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, reason="gone", is_board_broken=True)
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk2"))
    executor = Recorded({"a": [out], "b": [broken]})
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        if job.id == "a":
            state.health.set("rk1", Health.BAD, reason="slow", by="check")
        return plain(job, board)

    executor.run = run  # type: ignore[method-assign]
    worker = made_worker(lab, executor, "rk1", "rk2")
    looks = looks_of(worker)
    worker.away_seconds = 0.1
    start(started, worker)
    assert wait_until(lambda: state.jobs.find("b").state == "done", timeout=60, interval=0.05)
    before = len(looks)
    assert wait_until(lambda: len(looks) > before + 5, timeout=60, interval=0.05)
    assert sorted(executor.ran) == [("a", "rk1"), ("b", "rk2"), ("b", "rk2")]
    assert (state.jobs.find("a").state, state.jobs.find("a").failures) == ("waiting", 0)
    assert state.health.get("rk2").check_wanted_for == "job b broke there: gone"


def test_a_job_whose_process_stood_still_is_not_begun_twice_by_it(
    lab: LabFile, started: Started
) -> None:
    """It is taken for lost, as after a night in a closed laptop; another may have it then."""
    dying = replace(lab, lease_seconds=-1.0)
    state, executor, go_on = lab_state(dying), Recorded(), threading.Event()
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        result = plain(job, board)
        assert go_on.wait(60)
        return result

    executor.run = run  # type: ignore[method-assign]
    worker = made_worker(dying, executor, "rk1", "rk2")
    worker._signs_of_life = nullcontext  # type: ignore[method-assign, assignment]
    looks = looks_of(worker)
    state.jobs.submit(new_job("a", "rk1", "rk2"))
    start(started, worker)
    assert wait_until(lambda: len(looks) > 8, timeout=60, interval=0.05)
    assert executor.ran == [("a", "rk1")]
    go_on.set()


def test_what_a_worker_lacks_is_told_to_who_waits_in_the_foreground(
    lab: LabFile, state: LabState, started: Started
) -> None:
    state.jobs.submit(new_job("lacking", "rk1"), new_job("mine", "rk1", runner="process"))
    worker = made_worker(lab, Recorded(), "rk1")
    worker.lacks = lambda _job: "no llama-quantize"
    start(started, worker)
    assert wait_until(
        lambda: state.jobs.claim_own("mine", ["rk1"], "process") is not None,
        timeout=20,
        interval=0.1,
    )


def test_a_job_of_a_group_that_lacks_something_here_ends_with_that(
    lab: LabFile, state: LabState
) -> None:
    group = NewGroup("g", "batch", "night", "ann@pc")
    state.groups.own(group, "me", boards=["rk1"])
    state.jobs.submit(new_job("a", "rk1", group_id="g"))
    missing = JobResult.of(ToolMissing("no llama-quantize"))
    worker = made_worker(lab, Recorded({"a": [missing]}), "rk1")
    worker.group, worker.name = "g", "me"
    worker.lacks = lambda _job: "no llama-quantize"
    worker.is_over = lambda: state.jobs.find("a").state == "done"
    worker.run(until_empty=True)
    assert "no llama-quantize" in str(state.jobs.find("a").reason)
