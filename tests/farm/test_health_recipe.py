"""A recipe that fails speaks against a board only if it ran well there before."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from labctl.config.lab import Board, Lab, LabFile
from labctl.errors import JobError
from labctl.farm.health import recipe as module
from labctl.runs import Observer
from labctl.transport import LocalConfig, Transport


def connect(_board: Board) -> Transport:
    raise AssertionError("no run was asked for")


@pytest.mark.parametrize(
    ("earlier", "status", "against"),
    [
        ([], 0, None),
        (["a good run"], 0, None),
        ([], 1, None),
        (["a good run"], 1, "recipe health-check fails, and ran well before (run r2)"),
    ],
)
def test_a_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    earlier: list[str],
    status: int,
    against: str | None,
) -> None:
    outcome = SimpleNamespace(exit_status=status, run=SimpleNamespace(id="r2"))
    monkeypatch.setattr(module, "run_recipe", lambda *_: outcome)
    monkeypatch.setattr(module.RunRepository, "query", lambda *_, **__: earlier)
    assert run(tmp_path) == against


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
    return module.run_health_recipe(lab, lab.board("b0"), connect, Observer(), "health_check")
