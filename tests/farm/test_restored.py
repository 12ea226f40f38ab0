"""A database that came back from an older backup: what ended since is not run again."""

from pathlib import Path

import pytest
from postgres_server import PostgresServer, lab_in
from records_made import plan, planned_run, run, trial

from labctl.config.lab import Board, LabFile, find_lab
from labctl.errors import HostError
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_executor import RunExecutor
from labctl.farm.store import SharedStore
from labctl.farm.worker import Worker
from labctl.records.run import RunEnd
from labctl.runs.record.directory import new_run_id
from labctl.runs.record.repository import RunRepository
from labctl.state.job import Job, NewJob
from labctl.state.state import lab_state
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS

RUN = "20260728T100000Z-q2-aaaaaa"


def _lab(postgres: PostgresServer, folder: Path, name: str) -> LabFile:
    lab_in(postgres, folder, name)
    text = (folder / "devices.yaml").read_text()
    board = "{target: rk3568, transport: {kind: hdc, link: tcp, address: '127.0.0.1:1'}}"
    text = text.replace("boards: {}", f"boards: {{rk1: {board}}}")
    (folder / "devices.yaml").write_text(text)
    return find_lab(folder, TRANSPORTS)


@pytest.mark.parametrize("broken_off", [None, "20260728T090000Z-q2-bbbbbb"])
def test_a_job_that_ended_after_the_backup_is_not_run_again(
    postgres: PostgresServer, tmp_path: Path, broken_off: str | None
) -> None:
    """Also where the backup knows a run of it that was broken off before."""
    name = postgres.new_lab()
    first, second = (_lab(postgres, tmp_path / host, name) for host in ("lab1", "lab2"))
    store = SharedStore(str(tmp_path / "store"))
    state = lab_state(first)
    state.jobs.submit(NewJob("q2", {"recipe": {}}, ("rk1",), id="a"))
    if broken_off is not None:
        (job,) = state.jobs.claim(["rk1"], "lab1:1:aa")
        state.jobs.requeue(state.jobs.start(job, broken_off), "the disk is full")
    backup = state.backup(tmp_path / "backup.sqlite")

    (job,) = state.jobs.claim(["rk1"], "lab1:1:ab")
    made = planned_run(first.root / "runs", run(RUN), plan())
    made.add(trial(1))
    made.finish(RunEnd.model_validate({"state": "finished", "finished": trial(1).finished}))
    QueueLedger(first, state, store, print).share(job, RUN)
    state.jobs.finish(job, 0)
    state.restore(backup)
    back = state.jobs.get("a")
    assert back is not None
    assert (back.state, back.run, state.stored_runs.list()) == ("waiting", broken_off, {})

    def connect(board: Board) -> Transport:
        raise AssertionError(f"{board.name} was asked again")

    other = lab_state(second)
    ledger = QueueLedger(second, other, store, print)
    executor = RunExecutor(second, ledger, connect)
    Worker(other, "lab2", ["rk1"], executor, on_begin=ledger.took).run(until_empty=True)
    done = state.jobs.get("a")
    assert done is not None
    assert (done.state, done.exit_status, done.run) == ("done", 0, RUN)
    assert (second.root / "runs" / RUN / "records.jsonl").is_file()
    assert ledger.run_of(FarmJob("a", "q2", ("rk1",))) == RUN


def test_without_a_store_the_run_directories_of_the_host_tell(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    lab = _lab(postgres, tmp_path / "lab1", postgres.new_lab())
    runs, state = lab.root / "runs", lab_state(lab)
    state.jobs.submit(NewJob("q2", {"recipe": {}}, ("rk1",), id="a"))
    ids = [new_run_id("q2") for _ in range(4)]
    for number, (name, job) in enumerate(zip(ids, ("a", "a", "b", "a"), strict=True)):
        made = planned_run(runs, run(name, job=job), plan())
        if number == 0:
            made.finish(RunEnd.model_validate({"state": "finished", "finished": trial(1).finished}))
    (runs / ids[3] / "origin.json").write_text("{}")  # it is imported: another lab's job
    (runs / new_run_id("q2")).mkdir()  # it is not planned yet
    (runs / (damaged := new_run_id("q2"))).mkdir()
    (runs / damaged / "run.json").write_text("[")
    ledger = QueueLedger(lab, state, None, print)
    assert ledger.run_of(FarmJob("a", "q2", ("rk1",))) == ids[0]  # the one that is finished
    (job,) = state.jobs.claim(["rk1"], "lab1:1:aa")
    state.jobs.requeue(state.jobs.start(job, ids[1]), "the disk is full")  # as the backup knows it
    assert ledger.run_of(FarmJob("a", "q2", ("rk1",))) == ids[0]
    (old,) = state.jobs.submit(NewJob("q2", {"recipe": {}}, ("rk1",), id="c"))
    planned_run(runs, run(RUN, job="c"), plan())  # from before the job was submitted
    assert ledger.run_of(FarmJob(old.id, "q2", ("rk1",))) is None


def test_a_store_that_is_away_when_a_job_begins_ends_the_attempt_and_no_worker(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = _lab(postgres, tmp_path / "lab1", postgres.new_lab())
    ledger = QueueLedger(lab, lab_state(lab), SharedStore(str(tmp_path / "store")), print)

    def away(_job: FarmJob) -> str:
        raise HostError("the store does not answer")

    monkeypatch.setattr(ledger, "run_of", away)
    executor = RunExecutor(lab, ledger, lambda board: pytest.fail(f"{board.name} was asked"))
    result = executor.run(FarmJob("a", "q2", ("rk1",)), "rk1")
    assert (result.is_final, result.reason) == (False, "the store does not answer")


def _finished(lab: LabFile, name: str, job: str = "a") -> None:
    """A host has finished a run of a job, and nobody else knows."""
    record = run(name, job=job)
    made = planned_run(lab.root / "runs", record, plan())
    made.add(trial(1))
    made.finish(RunEnd.model_validate({"state": "finished", "finished": trial(1).finished}))


def test_a_run_that_nobody_was_told_of_is_the_result_after_a_restore(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The worker was killed between the end of the run and the word to the queue."""
    lab = _lab(postgres, tmp_path / "lab1", postgres.new_lab())
    state, store = lab_state(lab), SharedStore(str(tmp_path / "store"))
    state.jobs.submit(NewJob("q2", {"recipe": {}}, ("rk1",), id="a"))
    _finished(lab, RUN)
    QueueLedger(lab, state, store, print).share_missing()
    assert QueueLedger(lab, state, store, print).run_of(FarmJob("a", "q2", ("rk1",))) == RUN


def test_a_job_that_two_hosts_finished_has_one_result(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, later = postgres.new_lab(), "20260728T110000Z-q2-cccccc"
    first, second = (_lab(postgres, tmp_path / host, name) for host in ("lab1", "lab2"))
    store, said = SharedStore(str(tmp_path / "store")), list[str]()
    state = lab_state(first)
    state.jobs.submit(NewJob("q2", {"recipe": {}}, ("rk1",), id="a"))
    _finished(first, RUN)
    QueueLedger(first, state, store, print).share_missing()
    # It was lost to the other host meanwhile, which comes too late.
    _finished(second, later)
    RunRepository(second.root / "runs").refresh()
    (job,) = state.jobs.claim(["rk1"], "lab2:1:aa")
    ledger = QueueLedger(second, lab_state(second), store, said.append)

    class Finishing:
        """What the worker's attempt came to."""

        def run(self, job: FarmJob, board: str) -> JobResult:
            runs = [run for run in (ledger.run_of(job),) if run is not None]
            return JobResult(0, runs[0] if job.id in taken else later)

        def stop(self) -> None:
            raise AssertionError

    taken: list[str] = []
    state.jobs.requeue(job, "again", counted=False)
    plain, refused = RunRepository.refresh, [HostError("the database is away")]

    def refresh(self: RunRepository) -> None:
        if refused:
            raise refused.pop()
        plain(self)

    monkeypatch.setattr(RunRepository, "refresh", refresh)

    def shared(job: Job, run: str) -> bool:
        taken.append(job.id)
        return ledger.share(job, run)

    Worker(
        lab_state(second),
        "lab2",
        ["rk1"],
        Finishing(),
        on_begin=ledger.took,
        on_run=shared,
    ).run(until_empty=True)
    done = state.jobs.get("a")
    assert done is not None
    assert (done.state, done.exit_status, done.run, done.failures) == ("done", 0, RUN, 0)
    assert [found.run.id for found in RunRepository(first.root / "runs").query()] == [RUN]
    assert (second.root / "runs" / "trash" / later).is_dir()
    assert said == [f"run {later} goes to the trash: run {RUN} finished job a before"]
