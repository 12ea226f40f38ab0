"""A run that goes on on another board: which one that can be is told before it begins."""

from pathlib import Path

import pytest

from labctl.config.lab import Board, Lab, LabFile
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.runs import Observer, RunRequest, run_with_failover
from labctl.transport import LocalConfig, Transport

RECIPE = Recipe.model_validate(
    {
        "name": "r",
        "target": "rk3568",
        "engine": {"name": "llama_cpp"},
        "models": {"m": {"file": "m.gguf"}},
        "prompt": "x",
        "max_time": "10m",
    }
)


def board(target: str) -> Board:
    return Board.model_validate({"target": target, "workdir": "/w", "transport": LocalConfig()})


def never(board: Board) -> Transport:
    raise AssertionError(f"{board} was not to be reached")


def test_a_spare_of_another_target_is_refused_before_anything_begins(tmp_path: Path) -> None:
    request = RunRequest(RECIPE, board("rk3568"), LabFile(tmp_path, Lab(boards={})))
    with pytest.raises(ConfigError, match=r"is a host-x86_64, board .* a rk3568"):
        run_with_failover(request, [board("host-x86_64")], never, Observer())
