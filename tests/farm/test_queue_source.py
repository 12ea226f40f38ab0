"""The queue of one host as the source of its scheduler."""

from pathlib import Path

from labctl.config.lab import Lab, LabFile
from labctl.farm.queue_source import QueueSource
from labctl.state import NewJob, lab_state


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
