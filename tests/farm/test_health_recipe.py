"""A recipe that fails speaks against a board only if it ran well there before."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from records_made import BEGAN, planned_run
from records_made import run as made_run

from labctl.config.lab import Board, Lab, LabFile
from labctl.errors import Blame, JobError
from labctl.farm.health import recipe as module
from labctl.farm.health.checking import CHECK
from labctl.records.run import PlanRecord, RunEnd
from labctl.records.trial import Failure
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.transport.base import Transport
from labctl.transport.local import LocalConfig

GOOD, NOW = "20261121T000000Z-health-check-aaaaaa", "20261122T000000Z-health-check-bbbbbb"


def connect(_board: Board) -> Transport:
    raise AssertionError("no run was asked for")


@dataclass(frozen=True)
class Past:
    """Runs of the health recipe that the lab has on disk."""

    root: Path
    monkeypatch: pytest.MonkeyPatch

    def ran(self, name: str, *, program: str = "a", passed: bool = True) -> RunDirectory:
        directory: RunDirectory = planned_run(
            self.root / "runs",
            made_run(name, board="b0", recipe="health-check"),
            PlanRecord(trials=(), max_seconds=60, program_sha256=program * 64),
        )
        failure = None if passed else Failure(kind="job_error", blame=Blame.JOB, message="it fails")
        directory.finish(
            RunEnd(state="finished" if passed else "failed", finished=BEGAN, failure=failure)
        )
        return directory

    def runs_now(self, found: RunDirectory, status: int) -> str | None:
        outcome = SimpleNamespace(exit_status=status, directory=found, run=found.run())
        self.monkeypatch.setattr(module, "run_recipe", lambda *_: outcome)
        return run(self.root)


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Past:
    return Past(tmp_path, monkeypatch)


def test_a_failure_speaks_against_a_board_where_the_same_program_ran_well(past: Past) -> None:
    past.ran(GOOD)
    fails = past.ran(NOW, passed=False)
    assert past.runs_now(fails, 1) == f"recipe health-check fails, but passed before (run {NOW})"


def test_good_runs_of_other_programs_since_hide_none_of_the_same(past: Past) -> None:
    past.ran(GOOD)
    for number in range(12):
        past.ran(f"20261121T0001{number:02}Z-health-check-aaaaaa", program="b")
    assert past.runs_now(past.ran(NOW, passed=False), 1) is not None


def test_a_good_run_says_nothing(past: Past) -> None:
    past.ran(GOOD)
    assert past.runs_now(past.ran(NOW), 0) is None


@pytest.mark.parametrize("before", ["nothing", "a failure", "another program"])
def test_a_failure_of_what_never_ran_well_there_says_nothing(past: Past, before: str) -> None:
    if before == "a failure":
        past.ran(GOOD, passed=False)
    elif before == "another program":
        past.ran(GOOD, program="b")
    assert past.runs_now(past.ran(NOW, passed=False), 1) is None


def test_a_recipe_that_cannot_begin_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise JobError("the model cannot be quantized")

    monkeypatch.setattr(module, "run_recipe", refused)
    assert run(tmp_path) is None


def run(root: Path) -> str | None:
    board = Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w")
    lab = LabFile(root, Lab(boards={"b0": board}))
    return module.run_health_recipe(
        lab, lab.board("b0"), connect, Observer(), "health_check", use=CHECK
    )
