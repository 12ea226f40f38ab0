"""How many jobs get their boards ready at once; running ones take no place."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from farm_lab import write_farm
from records_made import plan, planned_run, run, trial

from labctl.config.lab import LabFile, find_lab
from labctl.database.base import DatabaseAway, patiently
from labctl.errors import ConfigError, ExitStatus
from labctl.farm import run_executor
from labctl.farm.job import FarmJob
from labctl.farm.run_content import RunContent
from labctl.farm.run_executor import RunExecutor
from labctl.records.events import Trial
from labctl.records.run import RunEnd
from labctl.retry import wait_until
from labctl.runs.observer import Observer
from labctl.runs.run import RunRequest
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS

JOBS = [FarmJob(str(number), "job", ("b-1",)) for number in range(6)]


class Noted:
    """Knows a run of every job."""

    def __init__(self, run: str):
        self.run = run

    def run_of(self, job: FarmJob) -> str:
        return self.run

    def content(self, job: FarmJob) -> RunContent:
        raise AssertionError(job)

    def note_run(self, job: FarmJob, board: str, run: str) -> None:
        raise AssertionError((job, board, run))


class Ledger:
    """Notes who asks it, which is the first that a job does; all wait there until ``go``."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.go = threading.Event()

    def run_of(self, job: FarmJob) -> str | None:
        self.inside.append(job.id)
        assert self.go.wait(60)
        return None

    def content(self, job: FarmJob) -> RunContent:
        raise ConfigError(f"job {job.id} runs nothing")

    def note_run(self, job: FarmJob, board: str, run: str) -> None:
        raise AssertionError((job, board, run))


def _connect(_board: object) -> Transport:
    raise AssertionError


@pytest.fixture
def lab(tmp_path: Path) -> LabFile:
    write_farm(tmp_path, [{"name": "b-1", "address": "127.0.0.1:1", "workdir": "/w"}])
    return find_lab(tmp_path, TRANSPORTS)


def test_few_jobs_get_ready_at_once_and_the_others_follow(lab: LabFile) -> None:
    ledger = Ledger()
    executor = RunExecutor(lab, ledger, _connect, readying=2)
    with ThreadPoolExecutor(len(JOBS)) as pool:
        ends = [pool.submit(executor.run, job, "b-1") for job in JOBS]
        assert wait_until(lambda: len(ledger.inside) == 2, timeout=60, interval=0.01)
        assert not wait_until(lambda: len(ledger.inside) > 2, timeout=0.5, interval=0.01)
        ledger.go.set()
    assert {end.result().reason for end in ends} == {f"job {job.id} runs nothing" for job in JOBS}


def test_a_job_that_waits_is_stopped_before_it_begins(lab: LabFile) -> None:
    ledger = Ledger()
    executor = RunExecutor(lab, ledger, _connect, readying=1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(executor.run, JOBS[0], "b-1")
        assert wait_until(lambda: ledger.inside == ["0"], timeout=60, interval=0.01)
        second = pool.submit(executor.run, JOBS[1], "b-1")
        executor.stop_job("1")
        ledger.go.set()
    assert first.result().exit_status is ExitStatus.CONFIG
    assert second.result().exit_status is ExitStatus.INTERRUPTED
    assert ledger.inside == ["0"]


def test_a_trial_that_began_lets_the_next_board_get_ready(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)

    def run_recipe(_request: RunRequest, _connect: object, seen: Observer) -> None:
        seen.tell(Trial(number=1, trials=1, slug="a-r1", variant="a", state="started"))
        both.wait(60)  # breaks unless the other job comes as far
        raise ConfigError("it ran")

    monkeypatch.setattr(run_executor, "run_recipe", run_recipe)
    monkeypatch.setattr(RunExecutor, "_request", lambda *_: None)
    ledger = Ledger()
    ledger.go.set()
    executor = RunExecutor(lab, ledger, _connect, readying=1)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(executor.run, job, "b-1") for job in JOBS[:2]]
    assert [end.result().reason for end in ends] == ["it ran", "it ran"]


def test_a_job_that_waits_for_its_turn_ends_at_once_when_all_are_stopped(lab: LabFile) -> None:
    ledger = Ledger()
    executor = RunExecutor(lab, ledger, _connect, readying=1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(executor.run, JOBS[0], "b-1")
        assert wait_until(lambda: ledger.inside == ["0"], timeout=60, interval=0.01)
        second = pool.submit(executor.run, JOBS[1], "b-1")
        executor.stop()
        try:  # though the first still gets its board ready
            assert second.result(timeout=20).exit_status is ExitStatus.INTERRUPTED
        finally:
            ledger.go.set()
    assert first.result().exit_status is ExitStatus.CONFIG
    assert ledger.inside == ["0"]


def test_an_attempt_whose_run_goes_on_elsewhere_is_none_and_waits_for_its_end(
    lab: LabFile,
) -> None:
    """A host that stood still is taken for dead, and wakes up beside its successor."""
    record = run("20260728T100000Z-q2-aaaaaa", job="0")
    made = planned_run(lab.root / "runs", record, plan())
    executor = RunExecutor(lab, Noted(record.id), _connect)
    with made.held():
        refused = executor.run(JOBS[0], "b-1")
    assert (refused.is_board_taken, refused.is_counted) == (True, False)
    assert "is active in another process" in (refused.reason or "")
    made.add(trial(1))
    made.finish(RunEnd.model_validate({"state": "finished", "finished": trial(1).finished}))
    assert executor.run(JOBS[0], "b-1").exit_status is ExitStatus.OK


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_database_that_is_away_costs_a_job_no_attempt(lab: LabFile, *, is_stopped: bool) -> None:
    asked: list[str] = []

    def ready(board: str, _by: str | None) -> None:
        patiently(partial(ask, board))

    def ask(board: str) -> None:
        asked.append(board)
        if is_stopped:
            executor.stop()
        if len(asked) < 4:
            raise DatabaseAway("the database is started again")

    ledger = Ledger()
    ledger.go.set()
    executor = RunExecutor(lab, ledger, _connect, before_job=ready)
    result = executor.run(JOBS[0], "b-1")
    if is_stopped:
        assert (result.exit_status, len(asked)) == (ExitStatus.INTERRUPTED, 1)
    else:
        assert (result.reason, len(asked)) == ("job 0 runs nothing", 4)
