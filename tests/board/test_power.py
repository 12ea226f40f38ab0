"""The switches of a board act for who holds it, and for nobody else."""

import json
import shlex
from pathlib import Path

import pytest

from labctl.board.lease import BoardLease
from labctl.board.power import BoardPower
from labctl.config.lab import Lab, LabFile
from labctl.errors import BoardBusy, LeaseLost
from labctl.state.state import LabState, lab_state
from labctl.transport.local import LocalConfig
from labctl.virtual.marks import BOOT_ID


@pytest.fixture
def state(tmp_path: Path) -> LabState:
    return lab_state(LabFile(tmp_path, Lab(lab="lab", boards={})))


def write_lease(workdir: Path, epoch: int, **more: str) -> None:
    workdir.mkdir(exist_ok=True)
    words = {"lab": "other", "epoch": epoch, "host": "lab2", "utc": "now", "token": "t", **more}
    (workdir / "lease").write_text(json.dumps(words))


def test_the_holder_switches_and_keeps_the_board_meanwhile(state: LabState, tmp_path: Path) -> None:
    lease = state.leases.acquire("b", purpose="recovery", seconds=1)
    with LocalConfig().open() as link:
        power = BoardPower(
            state.leases, lease, BoardLease(link, str(tmp_path / "board")), state.identity
        )

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
        power = BoardPower(
            state.leases, lease, BoardLease(link, str(tmp_path / "board")), state.identity
        )
        with pytest.raises(LeaseLost):
            power.act(epoch, lambda: acted.append(True), seconds=1)
    assert not acted


@pytest.mark.parametrize("whose", ["another's", "own"])
def test_another_labs_live_lease_is_respected_whatever_its_epoch(
    state: LabState, tmp_path: Path, whose: str
) -> None:
    lease = state.leases.acquire("b", purpose="recovery", minimum_epoch=50)
    workdir = tmp_path / "board"
    write_lease(workdir, 3, state=(state.identity or "") if whose == "own" else "0123456789abcdef")
    acted: list[bool] = []
    with LocalConfig().open() as link:
        alive = shlex.quote(f"{workdir}/lease.alive")
        link.run(f'echo "$(cut -d . -f 1 /proc/uptime) {BOOT_ID}" > {alive}', timeout=30)
        power = BoardPower(state.leases, lease, BoardLease(link, str(workdir)), state.identity)
        if whose == "own":  # of an earlier holder: the lab's lease says that it is over
            power.act(lease.epoch, lambda: acted.append(True), seconds=1)
        else:
            with pytest.raises(BoardBusy, match="is in use by lab other on lab2"):
                power.act(lease.epoch, lambda: acted.append(True), seconds=1)
    assert acted == ([True] if whose == "own" else [])
