"""The queue of one host as the source of its dispatcher."""

from dataclasses import replace
from pathlib import Path

import pytest

from labctl.config.lab import Lab, LabFile
from labctl.farm import queue_source
from labctl.farm.job import JobResult
from labctl.farm.queue_source import QueueSource
from labctl.state import NewJob, lab_state, leases, sql


def test_a_job_whose_process_stood_still_is_not_begun_twice_by_it(tmp_path: Path) -> None:
    """It is taken for lost, as after a night in a closed laptop; another may have it then."""
    lab = LabFile(tmp_path, Lab(boards={}))
    dying = lab_state(replace(lab, lease_seconds=-1.0))
    (job,) = dying.jobs.submit(NewJob("q8", {}, ("rk1", "rk2")))
    source = QueueSource(dying, tmp_path / "runs", {"rk1": (), "rk2": ()}, {})
    ((begun, board),) = source.begin()
    assert (begun.id, board) == (job.id, "rk1")
    assert source.begin() == []
    assert source.end(begun, JobResult(0, "run")) is None  # the queue no longer knows the attempt
    assert [one.id for one, _ in source.begin()] == [job.id]  # which finds its run finished


def test_a_process_whose_host_slept_renews_its_jobs_before_it_looks_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = lab_state(LabFile(tmp_path, Lab(boards={})))
    (job,) = state.jobs.submit(NewJob("q8", {}, ("rk1", "rk2")))
    source = QueueSource(state, tmp_path / "runs", {"rk1": (), "rk2": ()}, {})
    assert source.begin()
    with state.changing() as connection:
        sql.run(connection, "UPDATE job SET expires = 0", {})
    slept = leases.steady_seconds() + 3600
    monkeypatch.setattr(queue_source, "steady_seconds", lambda: slept)
    assert source.begin() == []
    assert state.jobs.find(job.id).state == "running"


def test_a_job_that_somebody_cancels_is_stopped_at_the_next_look(tmp_path: Path) -> None:
    """Not at the next sign of life, which is due every 15 s."""
    state, stopped = lab_state(LabFile(tmp_path, Lab(boards={}))), list[str]()
    (job,) = state.jobs.submit(NewJob("q8", {}, ("rk1",)))
    source = QueueSource(state, tmp_path / "runs", {"rk1": ()}, {})
    source.on_stop = stopped.append
    assert source.begin()
    assert source.begin() == []
    assert stopped == []
    state.jobs.cancel(job.id, "wrong model")
    source.begin()
    assert stopped == [job.id]
