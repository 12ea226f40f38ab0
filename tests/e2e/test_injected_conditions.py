"""Heat, want of memory and stolen time in whole runs: in the records, in the table, in words."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_builds import native_agent
from bare_board import TARGET, BareBoard
from labs import LabUnderTest, said, write_devices

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

RECIPE = f"""\
name: ticking
target: {TARGET}
engine:
  name: command
  program: {{file: tools/tick}}
  arguments: []
  tokens: {{stream: stdout, each: line}}
  output:
    - stream: stderr
      pattern: "^made (?P<n>[0-9]+)$"
      values: {{n: {{metric: generated_tokens, unit: tokens}}}}
models: {{none: {{file: tools/tick}}}}
repeats: 2
max_time: 5m
"""
#: Ten tokens a second, for as long that the telemetry has several samples of it; from the second
#: time on, two seconds of them are after what happens, whenever that is.
TICK = """\
#!/bin/sh
made=0
tick() {
    n=0
    while [ $n -lt $1 ]; do sleep 0.1; echo token; n=$((n + 1)); done
    made=$((made + n))
}
tick 20
if [ -e "$HOME/second" ]; then until [ -e "$HOME/happened" ]; do tick 1; done; fi
touch "$HOME/second"
tick 20
echo "made $made" >&2
"""
#: From 200 to 300 ms a token in the middle: what a busy host adds to each is little of it.
STEP = """\
#!/bin/sh
tick() { n=0; while [ $n -lt 12 ]; do sleep $1; echo token; n=$((n + 1)); done; }
tick 0.2
tick 0.3
echo "made 24" >&2
"""


@pytest.fixture
def board(tmp_path: Path) -> BareBoard:
    return BareBoard(tmp_path / "board")


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, board: BareBoard) -> Iterator[LabUnderTest]:
    """A lab with a program that ticks, and a board that is nothing but a board."""
    native_agent()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "tick").write_text(TICK)
    with board.served() as served:
        write_devices(tmp_path, served.address, served.workdir, target=TARGET)
        yield LabUnderTest(tmp_path, served)


def about_the_board(trial: dict[str, Any]) -> list[dict[str, Any]]:
    """Leave out when the ticks came and were seen, which is as even as the host."""
    of_time = ("drift", "stamps", "arrivals")
    return [check for check in trial["checks"] if check["name"] not in of_time]


def steal(board: BareBoard) -> None:
    board.stolen = 0.5


def leave_no_memory(board: BareBoard) -> None:
    board.leave_memory(30_000)


@pytest.mark.parametrize(
    ("happens", "check", "detail"),
    [
        (BareBoard.throttle, "frequency", "816 to 1992 MHz, DRAM 1560 MHz, up to 95 °C"),
        pytest.param(
            *(leave_no_memory, "memory", "30.7 MB of 2.05 GB was available at the least"),
            marks=pytest.mark.soak,
        ),
        pytest.param(steal, "steal", "of one CPU stolen", marks=pytest.mark.soak),
    ],
    ids=["throttling", "low memory", "stolen time"],
)
def test_what_happens_to_a_board_in_mid_run_is_told(
    lab: LabUnderTest,
    board: BareBoard,
    happens: Callable[[BareBoard], None],
    check: str,
    detail: str,
) -> None:
    running = lab.start("run", lab.recipe(RECIPE, "ticking"), "--json")
    # What is so from the first sample to the last is no change: only then may it happen.
    running.waiting_for(lambda: lab.has_written(2, "telemetry"))
    happens(board)
    (board.folder / "happened").touch()
    done = running.finish()
    assert done.exit_status == 0, said(done)
    document = json.loads(done.stdout)
    assert {trial["execution"] for trial in document["trials"]} == {"board"}
    first, second = (
        {c["name"]: c["detail"] for c in about_the_board(trial) if c["ok"] is False}
        for trial in document["trials"]
    )
    assert first == {}
    assert list(second) == [check]
    assert detail in second[check]
    (row,) = document["rows"]
    assert check in row["checks_failed"]
    shown = lab.run("report", "--wide").text
    assert "FAILED: " + ", ".join(row["checks_failed"]) in shown
    assert f"none: {check} failed in 1 of 2 trials; trial 2: {second[check]}" in shown


def test_a_board_to_which_nothing_happens_is_steady(lab: LabUnderTest, board: BareBoard) -> None:
    (board.folder / "happened").touch()
    done = lab.run("run", lab.recipe(RECIPE, "ticking"), "--json")
    assert done.exit_status == 0, said(done)
    for trial in json.loads(done.stdout)["trials"]:
        checks = {check["name"]: check["ok"] for check in about_the_board(trial)}
        assert {"frequency", "memory", "quiet"} <= checks.keys()
        assert set(checks.values()) == {True}


def test_a_rate_that_steps_inside_a_trial_is_told(lab: LabUnderTest) -> None:
    (lab.root / "tools" / "tick").write_text(STEP)
    done = lab.run("run", lab.recipe(RECIPE, "ticking"), "--set", "repeats=1", "--json")
    assert done.exit_status == 0, said(done)
    document = json.loads(done.stdout)
    (trial,), (row,) = document["trials"], document["rows"]
    (check,) = [check for check in trial["checks"] if check["name"] == "drift"]
    assert check["ok"] is False
    assert re.search(r"; last quarter 1\.[345]\d times the first$", check["detail"])
    assert "drift" in row["checks_failed"]
