"""``labctl logs`` of a job whose run is on another host of the lab."""

from pathlib import Path

import pytest
from cli_calls import Labctl

from labctl.config.lab import find_lab
from labctl.records.events import End, Note
from labctl.runs.record.directory import LOCK
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS

RUN = "20261123T015140Z-q8-latency-b318de"


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    return empty_lab


@pytest.fixture
def state(lab: Path) -> LabState:
    return lab_state(find_lab(lab, TRANSPORTS))


@pytest.fixture
def elsewhere(state: LabState) -> Job:
    """A job that a worker of another host runs; its run directory is there."""
    state.jobs.submit(NewJob("q8-latency", {}, ("rk1",), "run"))
    (job,) = state.jobs.claim(["rk1"], "lab1:77:0123abcd")
    return state.jobs.start(job, RUN)


def fetch(lab: Path) -> None:
    """Bring the run here, as the lab's store does once it has ended."""
    run = lab / "runs" / RUN
    run.mkdir(parents=True)
    (run / LOCK).touch()
    events = (
        Note(utc="2026-11-23T01:51:44Z", text="trial 1 of 1"),
        End(utc="2026-11-23T01:51:49Z", state="failed", exit_status=1),
    )
    text = "".join(f"{event.model_dump_json()}\n" for event in events)
    (run / "events.jsonl").write_text(text)


def test_a_job_of_another_host_is_followed_to_its_end(
    labctl: Labctl, lab: Path, state: LabState, elsewhere: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def end_meanwhile(_seconds: float) -> None:
        looks.append(1)
        if len(looks) == 3:
            fetch(lab)
            state.jobs.finish(elsewhere, 1)

    monkeypatch.setattr("labctl.cli.logs.interrupts.sleep", end_meanwhile)
    out, err = labctl("logs", "-f", elsewhere.id, status=1)
    assert len(looks) == 3
    assert err.count(f"job {elsewhere.id} is running on host lab1") == 1
    assert out.splitlines()[-1].endswith("failed, exit status 1")


def test_its_lines_are_there_when_it_ended(labctl: Labctl, elsewhere: Job) -> None:
    out, err = labctl("logs", elsewhere.id)
    assert out == ""
    assert f"job {elsewhere.id} is running on host lab1" in err
    assert "`labctl logs -f" in err
