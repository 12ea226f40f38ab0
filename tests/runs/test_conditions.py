"""What a recipe asks of a board's state is set, verified, recorded, and put back."""

import os
from pathlib import Path
from typing import Any

import pytest

from labctl import process
from labctl.config.conditions import Conditions
from labctl.errors import BoardError, ConfigError, DeviceLost
from labctl.records import ConditionRecord
from labctl.retry import wait_until
from labctl.runs.conditions import BoardConditions, held
from labctl.transport import LocalTransport


class Board:
    """The files of a board with two CPUs and one thermal zone."""

    def __init__(self, root: Path):
        self.workdir = root / "work"
        self.fakes = root / "fakes"
        self.cpus = [self.fakes / f"sys/devices/system/cpu/cpu{n}/cpufreq" for n in (0, 1)]
        for cpu in self.cpus:
            cpu.mkdir(parents=True)
        self.heat = self.fakes / "sys/class/thermal/thermal_zone0/temp"
        self.heat.parent.mkdir(parents=True)
        self.heat.write_text("45000\n")
        self.caches = self.fakes / "proc/sys/vm/drop_caches"
        self.caches.parent.mkdir(parents=True)
        self.caches.write_text("0\n")
        self.write("scaling_governor", "schedutil")
        self.write("scaling_min_freq", "408000")
        self.write("scaling_max_freq", "1992000")
        self.notes: list[str] = []

    def write(self, name: str, value: str) -> None:
        for cpu in self.cpus:
            (cpu / name).write_text(f"{value}\n")

    def read(self, name: str) -> set[str]:
        return {(cpu / name).read_text().strip() for cpu in self.cpus}

    def conditions(self, **wanted: Any) -> BoardConditions:
        return BoardConditions(
            LocalTransport(), str(self.workdir), Conditions(**wanted), self.notes.append
        )

    @property
    def state(self) -> Path:
        return self.workdir / "conditions"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    board = Board(tmp_path)
    monkeypatch.setenv("LABCTL_SANDBOX_FAKES", str(board.fakes))
    monkeypatch.setenv("LABCTL_SANDBOX", "this-test")
    monkeypatch.setattr("labctl.runs.conditions._LOOK_SECONDS", 0.05)
    return board


def states(found: tuple[ConditionRecord, ...]) -> dict[str, bool | None]:
    return {one.name: one.ok for one in found}


def test_a_fixed_frequency_is_set_verified_and_put_back(board: Board) -> None:
    conditions = board.conditions(governor="performance", frequency_mhz=1104)
    with held(conditions):
        assert states(conditions.ready()) == {"governor": True, "frequency": True}
        assert board.read("scaling_governor") == {"performance"}
        assert board.read("scaling_min_freq") == board.read("scaling_max_freq") == {"1104000"}
    assert board.read("scaling_governor") == {"schedutil"}
    assert board.read("scaling_min_freq") == {"408000"}
    assert board.read("scaling_max_freq") == {"1992000"}
    assert not board.state.exists()
    assert conditions.unlike == {"governor": "performance", "frequency_mhz": 1104}
    assert board.notes == []


def test_it_is_put_back_when_the_run_fails(board: Board) -> None:
    with pytest.raises(DeviceLost), held(board.conditions(governor="performance")):
        raise DeviceLost("the cable is out")
    assert board.read("scaling_governor") == {"schedutil"}


def test_the_next_controller_puts_back_what_a_killed_one_left(board: Board) -> None:
    board.conditions(governor="performance").hold()  # and killed here
    assert board.read("scaling_governor") == {"performance"}
    with held(board.conditions()):
        assert board.read("scaling_governor") == {"schedutil"}
    assert not board.state.exists()


def test_a_resumed_run_keeps_it_and_still_knows_what_was_before(board: Board) -> None:
    board.conditions(governor="performance").hold()  # and killed here
    with held(board.conditions(governor="performance"), again=True):
        assert board.read("scaling_governor") == {"performance"}
    assert board.read("scaling_governor") == {"schedutil"}


def test_a_restart_in_between_is_made_good_before_the_next_trial(board: Board) -> None:
    conditions = board.conditions(governor="performance")
    with held(conditions):
        board.write("scaling_governor", "schedutil")
        assert states(conditions.ready()) == {"governor": True}
        assert board.read("scaling_governor") == {"performance"}


def test_what_a_board_does_not_have_is_recorded_or_refused(board: Board) -> None:
    for cpu in board.cpus:
        (cpu / "scaling_governor").unlink()
    conditions = board.conditions(governor="performance")
    with held(conditions):
        assert states(conditions.ready()) == {"governor": None}
    assert board.notes == ["note: governor performance could not be had: the board has no cpufreq"]
    with (
        pytest.raises(ConfigError, match="cannot be had with governor performance"),
        held(board.conditions(governor="performance", strict=True)),
    ):
        pass


def test_a_hot_board_is_waited_for_but_not_for_ever(board: Board) -> None:
    wanted = {"max_start_temperature": 50, "max_wait": "1s"}
    cool = board.conditions(**wanted).ready()
    assert (cool[0].had, cool[0].ok) == ("45 °C", True)
    board.heat.write_text("91000\n")
    hot = board.conditions(**wanted).ready()
    assert (hot[0].had, hot[0].ok) == ("91 °C", False)
    with pytest.raises(BoardError, match=r"did not become ready within 1 s: temperature: 91 °C"):
        board.conditions(strict=True, **wanted).ready()


def test_memory_and_load_are_looked_at(board: Board) -> None:
    found = board.conditions(min_free_memory="1kB", max_load=1000, max_wait="1s").ready()
    assert states(found) == {"load": True, "memory": True}
    found = board.conditions(min_free_memory="900TB", max_wait="1s").ready()
    assert states(found) == {"memory": False}


def test_caches_are_dropped_before_each_trial(board: Board) -> None:
    conditions = board.conditions(drop_caches=True)
    for _ in range(2):
        board.caches.write_text("0\n")
        assert states(conditions.ready()) == {"caches": True}
        assert board.caches.read_text() == "3\n"
    board.caches.unlink()
    assert states(conditions.ready()) == {"caches": None}


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_processes_of_a_name_are_held_and_go_on(board: Board, tmp_path: Path) -> None:
    program = tmp_path / "labctl-noise"
    program.symlink_to("/bin/sleep")
    noise = process.start([str(program), "60"], cwd=tmp_path, env=os.environ)
    # Of the same name, but not the virtual board's.
    other = process.start([str(program), "60"], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    try:
        with held(board.conditions(stop_processes=("labctl-noise",))):
            assert state_of(noise.pid) == "T"
            assert state_of(other.pid) != "T"
        assert wait_until(lambda: state_of(noise.pid) != "T", timeout=5, interval=0.05)
    finally:
        process.stop(noise)
        process.stop(other)
        for pipe in (noise.stdout, noise.stderr, other.stdout, other.stderr):
            if pipe:
                pipe.close()
