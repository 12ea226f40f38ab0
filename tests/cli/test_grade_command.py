"""``labctl grade``: kept answers are judged again, without any server."""

import json
from pathlib import Path

import pytest
from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from load_tests_made import Load, made_load_test
from scripted_answers import Asked
from scripted_endpoint import scripted_endpoint

from labctl.cli.progress import Step
from labctl.cli.root import run_cli
from labctl.errors import ExitStatus
from labctl.evaluation.graders.numeric import Numeric

Printed = pytest.CaptureFixture[str]


def mixed(asked: Asked) -> str:
    """Right in a box, right in an open box, or right and followed by another number."""
    n = number_of(asked)
    box = boxed(2 * n, words=1)
    return (box, box.removesuffix("}"), f"{box} of 100")[n % 3]


@pytest.fixture
def graded(tmp_path: Path, capsys: Printed) -> Path:
    """The directory of a run of six questions, whose server is gone."""
    lab = sums_lab(tmp_path / "lab", 6)
    with scripted_endpoint(mixed) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}, budgets=[1, "unlimited"]))
        run = evaluate(lab, recipe).directory.path
    (lab.root / "sums.jsonl").unlink()
    capsys.readouterr()
    return run


def rows(capsys: Printed) -> dict[tuple[int | None, str], int]:
    found = json.loads(capsys.readouterr().out)
    return {(row["budget"], row["grader"]): row["right"] for row in found["rows"]}


def test_other_graders_judge_the_same_answers(graded: Path, capsys: Printed) -> None:
    assert run_cli(["grade", str(graded), "-g", "qwen", "-g", "numeric", "--json"]) == 0

    assert rows(capsys) == {
        (1, "boxed"): 0,
        (1, "qwen"): 0,
        (1, "numeric"): 0,
        (None, "boxed"): 4,
        (None, "qwen"): 6,
        (None, "numeric"): 4,
    }


def test_every_disagreement_is_listed(graded: Path, capsys: Printed) -> None:
    assert run_cli(["grade", str(graded), "-g", "numeric", "--disagreements"]) == 0

    told = capsys.readouterr().out
    assert "the graders judge 4 texts differently" in told
    assert "wrong: no answer" in told
    assert "right: 4" in told
    assert "wrong: 100" in told


def test_disagreements_as_json(graded: Path, capsys: Printed) -> None:
    assert run_cli(["grade", str(graded), "-g", "qwen", "--disagreements", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["run", "end", "rows", "differences", "disagreements"]
    found = shown["disagreements"]
    assert len(found) == 2
    assert found[0]["grades"]["boxed"] == {
        "correct": False,
        "extracted": None,
        "notes": ["no-answer", "unclosed-box"],
    }
    assert found[0]["grades"]["qwen"]["correct"]


def test_the_same_grade_is_not_made_twice(
    graded: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli(["grade", str(graded), "-g", "numeric", "--json"])
    first = rows(capsys)
    grades = (graded / "grades.jsonl").read_text()
    monkeypatch.setattr("labctl.evaluation.graders.pool.sys.executable", "/bin/false")

    assert run_cli(["grade", str(graded), "-g", "numeric", "--json"]) == 0

    assert rows(capsys) == first
    assert (graded / "grades.jsonl").read_text() == grades


def test_gates_are_judged_again(tmp_path: Path, capsys: Printed) -> None:
    lab = sums_lab(tmp_path / "lab", 6)
    gate = {"metric": "accuracy", "max": 0.9}
    with scripted_endpoint(mixed) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}, gates=[gate]))
        outcome = evaluate(lab, recipe)
    assert [one.passed for one in outcome.end.gates] == [True]
    run = outcome.directory.path
    capsys.readouterr()

    assert run_cli(["grade", str(run), "-g", "qwen", "--json"]) == ExitStatus.JOB

    gates = json.loads(capsys.readouterr().out)["end"]["gates"]
    assert [one["passed"] for one in gates] == [True, False]
    assert run_cli(["grade", str(run)]) == ExitStatus.JOB
    assert "accuracy <= 0.9" in capsys.readouterr().out
    assert run_cli(["--lab", str(lab.root), "runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["verdict"] == "failed"


def test_a_grading_that_is_killed_goes_on(
    graded: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (graded / "grades.jsonl").unlink()

    def dies(_step: Step, done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Step, "update", dies)
        assert run_cli(["grade", str(graded), "--json"]) == ExitStatus.INTERRUPTED
    assert not (graded / "grades.jsonl").exists()
    assert len((graded / "grading.jsonl").read_text().splitlines()) == 4
    (graded / "generations.jsonl").write_text(
        "".join((graded / "generations.jsonl").read_text().splitlines(keepends=True)[:2])
    )
    capsys.readouterr()
    monkeypatch.setattr("labctl.evaluation.graders.pool.sys.executable", "/bin/false")

    assert run_cli(["grade", str(graded), "--json"]) == 0

    assert not (graded / "grading.jsonl").exists()
    assert len((graded / "grades.jsonl").read_text().splitlines()) == 4


def test_a_new_version_of_a_grader_judges_again(
    graded: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli(["grade", str(graded), "-g", "numeric", "--json"])
    capsys.readouterr()
    monkeypatch.setattr(Numeric, "version", "2")

    assert run_cli(["grade", str(graded), "-g", "numeric", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)["rows"]
    assert {row["grader_version"] for row in found if row["grader"] == "numeric"} == {"2"}


def test_wrong_use_is_told(graded: Path, capsys: Printed) -> None:
    assert run_cli(["grade", str(graded), "-g", "quen"]) == ExitStatus.CONFIG

    told = capsys.readouterr().err
    assert "there is no grader 'quen' (did you mean 'qwen'?)" in told
    assert "hint: the graders are boxed, qwen, numeric, math-verify, choice" in told


def test_a_run_without_answers_is_told(graded: Path, capsys: Printed) -> None:
    (graded / "generations.jsonl").write_text("")
    (graded / "grades.jsonl").unlink()

    assert run_cli(["grade", str(graded)]) == ExitStatus.CONFIG

    assert "has no answer to grade" in capsys.readouterr().err


def test_a_load_test_has_no_answers_to_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    made_load_test(tmp_path / "runs", "load", [Load()], "finished")
    monkeypatch.setenv("LABCTL_LAB", str(tmp_path))
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    assert run_cli(["grade"]) == ExitStatus.CONFIG
    assert "-load-abcdef is no evaluation: it has no answers" in capsys.readouterr().err
