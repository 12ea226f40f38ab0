"""Rows of evaluations in the index: their verdict is what the exit status said."""

from pathlib import Path

import pytest
from evaluations_made import made_evaluation

from labctl.errors import ConfigError, ExitStatus, HostError, LabctlError, ProgramFailed
from labctl.evaluation.run import status_of
from labctl.index.evaluation_entry import evaluation_entry
from labctl.records import AccuracyRecord, Annotations, Failure

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


@pytest.mark.parametrize("error", [ProgramFailed("x"), ConfigError("x"), HostError("x")])
def test_who_is_to_blame_is_in_the_exit_status(tmp_path: Path, error: LabctlError) -> None:
    made = made_evaluation(tmp_path, right={"a/p": (0.5,)}, budgets=(None,), questions=2)
    assert made.end
    end = made.end.model_copy(update={"state": "failed", "failure": Failure.of(error)})
    assert status_of(end) == error.exit_status
