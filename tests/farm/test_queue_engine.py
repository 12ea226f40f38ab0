"""The queue engine wakes the workers of a lab with several hosts."""

from pathlib import Path

import pytest
from postgres_server import PostgresServer
from workers_made import Recorded, Started, looks_of, made_worker, new_job, start

from labctl.config.lab import Lab, LabFile
from labctl.errors import ConfigError
from labctl.farm import queue_engine
from labctl.farm.queue_engine import QueueEngine, queue_of, wake_workers
from labctl.retry import wait_until
from labctl.state.state import LabState, lab_state


@pytest.fixture
def lab(postgres: PostgresServer, tmp_path: Path) -> LabFile:
    return LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))


def test_a_lab_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a PostgreSQL, and this lab has none") as error:
        QueueEngine(LabFile(tmp_path, Lab(boards={})))
    assert "database: postgresql://" in (error.value.hint or "")


def test_names_of_queues_fit_into_a_channel() -> None:
    long = "b" * 63
    assert len(f"procrastinate_queue_v1#{queue_of(long)}") <= 63
    assert queue_of("rk1") == "board-rk1"
    assert queue_of(long) != queue_of(long[:-1] + "c")


def is_listening(state: LabState) -> bool:
    return bool(state.ask("SELECT id FROM procrastinate_workers", {}))


def test_a_worker_is_woken_long_before_its_own_look(lab: LabFile, started: Started) -> None:
    executor, state = Recorded(), lab_state(lab)
    worker = made_worker(lab, executor, "rk1", "rk2")
    worker.look_seconds = 3600.0
    start(started, worker)
    assert wait_until(lambda: is_listening(state), timeout=60, interval=0.05)
    for count, board in enumerate(("rk1", "rk2"), 1):
        state.jobs.submit(new_job(f"for {board}", board))
        wake_workers(lab, [board])
        assert wait_until(lambda: len(executor.ran) == count, timeout=60, interval=0.05)  # noqa: B023
    left = "SELECT id FROM procrastinate_jobs"
    assert wait_until(lambda: not state.ask(left, {}), timeout=60, interval=0.05)


def test_a_worker_without_its_engine_says_so_once_and_finds_jobs_by_itself(
    lab: LabFile, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, state, said = Recorded(), lab_state(lab), list[str]()
    worker = made_worker(lab, executor, "rk1")
    worker.note = said.append
    monkeypatch.setattr(queue_engine, "_AGAIN_SECONDS", 0.05)
    assert worker.engine is not None
    worker.engine.prepare()
    monkeypatch.setattr(worker.engine, "_url", "postgresql://nobody@127.0.0.1:1/none")
    start(started, worker)
    state.jobs.submit(new_job("a", "rk1"))
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=60, interval=0.05)
    words = "nobody wakes this worker, which looks by itself"
    assert wait_until(lambda: any(words in line for line in said), timeout=60, interval=0.05)
    looks = looks_of(worker)
    assert wait_until(lambda: len(looks) > 10, timeout=60, interval=0.05)
    assert sum(words in line for line in said) == 1


def test_a_task_that_a_dead_worker_had_blocks_no_board(lab: LabFile, started: Started) -> None:
    executor, state = Recorded(), lab_state(lab)
    QueueEngine(lab).prepare()
    with state.changing() as connection:
        connection.exec_driver_sql(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args, status)"
            f" VALUES ('{queue_of('rk1')}', 'labctl.wake', 'rk1', '{{}}', 'doing')"
        )
    worker = made_worker(lab, executor, "rk1")
    worker.look_seconds = 3600.0
    start(started, worker)
    assert wait_until(lambda: is_listening(state), timeout=60, interval=0.05)
    state.jobs.submit(new_job("a", "rk1"))
    wake_workers(lab, ["rk1"])
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=60, interval=0.05)
