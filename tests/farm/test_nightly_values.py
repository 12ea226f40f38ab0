"""The value of a run of a night: of what came to its end, and of no run that failed."""

import pytest
from records_made import trial

from labctl.errors import Blame, HostError, ProgramFailed
from labctl.farm.nightly.lab_executor import run_values
from labctl.records import Failure, TrialRecord, TrialState
from labctl.records.night import NightRow

ROW = NightRow(
    name="llama/q2@rk1",
    build="llama",
    recipe="q2",
    board="rk1",
    variants=("q2_k",),
    seconds=1,
    screen=4,
    look=6,
)


def failed(number: int, blame: Blame) -> TrialRecord:
    failure = Failure(kind="ProgramFailed", blame=blame, message="killed by SIGABRT")
    return trial(number, state=TrialState.FAILED, failure=failure, timing=None)


def skipped(number: int) -> TrialRecord:
    failure = Failure(kind="ProgramFailed", blame=Blame.JOB, message="an earlier one failed")
    return trial(number, state=TrialState.SKIPPED, failure=failure, timing=None)


def test_a_run_has_the_median_of_its_repeats() -> None:
    assert set(run_values(ROW, "r", [trial(n) for n in range(1, 6)], None)) == {"q2_k"}


def test_a_run_whose_program_fails_in_any_repeat_has_no_value() -> None:
    trials = [trial(1), failed(2, Blame.JOB), *(skipped(n) for n in (3, 4, 5))]
    with pytest.raises(ProgramFailed, match="SIGABRT"):
        run_values(ROW, "r", trials, None)


def test_repeats_that_the_link_lost_blame_no_program() -> None:
    most = [trial(1), *(failed(n, Blame.INFRA) for n in (2, 3))]
    with pytest.raises(HostError):
        run_values(ROW, "r", most, None)
    few = [trial(1), trial(2), trial(3), failed(4, Blame.INFRA)]
    assert run_values(ROW, "r", few, None)
