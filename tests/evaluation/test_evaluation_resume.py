"""Evaluations that are cut short, at any point: what is answered is never asked again."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from evaluations import boxed, number_of, recipe_text, sums_lab
from scripted_answers import Answer, Asked
from scripted_endpoint import ScriptedEndpoint, scripted_endpoint

from labctl.cli.root import run_cli
from labctl.evaluation.directory import EvaluationDirectory
from labctl.retry import wait_until
from labctl.runs.record.directory import RunDirectory


def slow(asked: Asked) -> Answer:
    return Answer(boxed(2 * number_of(asked)), first_s=0.02)


def start(lab: Path, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "labctl", "--lab", str(lab), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def answered(lab: Path) -> int:
    files = list(lab.glob("runs/*/generations.jsonl"))
    return sum(file.read_bytes().count(b"\n") for file in files)


def only_run(lab: Path) -> EvaluationDirectory:
    (found,) = lab.glob("runs/2*")
    return EvaluationDirectory(RunDirectory(found))


def kill_when(lab: Path, process: "subprocess.Popen[bytes]", count: int, number: int) -> None:
    """Send a signal once so many answers are on disk."""
    wait_until(
        lambda: answered(lab) >= count or process.poll() is not None, timeout=60, interval=0.002
    )
    process.send_signal(number)
    process.communicate()


def check_asked_once(server: ScriptedEndpoint, kills: int, concurrency: int) -> None:
    """At most what was in flight at a kill was asked twice."""
    asked = Counter(request.text for request in server.answered)
    assert sum(count - 1 for count in asked.values()) <= kills * concurrency


def killed_and_resumed(tmp_path: Path, *, questions: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    lab = sums_lab(tmp_path / f"lab{seed}", questions).root
    with scripted_endpoint(slow) as server:
        recipe = lab / "sums.yaml"
        recipe.write_text(recipe_text({"m": [server.address]}, concurrency=4))
        process = start(lab, "run", str(recipe))
        for _ in range(kills):
            number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            kill_when(lab, process, answered(lab) + chance.randrange(1, questions // kills), number)
            recipe.write_text("nothing of it matters any more")
            ended = only_run(lab).end()
            if ended is not None and ended.state == "finished":
                break  # before its kill
            process = start(lab, "resume", "latest")
        else:
            output, _ = process.communicate()
            assert process.returncode == 0, output.decode()
        check_asked_once(server, kills, concurrency=4)
    run = only_run(lab)
    end = run.end()
    assert end is not None
    assert (end.state, end.answered, end.failed) == ("finished", questions, 0)
    assert {one.question for one in run.generations()} == set(run.record().dataset.questions)
    (accuracy,) = end.accuracies
    assert (accuracy.correct, accuracy.graded) == (questions, questions)


def test_a_killed_evaluation_asks_only_what_is_missing(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, questions=60, kills=2, seed=1)


@pytest.mark.soak
def test_soak_kills_at_random(tmp_path: Path) -> None:
    for seed in range(20):
        killed_and_resumed(tmp_path, questions=120, kills=6, seed=seed)


def test_a_torn_last_line_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = sums_lab(tmp_path / "lab", 4).root
    with scripted_endpoint(slow) as server:
        recipe = lab / "sums.yaml"
        recipe.write_text(recipe_text({"m": [server.address]}))
        assert run_cli(["--lab", str(lab), "run", str(recipe)]) == 0
        run = only_run(lab)
        journal = run.path / "generations.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
        (run.path / "end.json").unlink()
        asked = len(server.answered)
        assert run_cli(["--lab", str(lab), "resume", "latest"]) == 0
        assert len(server.answered) == asked + 1
    assert len(list(run.generations())) == 4
    assert run.end().resumed == 1  # type: ignore[union-attr]
    capsys.readouterr()


def test_other_questions_are_no_continuation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = sums_lab(tmp_path / "lab", 4).root
    with scripted_endpoint(slow) as server:
        recipe = lab / "sums.yaml"
        recipe.write_text(recipe_text({"m": [server.address]}))
        assert run_cli(["--lab", str(lab), "run", str(recipe)]) == 0
        run = only_run(lab)
        (run.path / "end.json").unlink()
        (lab / "sums.jsonl").write_text(json.dumps({"question": "1?", "answer": "1"}) + "\n")
        capsys.readouterr()
        assert run_cli(["--lab", str(lab), "resume", "latest"]) == 2
    told = capsys.readouterr().err
    assert "cannot be resumed: the data set sums.jsonl changed" in told
    assert "start a new one: `labctl run`" in told
