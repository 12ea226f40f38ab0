"""``labctl run`` while it runs, as a person sees it; programs on the CPUs that were asked for."""

import json
import os
import re
import subprocess
import sys

import pytest
from labs import TALKING, LabUnderTest, blamed, said
from terminals import terminal

from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

COLUMNS = 100


def test_a_person_sees_phase_tokens_rate_heat_and_what_is_left(talking: LabUnderTest) -> None:
    Control(talking.board.directory).add(f.Throttle(on="now", celsius=71.5))
    words = [sys.executable, "-m", "labctl", "run", talking.recipe(TALKING)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    with terminal(COLUMNS) as (theirs, seen):
        done = subprocess.run(
            words,
            cwd=talking.root,
            env=environment,
            stderr=theirs,
            stdout=subprocess.DEVNULL,
            timeout=200,
            check=False,
        )
    raw = b"".join(seen).decode(errors="replace")
    assert done.returncode == 0, raw[-3000:]
    shown = re.sub(r"\x1b\[[0-9;?]*m", "", raw)
    standings = re.findall(r"generating, (\d+)/48 tokens, ([\d.]+) tokens/s, 71\.5 °C", shown)
    assert standings, shown[-3000:]
    # It is a rate of tokens, and no more than they were made at.
    assert 0 < float(standings[-1][1]) < 4.1
    assert 1 < int(standings[0][0]) < 48
    assert re.search(r"trial 1/1 \S+ .*0:0\d:\d\d left", shown)
    # The block is redrawn where it is, and one line of result stays.
    assert re.search(r"trial 1/1 \S+: [\d.]+ ms per token \(took [\d.]+ s\)", shown)
    assert "\x1b[1A" in raw


def test_without_a_terminal_there_are_only_lines(talking: LabUnderTest) -> None:
    done = talking.run("run", talking.recipe(TALKING), "--set", "tokens=4")
    assert done.exit_status == 0, said(done)
    assert "\x1b" not in said(done)
    assert "\r" not in said(done)
    (line,) = [line for line in said(done).splitlines() if line.startswith("trial 1/1")]
    assert re.fullmatch(r"trial 1/1 \S+: [\d.]+ ms per token \(took [\d.]+ s\)", line)


def test_a_program_runs_on_the_cpus_and_with_the_priority_that_the_recipe_asks_for(
    talking: LabUnderTest,
) -> None:
    last = max(os.sched_getaffinity(0))
    placed = TALKING + f"scheduling: {{cpus: {last}, nice: 3}}\n"
    done = talking.run("run", talking.recipe(placed), "--set", "tokens=2")
    assert done.exit_status == 0, said(done)
    (folder,) = talking.finished_trials()
    conditions = json.loads((folder / "record.json").read_text())["comparability"]
    assert conditions["cpus"] == str(last)
    assert conditions["nice"] == min(19, os.nice(0) + 3)


def test_what_nobody_asked_for_is_recorded_too(talking: LabUnderTest) -> None:
    done = talking.run("run", talking.recipe(TALKING), "--set", "tokens=2")
    assert done.exit_status == 0, said(done)
    (folder,) = talking.finished_trials()
    conditions = json.loads((folder / "record.json").read_text())["comparability"]
    assert len(conditions["cpus"]) >= 1
    assert conditions["nice"] == os.nice(0)
    assert "memlock_bytes" not in conditions


def test_cpus_that_the_board_lacks_are_told_with_their_line_before_anything_is_sent(
    talking: LabUnderTest,
) -> None:
    placed = TALKING + "scheduling:\n  cpus: 0,1000-1001\n"
    line = placed.splitlines().index("  cpus: 0,1000-1001") + 1
    path = talking.recipe(placed)
    for command in ("run", "plan"):
        refused = talking.run(command, path)
        blamed(
            refused,
            2,
            "config",
            f"{path}:{line}:9: scheduling.cpus: the board has no CPU 1000-1001",
        )
    assert talking.run("shell", "vb", "--", "ls", talking.board.workdir).text.strip() == ""
    assert talking.finished_trials() == []
