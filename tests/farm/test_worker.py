"""Workers of several hosts: dispatch by the engine, ends that are told, drained, left jobs."""

import gc
import itertools
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest
from artifacts_made import make_artifact
from farm_lab import write_farm
from postgres_server import PostgresServer, lab_in
from tiny_gguf import write_tiny_gguf

from labctl import process
from labctl.config.lab import Board, Lab, LabFile, find_lab
from labctl.config.target import load_target
from labctl.deploy.plan import agent_artifact
from labctl.errors import Blame, ConfigError, ExitStatus, HostError, ToolMissing
from labctl.farm import run_executor
from labctl.farm import worker as worker_module
from labctl.farm.host_lacks import HostLacks
from labctl.farm.host_setup import host_worker, missing_tools
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_engine import SERVE, QueueEngine, queue_of
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_content import RunContent
from labctl.farm.run_executor import RunExecutor, RunLedger
from labctl.farm.worker import HostWorker
from labctl.results.gates import leave_open
from labctl.retry import wait_until
from labctl.runs import read_recipe
from labctl.state import Health, LabState, NewJob, lab_state, leases, sql
from labctl.state.health import Healths
from labctl.transport import Transport
from labctl.transport.registry import TRANSPORTS


class Recorded:
    """An executor that notes what it was to run; each job has its results in turn."""

    def __init__(self, results: dict[str, list[JobResult]] | None = None) -> None:
        self.ran: list[tuple[str, str]] = []
        self.results = results or {}
        self.stopped = threading.Event()

    def run(self, job: FarmJob, board: str) -> JobResult:
        self.ran.append((job.id, board))
        if left := self.results.get(job.id):
            return left.pop(0)
        return JobResult(0, run=f"run-of-{job.id}")

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def lab(postgres: PostgresServer, tmp_path: Path) -> LabFile:
    return LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def _job(name: str, *boards: str, **more: object) -> NewJob:
    return NewJob(name, {"version": 1}, boards, id=name, **more)  # type: ignore[arg-type]


def _worker(lab: LabFile, executor: Recorded, *boards: str, host: str = "lab1") -> HostWorker:
    return HostWorker(QueueEngine(lab), lab_state(lab), host, boards, executor)


def test_a_drained_worker_runs_what_its_boards_may_run(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(_job("a", "rk1"), _job("b", "rk2", "rk1"), _job("c", "rk9"))
    executor = Recorded()
    _worker(lab, executor, "rk1", "rk2").run(drain=True)
    assert sorted(executor.ran) == [("a", "rk1"), ("b", "rk2")]
    assert {job.id: job.state for job in state.jobs.list(ended=9)} == {
        "a": "done",
        "b": "done",
        "c": "waiting",
    }
    assert not state.workers.list()


@pytest.fixture
def started() -> Iterator[list[tuple[HostWorker, threading.Thread]]]:
    """Workers that run in threads of this process; they are stopped at the end."""
    workers: list[tuple[HostWorker, threading.Thread]] = []
    yield workers
    for worker, thread in workers:
        worker.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_infrastructure_that_broke_a_job_off_sends_it_to_another_board(
    lab: LabFile, state: LabState
) -> None:
    broken = JobResult(
        ExitStatus.INFRA, blame=Blame.INFRA, reason="link lost", is_board_broken=True
    )
    state.jobs.submit(_job("a", "rk1", "rk2"))
    executor = Recorded({"a": [broken]})
    _worker(lab, executor, "rk1", "rk2").run(drain=True)
    _worker(lab, executor, "rk1", "rk2").run(drain=True)
    assert sorted(executor.ran) == [("a", "rk1"), ("a", "rk2")]
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.exit_status, job.attempts) == ("done", 0, 2)


def test_a_failed_program_is_the_jobs_and_is_not_tried_again(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(_job("a", "rk1"))
    executor = Recorded({"a": [JobResult(1, blame=Blame.JOB, reason="SIGILL")]})
    _worker(lab, executor, "rk1").run(drain=True)
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.exit_status, job.blame, job.reason) == ("done", 1, Blame.JOB, "SIGILL")


def test_a_board_of_somebody_else_is_left_alone(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(_job("a", "rk1"))
    held = state.leases.acquire("rk1", purpose="debugging")
    executor = Recorded()
    _worker(lab, executor, "rk1").run(drain=True)
    assert not executor.ran
    state.leases.release(held)
    _worker(lab, executor, "rk1").run(drain=True)
    assert executor.ran == [("a", "rk1")]


def test_a_job_of_a_newer_labctl_stays_for_a_newer_worker(lab: LabFile, state: LabState) -> None:
    said: list[str] = []
    state.jobs.submit(_job("new", "rk1"), _job("known", "rk1"))
    executor = Recorded()
    worker = _worker(lab, executor, "rk1")
    worker.understands, worker.note = lambda job: job.id != "new", said.append
    worker.run(drain=True)
    assert executor.ran == [("known", "rk1")]
    assert "job new (new) waits for a worker of a newer labctl" in said


def test_a_board_is_kept_for_the_one_that_waits_for_it_in_the_foreground(
    lab: LabFile, state: LabState
) -> None:
    said: list[str] = []
    state.jobs.submit(_job("shell", "rk1", kind="foreground"), _job("queued", "rk1"))
    worker = _worker(lab, executor := Recorded(), "rk1")
    worker.understands, worker.note = lambda job: job.kind == "run", said.append
    worker.run(drain=True)
    assert executor.ran == []
    assert not [line for line in said if "newer labctl" in line]


def test_a_lab_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a PostgreSQL, and this lab has none") as error:
        QueueEngine(LabFile(tmp_path, Lab(boards={})))
    assert "database: postgresql://" in (error.value.hint or "")


@pytest.mark.parametrize("is_away", [False, True])
def test_a_worker_that_is_stopped_makes_no_pause(
    lab: LabFile,
    state: LabState,
    started: list[tuple[HostWorker, threading.Thread]],
    monkeypatch: pytest.MonkeyPatch,
    is_away: bool,
) -> None:
    """Also while it waits for a database that is away."""
    worker, paused = _worker(lab, Recorded(), "rk1"), threading.Event()
    worker.again_seconds = 3600.0

    def away(*_: object, **__: object) -> NoReturn:
        paused.set()
        raise HostError("the database is away")

    if is_away:
        monkeypatch.setattr(worker.engine, "connector", away)
    _start(started, worker)
    if is_away:
        assert paused.wait(60)
    assert wait_until(lambda: bool(state.workers.list()), timeout=60, interval=0.05)
    worker.stop()
    started[0][1].join(60)
    assert not started[0][1].is_alive()


def test_a_worker_that_is_stopped_while_it_starts_ends(
    lab: LabFile,
    started: list[tuple[HostWorker, threading.Thread]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, plain = _worker(lab, Recorded(), "rk1"), worker_module.serving

    def stopped(app: object, board: str) -> object:
        worker.stop()
        return plain(app, board)  # type: ignore[arg-type]

    monkeypatch.setattr(worker_module, "serving", stopped)
    _start(started, worker)
    started[0][1].join(60)
    assert not started[0][1].is_alive()


def test_a_running_worker_is_woken_and_ends_after_its_job(
    lab: LabFile, state: LabState, started: list[tuple[HostWorker, threading.Thread]]
) -> None:
    executor = Recorded()
    begun, go_on = threading.Event(), threading.Event()
    plain = executor.run

    def run(job: FarmJob, board: str) -> JobResult:
        begun.set()
        assert go_on.wait(60)
        return plain(job, board)

    executor.run = run  # type: ignore[method-assign]
    worker = _worker(lab, executor, "rk1", host="lab2")
    _start(started, worker)
    assert wait_until(lambda: bool(state.workers.list()), timeout=60, interval=0.05)
    (known,) = state.workers.list()
    assert (known.host, known.boards, known.is_alive) == ("lab2", ("rk1",), True)
    state.jobs.submit(_job("a", "rk1"))
    QueueEngine(lab).wake(["rk1"])
    assert begun.wait(60)
    state.jobs.submit(_job("b", "rk1"))
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
    started: list[tuple[HostWorker, threading.Thread]],
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
    worker = _worker(lab, executor, "rk1")
    worker.away_seconds = 3600.0
    worker.stop_job = lambda _job: told.set()
    _start(started, worker)
    state.jobs.submit(_job("a", "rk1"))
    assert wait_until(lambda: state.jobs.find("a").state == "running", timeout=60, interval=0.05)
    state.jobs.cancel("a", "wrong model")
    assert wait_until(lambda: state.jobs.find("a").state == "cancelled", timeout=60, interval=0.05)
    assert state.jobs.find("a").reason == "wrong model"
    state.jobs.submit(_job("b", "rk1"))
    assert wait_until(lambda: state.jobs.find("b").state == "done", timeout=20, interval=0.05)


def test_a_worker_whose_host_slept_does_not_take_its_own_jobs_for_lost(
    lab: LabFile,
    state: LabState,
    started: list[tuple[HostWorker, threading.Thread]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, hours, executor = threading.Event(), itertools.count(1), Recorded()
    plain, began = executor.run, leases.steady_seconds()

    def run(job: FarmJob, board: str) -> JobResult:
        result = plain(job, board)
        assert go_on.wait(60)
        return result

    def after_sleep() -> float:
        """The time each time that somebody asks, an hour after the last; so all leases are over."""
        with state.changing() as connection:
            sql.run(connection, "UPDATE job SET expires = 0 WHERE state = 'running'", {})
        return began + 3600.0 * next(hours)

    executor.run = run  # type: ignore[method-assign]
    seldom = replace(lab, lease_seconds=3600.0)  # the thread of its signs has none to give
    _start(started, _worker(seldom, executor, "rk1", "rk2"))
    state.jobs.submit(_job("a", "rk1", "rk2"))
    assert wait_until(lambda: len(executor.ran) == 1, timeout=60, interval=0.05)
    monkeypatch.setattr(worker_module, "steady_seconds", after_sleep)
    assert wait_until(lambda: next(hours) > 20, timeout=60, interval=0.2)
    monkeypatch.undo()
    go_on.set()
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=60, interval=0.05)
    assert state.jobs.find("a").attempts == len(executor.ran) == 1


def test_jobs_that_nobody_woke_a_worker_for_are_found(
    lab: LabFile, state: LabState, started: list[tuple[HostWorker, threading.Thread]]
) -> None:
    executor = Recorded()
    _start(started, _worker(lab, executor, "rk1"))
    assert wait_until(lambda: bool(state.workers.list()), timeout=60, interval=0.05)
    state.jobs.submit(_job("a", "rk1"))
    assert wait_until(lambda: bool(executor.ran), timeout=60, interval=0.05)


def test_a_task_whose_end_was_lost_with_the_database_blocks_no_board(
    lab: LabFile, state: LabState, started: list[tuple[HostWorker, threading.Thread]]
) -> None:
    """A database that restarts just then leaves a live worker a task that it does not carry out."""
    executor = Recorded()
    _start(started, _worker(lab, executor, "rk1"))
    state.jobs.submit(_job("a", "rk1"))
    assert wait_until(lambda: ("a", "rk1") in executor.ran, timeout=60, interval=0.05)
    tasks = "SELECT id FROM procrastinate_jobs"
    assert wait_until(lambda: not state.jobs._state.ask(tasks, {}), timeout=60, interval=0.05)
    with state.changing() as connection:
        connection.exec_driver_sql(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, status, worker_id)"
            f" SELECT '{queue_of('rk1')}', '{SERVE}', 'rk1', '{{\"board\": \"rk1\"}}', 'doing', id"
            " FROM procrastinate_workers"
        )
    state.jobs.submit(_job("b", "rk1"))
    assert wait_until(lambda: ("b", "rk1") in executor.ran, timeout=60, interval=0.05)


def test_what_the_engine_cannot_note_is_said_in_one_line(
    lab: LabFile,
    state: LabState,
    started: list[tuple[HostWorker, threading.Thread]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    executor = Recorded()

    def run(job: FarmJob, board: str) -> JobResult:
        with state.changing() as connection:  # as if a worker had taken this one for dead
            connection.exec_driver_sql("DELETE FROM procrastinate_jobs WHERE status = 'doing'")
        return JobResult(0, run=f"run-of-{job.id}")

    executor.run = run  # type: ignore[method-assign]
    state.jobs.submit(_job("a", "rk1"))
    worker = _worker(lab, executor, "rk1")
    worker.note = said.append
    _start(started, worker)

    def is_said() -> bool:
        gc.collect()  # asyncio tells of a failed task when it goes
        return any("cannot use the lab's queue: Job was not found" in line for line in said)

    assert wait_until(is_said, timeout=60, interval=0.1)
    assert "Traceback" not in capfd.readouterr().err


def test_a_bug_in_what_mends_the_queue_ends_the_worker(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_worker: HostWorker, _app: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(HostWorker, "_mend", fail)
    with pytest.raises(ZeroDivisionError):
        _worker(lab, Recorded(), "rk1").run()


def test_a_lost_job_is_free_also_where_nobody_could_run_it_now(
    lab: LabFile, state: LabState, started: list[tuple[HostWorker, threading.Thread]]
) -> None:
    """Its user sees that it waits; a host that comes up finds it so."""
    executor, go_on = Recorded(), threading.Event()

    def run(job: FarmJob, _board: str) -> JobResult:
        assert go_on.wait(120)
        return JobResult(0, run=f"run-of-{job.id}")

    executor.run = run  # type: ignore[method-assign]
    state.jobs.submit(_job("a", "rk1"), _job("b", "rk2"))
    assert state.jobs.claim(["rk2"], "dead")
    _start(started, _worker(lab, executor, "rk1"))
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
    started: list[tuple[HostWorker, threading.Thread]],
    monkeypatch: pytest.MonkeyPatch,
    jump: float,
) -> None:
    """A host without a battery begins in 1970, and is told the time later."""
    executor = Recorded()
    _start(started, _worker(lab, executor, "rk1"))
    state.jobs.submit(_job("a", "rk1"))
    assert wait_until(lambda: ("a", "rk1") in executor.ran, timeout=60, interval=0.05)
    worker, _ = started[0]
    assert wait_until(lambda: not worker._running, timeout=60, interval=0.05)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    state.jobs.submit(_job("b", "rk1"))
    assert wait_until(lambda: ("b", "rk1") in executor.ran, timeout=60, interval=0.05)


def test_a_job_whose_earlier_run_cannot_be_fetched_is_given_back(
    lab: LabFile, state: LabState
) -> None:
    """The disk is full: what is renewed for ever would never be anybody else's."""
    state.jobs.submit(_job("a", "rk1"))

    class Full:
        def run_of(self, job: FarmJob) -> str | None:
            raise HostError(f"cannot write the run of {job.id}: No space left on device")

    def connect(board: Board) -> Transport:
        raise AssertionError

    executor = RunExecutor(lab, cast("RunLedger", Full()), connect)
    HostWorker(QueueEngine(lab), lab_state(lab), "lab1", ["rk1"], executor).run(drain=True)
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.failures) == ("waiting", 1)


def test_a_database_that_is_away_when_a_board_broke_does_not_keep_the_job(
    lab: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, is_board_broken=True)
    state.jobs.submit(_job("a", "rk1"))
    plain, refused = Healths.want_check, [HostError("the database is away")]

    def want_check(self: Healths, board: str, reason: str) -> None:
        if refused:
            raise refused.pop()
        plain(self, board, reason)

    monkeypatch.setattr(Healths, "want_check", want_check)
    _worker(lab, Recorded({"a": [broken]}), "rk1").run(drain=True)
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.failures) == ("waiting", 1)


def test_a_lost_attempt_is_not_told_as_a_result(lab: LabFile, state: LabState) -> None:
    state.jobs.submit(_job("a", "rk1"))
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
    _worker(lab, executor, "rk1").run(drain=True)
    job = state.jobs.get("a")
    assert job is not None
    assert (job.state, job.worker, job.run) == ("running", "other worker", None)


def _start(started: list[tuple[HostWorker, threading.Thread]], worker: HostWorker) -> None:
    worker.mend_seconds = 0.2
    thread = threading.Thread(target=worker.run)
    started.append((worker, thread))
    thread.start()


def test_names_of_queues_fit_into_a_channel() -> None:
    long = "b" * 63
    assert len(f"procrastinate_queue_v1#{queue_of(long)}") <= 63
    assert queue_of("rk1") == "board-rk1"
    assert queue_of(long) != queue_of(long[:-1] + "c")


def test_a_sick_board_gets_no_job_and_a_broken_one_is_checked(
    lab: LabFile, state: LabState
) -> None:
    looked: list[str] = []

    def look_after(board: str) -> None:
        looked.append(board)
        if board == "rk1":
            state.health.set("rk1", Health.BAD, reason="slow", by="check")

    broken = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, reason="gone", is_board_broken=True)
    state.jobs.submit(_job("a", "rk1"), _job("b", "rk2"))
    executor = Recorded({"b": [broken]})
    worker = _worker(lab, executor, "rk1", "rk2")
    worker.look_after = look_after
    worker.run(drain=True)
    assert executor.ran == [("b", "rk2")]
    assert {"rk1", "rk2"} <= set(looked)
    assert state.jobs.list()[0].state == "waiting"
    assert state.health.get("rk2").check_wanted_for == "job b broke there: gone"


def _no_agent(lab_root: Path) -> None:
    agent_artifact("aarch64", load_target("rk3568"), lab_root)


def _no_program(_lab_root: Path) -> None:
    raise ToolMissing("program not found on this host: pip")


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [(_no_agent, "no agent (current) is built"), (_no_program, "program not found")],
)
def test_what_a_host_lacks_is_never_the_jobs_fault_and_costs_no_attempt(
    lab: LabFile,
    state: LabState,
    monkeypatch: pytest.MonkeyPatch,
    lacking: Callable[[Path], None],
    reason: str,
) -> None:
    """Whatever a host without its agents takes, it would end otherwise: all of the queue."""
    said: list[str] = []

    def run_recipe(*_: object) -> None:
        lacking(lab.root)

    monkeypatch.setenv("LABCTL_CACHE", str(lab.root / "empty cache"))
    monkeypatch.setattr(run_executor, "run_recipe", run_recipe)
    monkeypatch.setattr(RunExecutor, "_request", lambda *_: None)
    executor = RunExecutor(_two_boards(lab.root), cast("RunLedger", _NoRuns()), _no_connection)
    state.jobs.submit(*(_job(name, "rk1", "rk2") for name in "ab"))
    for _ in range(4):
        worker = HostWorker(QueueEngine(lab), lab_state(lab), "lab1", ["rk1"], executor)
        worker.note = said.append
        worker.run(drain=True)
    jobs = state.jobs.list()
    assert [(job.state, job.failures, *job.tried) for job in jobs] == [("waiting", 0)] * 2
    assert any(reason in (job.reason or "") for job in jobs)
    if lacking is _no_agent:
        assert any("to mend it: labctl build --target rk3568 --product agent" in x for x in said)
    assert state.health.get("rk1").check_wanted_for is None
    _worker(lab, well := Recorded(), "rk2", host="lab2").run(drain=True)
    assert sorted(well.ran) == [("a", "rk2"), ("b", "rk2")]


def _no_connection(board: Board) -> Transport:
    raise AssertionError(board)


class _WithAgent(Recorded):
    """An executor that needs the agent of a host, as this one has it."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        try:
            agent_artifact("aarch64", load_target("rk3568"), Path())
        except ConfigError as error:
            self.ran.append((f"{job.id} lacks it", board))
            return JobResult.of(error)
        return super().run(job, board)


def test_what_was_built_meanwhile_is_noticed_without_waiting_for_another_try(
    lab: LabFile,
    state: LabState,
    started: list[tuple[HostWorker, threading.Thread]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    state.jobs.submit(_job("a", "rk1"), _job("b", "rk1"))
    executor = _WithAgent()
    hosted = replace(
        lab, lab=lab.lab.model_copy(update={"boards": _two_boards(tmp_path).lab.boards})
    )
    worker = host_worker(
        hosted, "lab1", ["rk1"], connect=_no_connection, compare=leave_open, note=lambda _: None
    )
    worker.executor, worker.understands = executor, lambda _job: True
    worker.lacks, worker.on_begin, worker.on_run = (
        lambda _job: None,
        lambda _job, _board: None,
        lambda _job, _run: True,
    )
    _start(started, worker)
    assert wait_until(lambda: ("a lacks it", "rk1") in executor.ran, timeout=60, interval=0.05)
    make_artifact(tmp_path, "agent", product="agent", version="current")
    done = {"a": "done", "b": "done"}
    assert wait_until(
        lambda: {job.id: job.state for job in state.jobs.list(ended=9)} == done,
        timeout=50,  # less than any pause
        interval=0.05,
    ), executor.ran
    assert executor.ran == [("a lacks it", "rk1"), ("a", "rk1"), ("b", "rk1")]


class _WithTool(Recorded):
    """An executor that needs a program of this host."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        try:
            process.run(["quantize-it"], timeout=30)
        except ToolMissing as error:
            self.ran.append((f"{job.id} lacks it", board))
            return JobResult.of(error.during("making the model"))
        return super().run(job, board)


def test_a_tool_that_is_installed_meanwhile_is_noticed_soon(
    lab: LabFile,
    state: LabState,
    started: list[tuple[HostWorker, threading.Thread]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    state.jobs.submit(_job("a", "rk1"), _job("b", "rk1"))
    executor = _WithTool()
    _start(started, _worker(lab, executor, "rk1"))
    assert wait_until(lambda: ("a lacks it", "rk1") in executor.ran, timeout=60, interval=0.05)
    tool = tmp_path / "quantize-it"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    done = {"a": "done", "b": "done"}
    assert wait_until(
        lambda: {job.id: job.state for job in state.jobs.list(ended=9)} == done,
        timeout=50,  # less than any pause
        interval=0.05,
    ), executor.ran
    assert executor.ran == [("a lacks it", "rk1"), ("a", "rk1"), ("b", "rk1")]


def test_a_program_that_is_here_and_cannot_run_is_not_tried_again_and_again(
    tmp_path: Path,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/no/such/interpreter\n")
    tool.chmod(0o755)
    with pytest.raises(ToolMissing) as missing:
        process.run([str(tool)], timeout=30)
    lacks = HostLacks(lambda: None)
    lacks.note("a", "rk1", JobResult.of(missing.value), None)
    assert (lacks.jobs("ab"), lacks.pauses("rk1")) == ({"a"}, True)


def test_a_host_that_lacks_something_is_not_asked_again_and_again(
    lab: LabFile, state: LabState
) -> None:
    lack = JobResult.of(ToolMissing("program not found on this host: pip"))
    state.jobs.submit(_job("a", "rk1"), _job("b", "rk2"))
    executor = Recorded({"a": [lack]})
    worker = _worker(lab, executor, "rk1", "rk2")
    worker.run(drain=True)
    worker.run(drain=True)
    assert sorted(executor.ran) == [("a", "rk1"), ("b", "rk2")]


def test_a_store_that_comes_back_is_asked_again_soon_and_costs_no_attempt(
    lab: LabFile, state: LabState, started: list[tuple[HostWorker, threading.Thread]]
) -> None:
    away = JobResult.of(HostError("cannot use the store").of_host())
    state.jobs.submit(_job("a", "rk1"))
    executor = Recorded({"a": [away] * 4})
    worker = _worker(lab, executor, "rk1")
    worker.away_seconds = 0.1
    _start(started, worker)
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=50, interval=0.05)
    assert (len(executor.ran), state.jobs.find("a").failures) == (5, 0)


class _NoRuns:
    def run_of(self, job: FarmJob) -> None:
        pass


def _two_boards(root: Path) -> LabFile:
    boards = (("rk1", "h:1"), ("rk2", "h:2"))
    write_farm(root, [{"name": name, "address": at, "workdir": "/w"} for name, at in boards])
    return find_lab(root, TRANSPORTS)


QUANTIZING = """\
name: quantizing
target: rk3568
engine:
  name: command
  program: {file: tool}
  arguments: ["1"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {base: {file: tiny.gguf}, small: {derive: {from: base, quantization: Q8_0}}}
model: MODEL
parameters: {tokens: 1}
max_time: 5m
"""


def test_a_host_without_llama_quantize_leaves_its_jobs_to_others_and_runs_the_rest(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "empty cache"))
    root = lab_in(postgres, tmp_path / "lab").parent
    write_tiny_gguf(root / "tiny.gguf")
    (root / "tool").write_text("#!/bin/sh\n")
    lab = find_lab(root, TRANSPORTS)
    state, said = lab_state(lab), list[str]()
    for model in ("small", "base"):
        path = root / f"{model}.yaml"
        path.write_text(QUANTIZING.replace("MODEL", model))
        content = RunContent.of(read_recipe(path, (), lab_root=root), root)
        state.jobs.submit(NewJob(model, content.document(), ("rk1",), id=model))
    ledger = QueueLedger(lab, state, None, said.append)
    for _ in range(2):
        worker = _worker(lab, Recorded(), "rk1")
        worker.understands, worker.lacks = ledger.understands, ledger.lacks
        worker.note = said.append
        worker.run(drain=True)
    (left,) = [job for job in state.jobs.list() if job.state == "waiting"]
    assert (left.id, left.attempts, left.failures) == ("small", 0, 0)
    done = state.jobs.get("base")
    assert done is not None
    assert (done.state, done.exit_status) == ("done", 0)
    lines = [line for line in said if line.startswith("job small")]
    assert len(lines) == 2  # once for each worker
    (line, _) = lines
    assert "no llama-quantize that runs on this host is built" in line
    assert "labctl build --target rk3568 --product llama.cpp --tool llama-quantize" in line
    make_artifact(tmp_path, "llama-quantize", target=f"host-{platform.machine()}")
    assert QueueLedger(lab, state, None, said.append).lacks(left) is None


def test_a_worker_says_at_its_start_what_its_host_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "empty cache"))
    agent, quantizer = missing_tools(_two_boards(tmp_path), ["rk1", "rk2"])
    assert "no agent (current) is built" in agent
    assert "--product agent" in agent
    assert "--tool llama-quantize" in quantizer
    assert quantizer.endswith("; jobs that need it wait until then, or for another host")


def test_a_target_that_cannot_be_read_keeps_no_worker_from_the_boards_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "empty cache"))
    lab = _two_boards(tmp_path)
    lab.lab.boards["rk1"] = lab.board("rk1").model_copy(update={"target": "torn"})
    (tmp_path / "toolchains" / "torn").mkdir(parents=True)
    (tmp_path / "toolchains" / "torn" / "target.yaml").write_text("oops: [")
    torn, agent, _ = missing_tools(lab, ["rk1", "rk2"])
    assert "not valid YAML" in torn
    assert torn.endswith("; jobs on boards of target torn fail")
    assert "no agent (current) is built" in agent
