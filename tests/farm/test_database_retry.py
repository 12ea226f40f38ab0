"""The queue while the lab's database is away for a moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workers_made import Recorded, Started, start

from labctl.config.lab import Lab, LabFile
from labctl.database.base import DamagedDatabase, DatabaseAway, patience, patiently
from labctl.errors import BoardBusy, HostError
from labctl.farm.job import JobResult
from labctl.farm.turn import Turn
from labctl.farm.worker import Worker
from labctl.retry import wait_until
from labctl.state.job import NewJob
from labctl.state.jobs import Jobs
from labctl.state.state import LabState, lab_state

AWAY = "cannot use the database: it is starting up; retrying for at most 10 minutes"


@pytest.fixture
def state(tmp_path: Path) -> LabState:
    return lab_state(LabFile(tmp_path, Lab(boards={})))


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the next call of a method of the jobs fail, as while a database restarts."""

    def make(name: str) -> None:
        real, failures = getattr(Jobs, name), list[HostError]()

        def fails_once(*given: Any, **named: Any) -> Any:
            if not failures:
                failures.append(DatabaseAway("cannot use the database: it is starting up"))
                raise failures[0]
            return real(*given, **named)

        def waits(*given: Any, **named: Any) -> Any:
            return patiently(lambda: fails_once(*given, **named))

        monkeypatch.setattr(Jobs, name, waits)

    return make


def test_a_worker_waits_for_the_database(
    state: LabState, away: Callable[[str], None], started: Started
) -> None:
    (job,) = state.jobs.submit(NewJob("q8", {}, ("rk1",)))
    notes, run = list[str](), "20261120T223000Z-q2-abcdef"
    worker = Worker(state, "lab1", ["rk1"], Recorded({job.id: [JobResult(0, run)]}))
    worker.note = notes.append
    for name in ("free_lost", "claim", "start", "finish"):
        away(name)
    start(started, worker)
    assert wait_until(lambda: state.jobs.find(job.id).state == "done", timeout=60, interval=0.05)
    assert state.jobs.find(job.id).run == run
    waits = [note.partition("; retrying")[0] for note in notes if "retrying" in note]
    assert waits == [AWAY.partition(";")[0]] * 4


def test_who_waits_for_a_board_keeps_the_place(
    state: LabState,
    tmp_path: Path,
    away: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes: list[str] = []
    job = NewJob("q8", {}, ("rk1",), runner="process")
    turn = Turn(state, tmp_path, job, lambda _place: None, notes.append)
    away("claim_own")

    def use(_board: str) -> int:
        away("finish")
        return 1

    assert turn.take(use, BoardBusy) == 1
    assert state.jobs.find(job.id).exit_status == 1
    assert capsys.readouterr().err.splitlines() == [AWAY] * 2


def test_what_waiting_does_not_mend_is_told_at_once(state: LabState, tmp_path: Path) -> None:
    state.jobs.submit(NewJob("q8", {}, ("rk1",)))
    (tmp_path / "labctl.sqlite").write_bytes(b"no database" * 1000)
    worker, notes = Worker(state, "lab1", ["rk1"], Recorded()), list[str]()
    worker.note = notes.append
    with pytest.raises(DamagedDatabase) as damaged:
        worker.run()
    assert "labctl state restore FILE" in (damaged.value.hint or "")
    assert notes == []


def test_who_waits_for_a_database_is_told_what_may_help() -> None:
    notes, answers = list[str](), iter([DatabaseAway("it is away", hint="is it running?"), None])

    def ask() -> int:
        if error := next(answers):
            raise error
        return 1

    with patience(note=notes.append):
        assert patiently(ask) == 1
    assert notes == ["it is away; retrying for at most 10 minutes (is it running?)"]
