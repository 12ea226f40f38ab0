"""The switches of a board act for who holds it, and for nobody else."""

import json
from pathlib import Path

import pytest

from labctl.board import BoardLease
from labctl.board.power import BoardPower
from labctl.database import SqliteDatabase
from labctl.errors import LeaseLost
from labctl.state import LabState
from labctl.transport import LocalConfig


@pytest.fixture
def state(tmp_path: Path) -> LabState:
    database = SqliteDatabase(tmp_path / "labctl.sqlite", "the lab's state", "")
    return LabState(database, tmp_path / "backups")


def write_lease(workdir: Path, epoch: int) -> None:
    workdir.mkdir(exist_ok=True)
    words = {"lab": "other", "epoch": epoch, "host": "lab2", "utc": "now", "token": "t"}
    (workdir / "lease").write_text(json.dumps(words))


def test_the_holder_switches_and_keeps_the_board_meanwhile(state: LabState, tmp_path: Path) -> None:
    lease = state.leases.acquire("b", purpose="recovery", seconds=1)
    with LocalConfig().open() as link:
        power = BoardPower(state.leases, lease, BoardLease(link, str(tmp_path / "board")))

        def switch() -> float:
            held = state.leases.get("b")
            assert held is not None
            return held.expires - lease.expires

        assert power.act(lease.epoch, switch, seconds=100) > 100


@pytest.mark.parametrize("by", ["board", "lab", "epoch"])
def test_who_has_lost_the_board_does_nothing_to_it(
    state: LabState, tmp_path: Path, by: str
) -> None:
    lease = state.leases.acquire("b", purpose="recovery")
    epoch = lease.epoch
    if by == "board":
        write_lease(tmp_path / "board", epoch + 1)
    elif by == "lab":
        state.leases.release(lease)
        state.leases.acquire("b", purpose="another's")
    else:
        epoch += 1
    acted: list[bool] = []
    with LocalConfig().open() as link:
        power = BoardPower(state.leases, lease, BoardLease(link, str(tmp_path / "board")))
        with pytest.raises(LeaseLost):
            power.act(epoch, lambda: acted.append(True), seconds=1)
    assert not acted
