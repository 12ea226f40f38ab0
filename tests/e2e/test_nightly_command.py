"""``labctl nightly`` on a virtual board: real builds and real runs.

A slow head and a night that is killed: test_nightly_hosts.py.
"""

import json
import os
import re
import signal
from collections import Counter
from contextlib import suppress

import forked
import pytest
from labs import LabUnderTest, blamed, said
from night_lab import PLAN, give_ticker, write_source

from labctl import process
from labctl.config.lab import find_lab
from labctl.retry import wait_until
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
def lab(native_lab: LabUnderTest) -> LabUnderTest:
    give_ticker(native_lab.root)
    return native_lab


def test_a_good_head_becomes_the_last_good(lab: LabUnderTest) -> None:
    planned = lab.run("nightly", "plan.yaml", "--dry-run")
    assert planned.exit_status == 0, said(planned)
    assert "ticker/ticking@vb: 8 pairs to screen" in planned.text
    assert "MDE unknown" in planned.text

    good = lab.run("nightly", "plan.yaml")
    assert good.exit_status == 0, said(good)
    assert "GOOD" in good.text
    assert "is head now: baseline nightly-ticks-ticker" in said(good)
    assert "nightly-ticks-ticker" in lab.run("baseline", "list").text
    assert good.text.startswith("GOOD: 1 of 1\n")
    (night,) = (path.name for path in lab.root.glob("nights/2*"))
    parts = [json.loads(path.read_text())["night"] for path in lab.root.glob("runs/*/run.json")]
    assert {one["id"] for one in parts} == {night}
    sides = Counter(one["side"] for one in parts)
    assert sides.keys() == {"good", "head"}
    (series,) = json.loads(lab.run("regressions", "--json").text)["series"]
    (only,) = series["nights"]  # what a busy host made doubtful is left out of it
    assert only["night"] == night
    assert 1 < len(only["runs"]) <= sides["head"]
    trend = (lab.root / "nights" / "ticks.html").read_text()
    assert trend.count("<circle") == 1

    again = lab.run("nightly", "plan.yaml")
    assert again.exit_status == 0, said(again)
    assert "head is the last good program, byte for byte" in again.text


def test_a_night_goes_on_in_the_background(lab: LabUnderTest) -> None:
    (lab.root / "wrong.yaml").write_text(PLAN.replace("[vb]", "[vc]"))
    blamed(lab.run("nightly", "wrong.yaml", "--detach"), 2, "config", "no board 'vc'")
    assert not [*lab.root.glob("nights/2*")]

    done = lab.run("nightly", "plan.yaml", "--detach", "--junit", "junit.xml")
    assert done.exit_status == 0, said(done)
    folder = lab.root / "nights" / done.text.strip()
    log, told = folder / "night.log", re.search(r"process (\d+) runs it; its log: (.*)", said(done))
    assert told is not None
    assert told[2] == str(log)
    pid = int(told[1])
    try:
        assert wait_until(lambda: "continues" in log.read_text(), timeout=120, interval=0.05)
        for words in ([], ["--detach"], ["--detach", "--new"]):
            refused = lab.run("nightly", "plan.yaml", *words)
            blamed(refused, 3, "infra", "another night of this plan")
        assert wait_until(lambda: process.start_time(pid) is None, timeout=300, interval=0.1)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert "GOOD" in log.read_text()
    assert (folder / "result.json").exists()
    assert 'tests="1"' in (lab.root / "junit.xml").read_text()
    assert [path.name for path in lab.root.glob("nights/2*")] == [folder.name]


def test_ctrl_c_lets_the_run_end_and_the_same_command_makes_no_run_again(lab: LabUnderTest) -> None:
    state = lab_state(find_lab(lab.root, TRANSPORTS))

    def states() -> Counter[str]:
        return Counter(job.state for job in state.jobs.list(ended=99) if job.group_id)

    with forked.start(["nightly", "plan.yaml"], cwd=lab.root) as night:
        assert wait_until(lambda: states()["running"] == 1, timeout=120, interval=0.01)
        assert wait_until(lambda: any(lab.root.glob("runs/*/run.json")), timeout=60, interval=0.01)
        night.send_signal(signal.SIGINT)
        _, errors = night.communicate(timeout=120)
    assert night.returncode == 130, errors
    assert b"to continue: labctl nightly plan.yaml" in errors
    assert (states()["done"], states()["waiting"]) == (1, 1)
    (first,) = lab.root.glob("runs/*/end.json")
    assert '"finished"' in first.read_text()

    done = lab.run("nightly", "plan.yaml")
    assert done.exit_status == 0, said(done)
    assert states().keys() == {"done"}
    assert states()["done"] == len([*lab.root.glob("runs/*-ticking-*")])


def test_a_night_that_is_killed_makes_no_run_again(lab: LabUnderTest) -> None:
    """Its own worker dies with it, in the first run of a pair."""
    with forked.start(["nightly", "plan.yaml"], cwd=lab.root) as night:
        started = lambda: any(lab.root.glob("runs/*/trials/*/started.json"))  # noqa: E731
        assert wait_until(started, timeout=120, interval=0.01)
        night.kill()
        night.communicate()
    (run,) = lab.root.glob("runs/*-ticking-*")
    assert not (run / "end.json").exists()

    done = lab.run("nightly", "plan.yaml")
    assert done.exit_status == 0, said(done)
    (journal,) = lab.root.glob("nights/*/night.jsonl")
    steps = [json.loads(line) for line in journal.read_text().splitlines()]
    measured = [one for one in steps if one["event"] == "measured"]
    assert not [one for one in steps if one["event"] == "failed"]
    assert measured[0]["run"] == run.name
    runs = sorted(path.name for path in lab.root.glob("runs/*-ticking-*"))
    assert sorted(one["run"] for one in measured) == runs
    assert len({one["job"] for one in measured}) == len(runs)


def test_a_job_that_somebody_cancels_is_told_and_its_pair_begins_again(lab: LabUnderTest) -> None:
    state = lab_state(find_lab(lab.root, TRANSPORTS))
    with forked.start(["nightly", "plan.yaml"], cwd=lab.root) as night:
        waiting = lambda: [job.id for job in state.jobs.list() if job.state == "waiting"]  # noqa: E731
        assert wait_until(lambda: len(waiting()) == 1, timeout=120, interval=0.01)
        (job,) = waiting()
        assert lab.run("queue", "cancel", job).exit_status == 0
        text, errors = night.communicate(timeout=300)
    assert night.returncode == 0, errors
    assert f"job {job} on board vb was cancelled: " in errors.decode()
    assert "; the night makes its pair of runs again" in errors.decode()
    assert "GOOD" in text.decode()


def test_a_head_that_does_not_compile_is_blamed_and_a_board_that_is_gone_is_not(
    lab: LabUnderTest,
) -> None:
    (lab.root / "source" / "head" / "ticker.c").write_text("int main( {")
    done = lab.run("nightly", "plan.yaml", "--json")
    assert done.exit_status == 1, said(done)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["verdict"], finding["blame"]) == ("does not build", "job")
    assert "ticker.c:" in finding["reason"]
    assert "error:" in finding["details"]

    write_source(lab.root, "head", 21)
    # As long as there is time, the only board may come back.
    (lab.root / "plan.yaml").write_text(PLAN.replace("time: 1h", "time: 1m"))
    process.stop(lab.board.process)
    lost = lab.run("nightly", "plan.yaml", "--json")
    assert lost.exit_status == 3, said(lost)
    (finding,) = json.loads(lost.stdout)["findings"]
    assert (finding["verdict"], finding["blame"]) == ("not measured", "infra")
