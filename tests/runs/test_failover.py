"""A run that goes on on another board: which one that can be is told before it begins."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import agent_builds
import pytest

from labctl.config.lab import Board, Lab, LabFile
from labctl.config.recipe import Recipe
from labctl.errors import (
    BoardBusy,
    ConfigError,
    DeviceLost,
    HostError,
    LabctlError,
    LeaseLost,
)
from labctl.farm.health.checks_due import due
from labctl.runs.board.conditions import BoardConditions
from labctl.runs.failover import run_with_failover
from labctl.runs.observer import Observer
from labctl.runs.record.directory import run_directories
from labctl.runs.record.under_way import last_board
from labctl.runs.resume import ResumeRequest, resume
from labctl.runs.run import RunRequest
from labctl.state.health import Healths
from labctl.state.state import lab_state
from labctl.transport.base import Transport
from labctl.transport.local import LocalConfig

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


#: In the last of four trials another controller takes the board that it is started on first.
PROGRAM = """#!/bin/sh
echo >> "$2/$1"
if [ "$1" = b ] && [ "$(wc -l < "$2/b")" = 2 ]; then
    sed 's/"token": *"[0-9a-f]*"/"token": "0"/' "$2/rk1/lease" > "$2/lease"
    mv "$2/lease" "$2/rk1/lease"
fi
echo "speed 10.0"
"""


@pytest.fixture
def asked(tmp_path: Path, private_state: Path) -> RunRequest:
    """A run of four trials on rk1, in a lab that has rk2 too."""
    agent_builds.native_agent()
    (tmp_path / "program").write_text(PROGRAM)
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "any.bin").write_text("any")
    metric = {"metric": "tokens_per_second", "unit": "tokens_per_s"}
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "target": agent_builds.HOST,
            "engine": {
                "name": "command",
                "program": {"file": "program"},
                "arguments": ["{kind}", str(tmp_path)],
                "output": [{"pattern": "^speed (?P<t>[0-9.]+)$", "values": {"t": metric}}],
            },
            "models": {"none": {"file": "any.bin"}},
            "matrix": {"kind": ["a", "b"]},
            "repeats": 2,
            "max_time": "5m",
        }
    )
    boards = {}
    for name in ("rk1", "rk2"):
        boards[name] = Board.model_validate(
            {
                "target": agent_builds.HOST,
                "workdir": str(tmp_path / name),
                "transport": LocalConfig(),
            }
        )
        boards[name]._name = name
    return RunRequest(recipe, boards["rk1"], LabFile(tmp_path, Lab(boards=boards)))


def refusing(call: int) -> Callable[[BoardConditions], None]:
    """What holds conditions, and on rk2 cannot from this time on."""
    hold, calls = BoardConditions.hold, count(1)

    def strict(conditions: BoardConditions) -> None:
        if conditions.fence.workdir.endswith("rk2") and next(calls) >= call:
            raise ConfigError("cannot set governor=performance")
        hold(conditions)

    return strict


def go(request: RunRequest) -> None:
    spare = request.lab.lab.boards["rk2"]
    run_with_failover(request, [spare], lambda board: board.transport.open(), Observer())


def test_a_spare_that_refuses_leaves_the_run_as_it_was(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(BoardConditions, "hold", refusing(1))
        with pytest.raises(LeaseLost):
            go(asked)
    (directory,) = run_directories(asked.lab.root / "runs")
    assert [(t.number, t.state) for t in directory.trials()][:3] == [
        (1, "ok"), (2, "ok"), (3, "ok"),
    ]  # fmt: skip
    end = directory.end()
    assert end is not None
    assert end.failure is not None
    assert (end.failure.kind, end.failure.blame) == ("LeaseLost", "infra")
    assert last_board(directory) == "rk1"

    spare = asked.lab.lab.boards["rk2"]
    outcome = resume(ResumeRequest(directory, spare, asked.lab), spare.transport.open, Observer())
    assert [(t.board, t.state) for t in outcome.trials] == [
        ("rk1", "ok"), ("rk1", "ok"), ("rk2", "ok"), ("rk2", "ok"),
    ]  # fmt: skip


def test_a_mistake_that_shows_on_a_spare_at_work_is_how_the_run_ended(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoardConditions, "hold", refusing(3))
    with pytest.raises(ConfigError, match="cannot set governor"):
        go(asked)
    (directory,) = run_directories(asked.lab.root / "runs")
    end = directory.end()
    assert end is not None
    assert end.failure is not None
    assert (end.failure.kind, end.failure.blame) == ("ConfigError", "config")
    assert last_board(directory) == "rk2"


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (DeviceLost("the cable moved"), ["run r broke off there: the cable moved"]),
        (BoardBusy("somebody measures"), []),
        (ConfigError("no such thing"), []),
    ],
)
def test_a_board_that_breaks_a_run_off_is_to_be_checked_at_once(
    asked: RunRequest, error: LabctlError, wanted: list[str]
) -> None:
    (asked.lab.root / "devices.yaml").write_text("boards: {}\n")
    state = lab_state(asked.lab)
    for name in ("rk1", "rk2"):
        state.health.checked(name, None)

    def broken(_board: Board) -> Transport:
        raise error

    with pytest.raises(type(error)):
        run_with_failover(asked, (), broken, Observer())
    assert [one.reason for one in due(asked.lab)] == wanted


def test_a_lab_whose_state_is_away_keeps_the_error_of_the_board(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked.lab.root / "devices.yaml").write_text("boards: {}\n")
    said: list[str] = []

    def away(*_: object, **__: object) -> None:
        raise HostError("the database is away")

    def broken(_board: Board) -> Transport:
        raise DeviceLost("the cable moved")

    monkeypatch.setattr(Healths, "want_check", away)
    observer = Observer(lambda event: said.append(getattr(event, "text", "")))
    with pytest.raises(DeviceLost, match="the cable moved"):
        run_with_failover(asked, (), broken, observer)
    assert "note: cannot record that board rk1 needs a check: the database is away" in said
