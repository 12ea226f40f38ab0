"""``labctl watch`` beside a real run, and what the run's events hold."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from labs import TALKING, LabUnderTest, blamed, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def talking(talking: LabUnderTest) -> LabUnderTest:
    """Its recipe has two trials."""
    talking.recipe(TALKING + "repeats: 2\n", "talking")
    return talking


def run_of(lab: LabUnderTest) -> Path:
    (run,) = lab.root.glob("runs/2*")
    return run


def events_of(lab: LabUnderTest) -> list[dict[str, Any]]:
    lines = (run_of(lab) / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_another_process_sees_the_run_its_controllers_death_and_how_it_goes_on(
    talking: LabUnderTest,
) -> None:
    running = talking.start("run", "talking")
    running.waiting_for(lambda: talking.has_written(1, "stdout"))
    watching = talking.start("watch")
    # It waits while the controller lives, with nothing to be read but the run's own files.
    watching.waiting_for(lambda: len(talking.finished_trials()) == 1)
    running.waiting_for(lambda: talking.is_under_way(2))
    assert not watching.ended
    running.process.send_signal(signal.SIGKILL)
    running.finish()
    seen = watching.finish()
    assert seen.exit_status == 3, said(seen)
    run = run_of(talking).name
    assert "ms per token" in said(seen)
    assert f"the controller of run {run} is gone since" in said(seen)
    assert f"to continue: labctl resume {run}" in said(seen)

    done = talking.run("resume")
    assert done.exit_status == 0, said(done)
    late = talking.run("watch", run)
    assert late.exit_status == 0, said(late)
    assert said(late).count("ms per token") == 2
    assert f"labctl report {run}" in said(late)


def test_the_events_of_a_run_hold_it_from_its_boards_answer_to_its_end(
    talking: LabUnderTest,
) -> None:
    done = talking.run("run", "talking", "--set", "tokens=12")
    assert done.exit_status == 0, said(done)
    events = events_of(talking)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "contact"
    assert kinds[-1] == "end"
    assert kinds.index("deploy") < kinds.index("trial")
    assert "progress" in kinds
    assert (events[0]["run"], events[0]["board"]) == (run_of(talking).name, "vb")
    states = [event["state"] for event in events if event["event"] == "trial"]
    assert states == ["started", "ok", "started", "ok"]
    assert (events[-1]["state"], events[-1]["exit_status"]) == ("finished", 0)
    assert {event["schema_version"] for event in events} == {1}


def test_a_run_that_is_refused_leaves_no_directory(talking: LabUnderTest) -> None:
    devices = talking.root / "devices.yaml"
    devices.write_text(devices.read_text() + "    limits: {storage: 100B}\n")
    refused = talking.run("run", "talking")
    blamed(refused, 2, "config", "limits.storage is 100 B")
    assert not list(talking.root.glob("runs/*/run.json"))
    assert not [one for one in talking.root.glob("runs/*") if one.is_dir()]


def test_events_of_a_run_that_is_interrupted_say_so(talking: LabUnderTest) -> None:
    running = talking.start("run", "talking")
    running.waiting_for(lambda: talking.is_under_way(1))
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130
    end = events_of(talking)[-1]
    assert (end["event"], end["state"], end["exit_status"]) == ("end", "interrupted", 130)
    seen = talking.run("watch")
    assert seen.exit_status == 130
    assert "to continue: labctl resume" in said(seen)
