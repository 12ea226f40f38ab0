"""Kills at random moments: what was finished stays, and the next run works. `make soak` only."""

import json
import random
import signal
import sys
import time

import pytest
from labs import LabUnderTest, said

from labctl import process

pytestmark = [pytest.mark.soak, pytest.mark.e2e]

KILLS = 30


def test_the_controller_is_killed_at_random_moments(lab: LabUnderTest) -> None:
    recipe = lab.recipe()
    undisturbed = lab.run("run", recipe, "--set", "repeats=4", "--json")
    assert undisturbed.exit_status == 0, said(undisturbed)
    wanted = json.loads(undisturbed.stdout)["trials"][0]["timing"]["generated_tokens"]
    whole = undisturbed.duration_ns / 1e9
    chance = random.Random(1)
    for kill in range(KILLS):
        runs_before = {run["id"] for run in _listed(lab)}
        words = [sys.executable, "-m", "labctl", "run", recipe, "--set", "repeats=4"]
        running = process.start(words, cwd=lab.root)
        time.sleep(chance.uniform(0.2, whole))  # the moment is the point
        running.send_signal(signal.SIGKILL)
        running.wait()
        for pipe in (running.stdout, running.stderr):
            assert pipe is not None
            pipe.close()
        for run in {run["id"] for run in _listed(lab)} - runs_before:
            document = json.loads(lab.run("report", run, "--json").stdout)
            for trial in document["trials"]:
                assert trial["state"] == "ok", (kill, trial["failure"])
                assert trial["timing"]["generated_tokens"] == wanted
        again = lab.run("run", recipe)
        assert again.exit_status == 0, (kill, said(again))
        print(f"kill {kill + 1}/{KILLS}: fine", flush=True)


def _listed(lab: LabUnderTest) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads(lab.run("runs", "--json").stdout or "[]")
    return listed
