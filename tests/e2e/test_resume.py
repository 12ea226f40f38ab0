"""A run goes on after any death of controller, link or board, and is as if nothing had been."""

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from labs import LabUnderTest, RunningLabctl, blamed, said

from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]


def trials(*tokens: int) -> tuple[str, ...]:
    """Options for a trial of each number of tokens.

    Of 12, one lasts three seconds on any host: long enough to be struck in the middle.
    """
    return "--set", f"matrix.tokens={list(tokens)}", "--set", "parameters.tokens="


def trials_of(lab: LabUnderTest) -> list[dict[str, Any]]:
    """All records of the only run."""
    documents: dict[str, Any] = json.loads(lab.run("report", "latest", "--json").text)
    found: list[dict[str, Any]] = documents["trials"]
    return found


def essence(lab: LabUnderTest) -> list[tuple[object, ...]]:
    """What the records of a run say, times and names of jobs aside, and the text that was made.

    How much of the model was in memory before a trial is the kernel's business.
    """
    folders = {
        int(p.parent.name[:3]): p.parent for p in lab.root.glob("runs/*/trials/*/record.json")
    }
    found = []
    for trial in trials_of(lab):
        stdout = (folders[trial["number"]] / "stdout").read_bytes()
        trial["comparability"].pop("model_cache", None)
        same = [
            trial[key] for key in ("number", "slug", "state", "argv", "parameters", "comparability")
        ]
        found.append((*same, trial["timing"]["generated_tokens"], stdout))
    return found


def one_line_a_trial(lab: LabUnderTest, count: int) -> None:
    """No trial is lost, none is there twice, wherever one looks."""
    (path,) = lab.root.glob("runs/*/records.jsonl")
    numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    assert numbers == list(range(1, count + 1))
    assert lab.end()["state"] == "finished"
    assert lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs").text == ""


def kill(running: RunningLabctl) -> None:
    running.process.send_signal(signal.SIGKILL)
    running.finish()


def test_a_killed_controller_leaves_a_run_that_another_one_finishes(lab: LabUnderTest) -> None:
    # The second lasts some seconds on an emulated board.
    running = lab.start("run", lab.recipe(), *trials(4, 120, 8), "--set", "context=200")
    running.waiting_for(lambda: lab.is_under_way(2))
    kill(running)
    assert len(lab.finished_trials()) == 1
    told = lab.run("report").text.splitlines()[1]
    assert told.startswith("interrupted: 1 of ")
    assert "; infra: labctl was killed, or its host stopped; continue with `labctl resume " in told
    # As if it had died a moment earlier, between a record and the end of the job's files.
    (run,) = lab.root.glob("runs/2*")
    Path(lab.board.workdir, "jobs", f"{run.name}-1").mkdir()
    done = lab.run("resume", "latest")
    assert done.exit_status == 0, said(done)
    assert "1 of 3 trials were finished" in said(done)
    one_line_a_trial(lab, 3)
    first, second, third = trials_of(lab)
    assert (first["resumed"], second["resumed"], third["resumed"]) == (0, 1, 1)
    # The job that was under way was taken over: it began before the controller died.
    assert second["attempt"] == 1
    assert second["job"]["epoch"] == first["job"]["epoch"] < third["job"]["epoch"]
    again = lab.run("resume", "latest")
    blamed(again, 2, "config", "is finished; nothing to resume")


def test_ctrl_c_stops_the_board_and_says_how_to_go_on(talking: LabUnderTest) -> None:
    running = talking.start("run", "talking", *trials(2, 12, 3))
    running.waiting_for(lambda: talking.is_under_way(2))
    running.process.send_signal(signal.SIGINT)
    interrupted = running.finish()
    assert interrupted.exit_status == 130
    run = next(talking.root.glob("runs/2*")).name
    assert f"to continue: labctl resume {run}" in said(interrupted)
    assert talking.run("shell", "vb", "--", "ls", f"{talking.board.workdir}/jobs").text == ""
    done = talking.run("resume", run)
    assert done.exit_status == 0, said(done)
    one_line_a_trial(talking, 3)


def test_a_board_that_restarts_in_mid_trial_costs_that_trial_once(talking: LabUnderTest) -> None:
    running = talking.start("run", "talking", *trials(2, 12, 3))
    running.waiting_for(lambda: talking.is_under_way(2))
    Control(talking.board.directory).add(f.Reboot(on="now"))
    done = running.finish()
    assert done.exit_status == 0, said(done)
    one_line_a_trial(talking, 3)
    second = trials_of(talking)[1]
    assert (second["state"], second["attempt"]) == ("ok", 2)
    (cut,) = second["earlier_failures"]
    assert (cut["kind"], cut["blame"]) == ("BoardRebooted", "infra")
    # The board was locked and taken anew, as it is now.
    before, after = trials_of(talking)[0]["job"], second["job"]
    assert after["boot_id"] != before["boot_id"]
    assert after["epoch"] > before["epoch"]


def test_a_board_that_restarts_under_a_resumed_run_costs_that_trial_once(
    talking: LabUnderTest,
) -> None:
    """What takes the board anew after the first trial knows the boot that it is in by then."""
    running = talking.start("run", "talking", *trials(12, 2))
    running.waiting_for(lambda: talking.is_under_way(1))
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130
    resumed = talking.start("resume")
    resumed.waiting_for(lambda: talking.is_under_way(1))
    Control(talking.board.directory).add(f.Reboot(on="now"))
    done = resumed.finish()
    assert done.exit_status == 0, said(done)
    one_line_a_trial(talking, 2)
    first, second = trials_of(talking)
    assert [cut["kind"] for cut in first["earlier_failures"]] == ["BoardRebooted"]
    assert second["earlier_failures"] == []  # nothing befell it
    assert second["job"]["boot_id"] == first["job"]["boot_id"]


def test_another_program_is_another_run(talking: LabUnderTest) -> None:
    running = talking.start("run", "talking", *trials(2, 12)).after_a_trial()
    kill(running)
    model = talking.root / "models" / "any.bin"
    model.write_bytes(model.read_bytes() + b"\0")
    (talking.root / "models.lock.yaml").unlink()  # which would refuse it before
    done = talking.run("resume")
    blamed(done, 2, "config", "cannot be resumed: model none was", "start a new run: `labctl run`")
    assert len(talking.finished_trials()) == 1


def killed_at_random(lab: LabUnderTest, kills: int, seed: int, tokens: tuple[int, ...]) -> None:
    """Kill controllers of one run until none is left to kill; its records are as if none had been.

    Raises AssertionError.
    """
    words = trials(*tokens)
    undisturbed = lab.run("run", "talking", *words)
    assert undisturbed.exit_status == 0, said(undisturbed)
    wanted = essence(lab)
    seconds = undisturbed.duration_ns / 1e9
    chance = random.Random(seed)
    left = kills
    while left:
        shutil.rmtree(lab.root / "runs")
        left = killed_until_it_ends(lab, words, left, lambda: chance.uniform(0.2, seconds))
        one_line_a_trial(lab, len(tokens))
        assert essence(lab) == wanted


def killed_until_it_ends(
    lab: LabUnderTest, options: tuple[str, ...], kills: int, moment: Callable[[], float]
) -> int:
    """One run, gone on with after each kill; how many kills were not needed for it."""
    words: tuple[str, ...] = ("run", "talking", *options)
    while kills:
        before = len(lab.finished_trials())
        running = lab.start(*words)
        time.sleep(moment())  # the moment is the point
        if running.ended:
            done = running.finish()
            assert done.exit_status == 0, said(done)
            return kills
        kill(running)
        kills -= 1
        assert len(lab.finished_trials()) >= before
        if list(lab.root.glob("runs/*/end.json")):
            return kills  # it had said how the run ended, and died after that
        if list(lab.root.glob("runs/*/run.json")):
            words = ("resume", "latest")
    done = lab.run(*words)
    assert done.exit_status == 0, said(done)
    return 0


@pytest.mark.parametrize(
    ("kills", "tokens"),
    [
        pytest.param(2, (3, 5, 4), marks=pytest.mark.soak),
        pytest.param(50, (11, 12, 13, 14), marks=pytest.mark.soak),
    ],
)
def test_a_run_whose_controllers_are_killed_is_as_an_undisturbed_one(
    talking: LabUnderTest, kills: int, tokens: tuple[int, ...]
) -> None:
    killed_at_random(talking, kills, kills, tokens)


def reached(lab: LabUnderTest, number: int) -> bool:
    return lab.is_under_way(number) or len(lab.finished_trials()) >= number


def has_struck(board: Control, times: int) -> bool:
    return sum(fault.fired for fault in board.states()) == times


@pytest.mark.parametrize(
    ("drops", "repeats", "tokens"), [(3, 4, 4), pytest.param(30, 30, 12, marks=pytest.mark.soak)]
)
def test_a_link_that_is_dropped_again_and_again_costs_nothing(
    talking: LabUnderTest, drops: int, repeats: int, tokens: int
) -> None:
    """All through a run, at the begin or in the midst of whatever comes over the link."""
    sizes = ("--set", f"repeats={repeats}", "--set", f"tokens={tokens}")
    words = ("run", "talking", *sizes)
    undisturbed = talking.run(*words)
    assert undisturbed.exit_status == 0, said(undisturbed)
    wanted = essence(talking)
    shutil.rmtree(talking.root / "runs")
    running = talking.start(*words)
    board, chance = Control(talking.board.directory), random.Random(drops)
    for drop in range(drops):
        # The last trial is left to the last drop: it strikes a later command.
        running.waiting_for(partial(reached, talking, 1 + drop * (repeats - 1) // drops))
        board.add(f.Drop(nth=chance.randint(1, 6), after_bytes=chance.choice((0, 100))))
        running.waiting_for(partial(has_struck, board, drop + 1))
    done = running.finish()
    assert done.exit_status == 0, said(done)
    assert "retrying" in said(done)
    one_line_a_trial(talking, repeats)
    assert essence(talking) == wanted
    assert {trial["attempt"] for trial in trials_of(talking)} == {1}
