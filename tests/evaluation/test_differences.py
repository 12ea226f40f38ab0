"""Models on the same questions, and several samples of a question."""

import io
from pathlib import Path

import pytest
from evaluations_made import made_evaluation
from rich.console import Console

from labctl.evaluation.accuracy import AccuracyTable, accuracy_table
from labctl.evaluation.differences import model_differences, sampled
from labctl.evaluation.results import document
from labctl.records.evaluation import GradeRecord
from labctl.report.accuracy_table import print_accuracies


def two(path: Path, second: float) -> AccuracyTable:
    right = {"q2_k/steps": [0.5], "q8_0/steps": [second], "q8_0/verify": [0.9]}
    return made_evaluation(path, right=right, budgets=(None,), questions=200).table


def test_a_difference_on_the_same_questions(tmp_path: Path) -> None:
    (one,) = model_differences(two(tmp_path, 0.6), "boxed", {})
    assert (one.first.variant, one.second.variant) == ("q2_k/steps", "q8_0/steps")
    assert 0 < one.gain.low < 0.1 < one.gain.high < 0.2
    assert (one.test.losses, one.needed) == (0, None)
    assert one.test.mid_p < 0.001
    assert one.is_shown


def test_a_difference_that_needs_more_questions(tmp_path: Path) -> None:
    (one,) = model_differences(two(tmp_path, 0.51), "boxed", {})
    assert not one.is_shown
    assert one.needed is not None
    assert one.needed > 200


def test_the_table_and_the_json_tell_it(tmp_path: Path) -> None:
    right = {"q2_k/steps": [0.5], "q8_0/steps": [0.7]}
    made = made_evaluation(tmp_path, right=right, budgets=(None,), questions=200)
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_accuracies(console, made.record, made.table, None)
    assert isinstance(console.file, io.StringIO)
    assert "q8_0/steps less q2_k/steps: +" in console.file.getvalue()
    assert "McNemar mid-p" in console.file.getvalue()
    found = document(made.record, None, made.table)["differences"]
    assert [one["grader"] for one in found] == ["boxed", "numeric"]
    assert found[0]["difference"] == pytest.approx(0.2, abs=0.07)


def test_limits_of_one_time_are_compared_not_those_of_one_number(tmp_path: Path) -> None:
    """100 tokens are the least limit of the one model, and the largest of the other."""
    limits = {"q2_k": (100, 270), "q8_0": (37, 100)}
    right = {"q2_k/steps": [0.1, 0.6], "q8_0/steps": [0.1, 0.5]}
    made = made_evaluation(tmp_path, right=right, model_budgets=limits, questions=200)
    (one,) = model_differences(made.table, "boxed", made.record.model_budgets)
    assert (one.first.budget, one.second.budget) == (270, 100)
    assert one.gain.high < 0
    (told, _) = document(made.record, None, made.table)["differences"]
    assert (told["budget"], told["second_budget"]) == (270, 100)
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_accuracies(console, made.record, made.table, None)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "q8_0/steps at 100 (60.0 s) less q2_k/steps at 270 (60.0 s): -" in shown


def test_samples_vote_and_pass() -> None:
    answers = {"a": ["7", "7", "9", "8"], "b": ["9", "9", "9", "7"], "c": ["9", "7", "7", "7"]}
    grades = [
        GradeRecord(
            question=question, variant="m/p", sample=k, budget=None, grader="boxed", version="1",
            extracted=text, correct=text == "7", complete=True, truncated_here=False,
        )
        for question, texts in answers.items()
        for k, text in enumerate(texts, 1)
    ]  # fmt: skip
    (cell,) = accuracy_table([], grades, questions=list(answers), variants=["m/p"]).cells
    found = sampled(cell)
    assert found is not None
    assert found.majority == pytest.approx(2 / 3)
    assert {k: share.mean for k, share in found.pass_at.items()} == pytest.approx(
        {1: 0.5, 2: (5 / 6 + 3 / 6 + 1) / 3, 4: 1.0}
    )
