"""Rows of evaluations in the index: their verdict is what the exit status said."""

from pathlib import Path

import pytest
from evaluations_made import made_evaluation

from labctl.errors import ConfigError, ExitStatus, HostError, LabctlError, ProgramFailed
from labctl.evaluation.run import status_of
from labctl.index.entry import evaluation_entry
from labctl.records.evaluation import AccuracyRecord
from labctl.records.run import Annotations
from labctl.records.trial import Failure
from labctl.runs.record.repository import RunRepository

RIGHT = AccuracyRecord(
    variant="a/p", budget=None, grader="boxed", correct=1, graded=2, low=0.1, high=0.9
)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"accuracies": (RIGHT,)}, "passed"),
        ({"accuracies": (RIGHT,), "failed": 1}, "failed"),  # a refused question
        ({}, "failed"),  # nothing was graded
    ],
)
def test_the_verdict_is_that_of_the_exit_status(
    tmp_path: Path, changes: dict[str, object], verdict: str
) -> None:
    made = made_evaluation(tmp_path, right={"a/p": (0.5,)}, budgets=(None,), questions=2)
    assert made.end
    end = made.end.model_copy(update=changes)
    found = evaluation_entry("x", made.record, end, annotations=Annotations(), stamp="", recorded=2)
    assert found.run.verdict == verdict
    assert (status_of(end) == ExitStatus.OK) == (verdict == "passed")


def test_answers_are_counted_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "20261122T093000Z-arithmetic-aaaaaa"
    made = made_evaluation(folder, right={"a/p": (1.0,)}, budgets=(None,), questions=3)
    folder.mkdir(parents=True)
    (folder / "evaluation.json").write_text(made.record.model_dump_json())
    first, second, third = made.generations
    refused = third.model_copy(update={"failure": Failure.of(HostError("x")), "text": ""})
    quoting = second.model_copy(update={"text": '"check":"one"'})
    held = first.model_copy(update={"check": "one"})
    lines = [one.model_dump_json() for one in (first, quoting, held, refused)]
    (folder / "generations.jsonl").write_text("\n".join([*lines, '{"torn']))
    (found,) = RunRepository(tmp_path / "runs").query()
    assert (found.run.trials_recorded, found.run.trials_planned) == (2, 3)


@pytest.mark.parametrize("error", [ProgramFailed("x"), ConfigError("x"), HostError("x")])
def test_who_is_to_blame_is_in_the_exit_status(tmp_path: Path, error: LabctlError) -> None:
    made = made_evaluation(tmp_path, right={"a/p": (0.5,)}, budgets=(None,), questions=2)
    assert made.end
    end = made.end.model_copy(update={"state": "failed", "failure": Failure.of(error)})
    assert status_of(end) == error.exit_status
