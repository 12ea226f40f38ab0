"""Runs on a virtual phone whose adb server dies, and which is known under two serials."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labs import LabUnderTest, RunningLabctl, give_talker, lab_with_phone, said, write_phone
from official_adb import OfficialAdb, official_adb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture
def adb(tmp_path: Path) -> Iterator[OfficialAdb]:
    with official_adb("36", tmp_path) as adb:
        yield adb


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, adb: OfficialAdb) -> Iterator[LabUnderTest]:
    (tmp_path / "lab").mkdir()
    with lab_with_phone(tmp_path / "lab", adb) as lab:
        yield lab


def killed(adb: OfficialAdb) -> None:
    """Kill the server, and start another one, as its owner would."""
    adb.server.kill()
    adb.server.wait(10)
    adb.server = adb.start_server()


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_no_kill_of_the_server_loses_or_doubles_a_trial(
    lab: LabUnderTest, adb: OfficialAdb, kills: int
) -> None:
    trials = kills
    chance = random.Random(kills)
    asked = ("--set", "parameters.tokens=6", "--set", f"repeats={trials}")
    running: RunningLabctl = lab.start("run", "talking", *asked)
    resumed = 0
    for kill in range(kills):
        running.waiting_for(lambda done=kill: len(lab.finished_trials()) >= done)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 1.5))  # the moment is the point
        killed(adb)
        if running.ended:
            resumed += 1
            assert running.finish().exit_status in (0, 3)
            running = lab.start("resume", "latest")
    ended = running.finish()
    assert ended.exit_status == 0, said(ended)
    (path,) = lab.root.glob("runs/*/records.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["number"] for record in records] == list(range(1, trials + 1))
    assert [record["state"] for record in records] == ["ok"] * trials
    assert {record["timing"]["generated_tokens"] for record in records} == {6}
    assert {record["attempt"] for record in records} == {1}
    assert lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs").text == ""
    assert resumed <= kills // 10


def test_a_phone_under_two_serials_is_one_board(
    lab: LabUnderTest, adb: OfficialAdb, tmp_path: Path
) -> None:
    port = lab.board.address.rpartition(":")[2]
    other = LabUnderTest(tmp_path / "other", lab.board)
    (other.root / "models").mkdir(parents=True)
    write_phone(other.root, f"localhost:{port}", adb.address, lab.board.workdir)
    give_talker(other)
    running = lab.start("run", "talking")
    running.waiting_for(lambda: lab.is_under_way(1))
    waited = other.run("run", "talking", "--set", "parameters.tokens=3")
    assert waited.exit_status == 0, said(waited)
    assert "board vb is in use by" in said(waited)
    assert "waiting for board vb: place 1 of 1" in said(waited)
    assert running.finish().exit_status == 0
    first, second = (one.end()["finished"] for one in (lab, other))
    assert first < second
