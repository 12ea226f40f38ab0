"""What a recipe asks of a board's state is set, verified, recorded, and put back."""

import os
from pathlib import Path
from typing import Any

import pytest
from agent_fences import native_fence
from pydantic import ValidationError

from labctl import process
from labctl.config.recipe_parts import Conditions
from labctl.errors import BoardError, BoardNotReady, ConfigError, DeviceLost, LeaseLost
from labctl.records.trial import ConditionRecord
from labctl.retry import wait_until
from labctl.runs.board.conditions import BoardConditions
from labctl.transport.local import LocalTransport


class Board:
    """The files of a board with two CPUs and one thermal zone."""

    def __init__(self, root: Path):
        self.workdir = root / "work"
        self.fakes = root / "fakes"
        self.cpus = [self.fakes / f"sys/devices/system/cpu/cpu{n}/cpufreq" for n in (0, 1)]
        for cpu in self.cpus:
            cpu.mkdir(parents=True)
        self.memory = self.fakes / "sys/class/devfreq/dmc/governor"
        self.memory.parent.mkdir(parents=True)
        self.memory.write_text("dmc_ondemand\n")
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
        self.link = LocalTransport()

    def write(self, name: str, value: str) -> None:
        for cpu in self.cpus:
            (cpu / name).write_text(f"{value}\n")

    def read(self, name: str) -> set[str]:
        return {(cpu / name).read_text().strip() for cpu in self.cpus}

    def conditions(self, **wanted: Any) -> BoardConditions:
        return BoardConditions(
            self.link,
            native_fence(self.link, str(self.workdir)),
            Conditions(**wanted),
            self.notes.append,
            look_seconds=0.05,
        )

    @property
    def state(self) -> Path:
        return self.workdir / "conditions"


def ours() -> None:
    """Nobody else took the board."""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    board = Board(tmp_path)
    monkeypatch.setenv("LABCTL_SANDBOX_FAKES", str(board.fakes))
    monkeypatch.setenv("LABCTL_SANDBOX", "this-test")
    return board


def states(found: tuple[ConditionRecord, ...]) -> dict[str, bool | None]:
    return {one.name: one.ok for one in found}


def test_a_fixed_frequency_is_set_verified_and_put_back(board: Board) -> None:
    conditions = board.conditions(governor="performance", frequency_mhz=1104)
    with conditions.held(ours):
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
    with pytest.raises(DeviceLost), board.conditions(governor="performance").held(ours):
        raise DeviceLost("the cable is out")
    assert board.read("scaling_governor") == {"schedutil"}


def test_the_next_controller_puts_back_what_a_killed_one_left(board: Board) -> None:
    board.conditions(governor="performance").hold()  # and killed here
    assert board.read("scaling_governor") == {"performance"}
    with board.conditions().held(ours):
        assert board.read("scaling_governor") == {"schedutil"}
    assert not board.state.exists()


def test_a_resumed_run_keeps_it_and_still_knows_what_was_before(board: Board) -> None:
    board.conditions(governor="performance").hold()  # and killed here
    with board.conditions(governor="performance").held(ours, restore=False):
        assert board.read("scaling_governor") == {"performance"}
    assert board.read("scaling_governor") == {"schedutil"}


def test_a_restart_in_between_is_made_good_before_the_next_trial(board: Board) -> None:
    conditions = board.conditions(governor="performance")
    with conditions.held(ours):
        board.write("scaling_governor", "schedutil")
        assert states(conditions.ready()) == {"governor": True}
        assert board.read("scaling_governor") == {"performance"}


def test_what_was_noted_before_a_restart_is_past(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.conditions(governor="performance").hold()  # and killed here
    monkeypatch.setenv("LABCTL_SANDBOX", "another-boot")
    board.write("scaling_governor", "userspace")  # by whoever owns the board
    with board.conditions(governor="performance").held(ours, restore=False):
        assert board.read("scaling_governor") == {"performance"}
    assert board.read("scaling_governor") == {"userspace"}
    assert not board.state.exists()


def test_what_cannot_be_put_back_is_told_and_tried_again(board: Board) -> None:
    with board.conditions(governor="performance").held(ours):
        for cpu in board.cpus:
            (cpu / "scaling_governor").unlink()
            (cpu / "scaling_governor").symlink_to("/dev/null")  # takes nothing
    (note,) = board.notes
    assert note.startswith("note: cannot restore the board's settings: set ")
    for cpu in board.cpus:
        (cpu / "scaling_governor").unlink()
    board.write("scaling_governor", "performance")
    board.conditions().restore()
    assert board.read("scaling_governor") == {"schedutil"}
    assert not board.state.exists()


def test_a_board_that_another_controller_took_is_left_to_it(board: Board) -> None:
    def lost() -> None:
        raise LeaseLost("another lab took the board")

    with board.conditions(governor="performance").held(lost):
        # The other one put the board back, and asks for a state of its own.
        board.conditions().restore()
        board.conditions(governor="powersave").hold()
    assert board.read("scaling_governor") == {"powersave"}
    assert board.notes == [
        "note: the board's present user will restore its settings: another lab took the board"
    ]


def test_an_interruption_while_it_is_put_back_is_told(board: Board) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        board.conditions(governor="powersave").held(interrupted),
    ):
        pass
    assert "the next run on this board restores its settings (interrupted)" in board.notes[-1]
    board.conditions().restore()
    assert board.read("scaling_governor") == {"schedutil"}


def test_nothing_is_changed_that_cannot_be_noted(board: Board) -> None:
    board.workdir.parent.mkdir(exist_ok=True)
    board.workdir.write_text("no directory")
    with pytest.raises(BoardError, match="cannot set the governor"):
        board.conditions(governor="performance").hold()
    assert board.read("scaling_governor") == {"schedutil"}


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a power manager, as OpenHarmony 4 and 5 tell it."""
    programs, state = tmp_path / "programs", tmp_path / "power"
    programs.mkdir()
    state.write_text("AWAKE")
    program(
        programs,
        "power-shell",
        f"case $1 in suspend) echo INACTIVE;; wakeup) echo AWAKE;; esac >{state}",
    )
    program(
        programs,
        "hidumper",
        'echo "POWER STATE DUMP:"\n'
        f'echo "Current State: $(cat {state})  Reason: 20  Time: 107537120"\n'
        'echo "State: SLEEP   Reason: TIMEOUT   Time: 103830359"',
    )
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return state


def test_a_screen_is_off_when_the_power_manager_says_so(board: Board, screen: Path) -> None:
    conditions = board.conditions(screen_off=True)
    with conditions.held(ours):
        (found,) = conditions.ready()
        assert (found.had, found.ok) == ("off (INACTIVE)", True)
        screen.write_text("AWAKE")  # somebody touched it
        assert states(conditions.ready()) == {"screen": True}
    assert screen.read_text().strip() == "AWAKE"


def test_a_screen_that_was_off_is_not_woken(board: Board, screen: Path) -> None:
    screen.write_text("SLEEP")
    with board.conditions(screen_off=True).held(ours):
        pass
    assert screen.read_text() == "SLEEP"


def test_a_screen_that_stays_on_is_told(board: Board, screen: Path) -> None:
    program(screen.parent / "programs", "power-shell", "exit 0")
    (found,) = board.conditions(screen_off=True).ready()
    assert (found.had, found.ok) == ("on (AWAKE)", False)


def test_a_screen_that_the_board_does_not_tell_of_is_not_believed_off(
    board: Board, screen: Path
) -> None:
    program(screen.parent / "programs", "hidumper", "echo permission denied; exit 1")
    (found,) = board.conditions(screen_off=True).ready()
    assert (found.had, found.ok) == ("set, not verifiable: the board does not report it", None)


def test_the_program_that_is_the_link_is_never_stopped() -> None:
    with pytest.raises(ValidationError, match="labctl needs hdcd to reach the board"):
        Conditions(stop_processes=("hdcd",))


def test_what_a_board_does_not_have_is_recorded_or_refused(board: Board) -> None:
    for cpu in board.cpus:
        (cpu / "scaling_governor").unlink()
    conditions = board.conditions(governor="performance")
    with conditions.held(ours):
        assert states(conditions.ready()) == {"governor": None}
    assert board.notes == ["note: governor performance cannot be set: the board has no cpufreq"]
    with (
        pytest.raises(ConfigError, match="governor performance cannot be set"),
        board.conditions(governor="performance", strict=True).held(ours),
    ):
        pass


def test_the_governor_of_the_memory_is_set_and_put_back(board: Board) -> None:
    other = board.fakes / "sys/class/devfreq/fde60000.gpu/governor"
    other.parent.mkdir()
    other.write_text("simple_ondemand\n")
    conditions = board.conditions(memory_governor="performance")
    with conditions.held(ours):
        assert states(conditions.ready()) == {"memory_governor": True}
        assert board.memory.read_text() == "performance\n"
        assert other.read_text() == "simple_ondemand\n"
    assert board.memory.read_text() == "dmc_ondemand\n"
    assert not board.state.exists()
    board.memory.unlink()
    conditions.hold()
    assert board.notes == [
        "note: memory_governor performance cannot be set: memory clock not visible"
    ]


def test_the_frequency_set_by_hand_is_put_back_with_the_governor(board: Board) -> None:
    board.memory.write_text("userspace\n")
    fixed = board.memory.parent / "userspace" / "set_freq"
    fixed.parent.mkdir()
    fixed.write_text("528000000\n")
    vote = board.fakes / "sys/class/devfreq/soc:qcom,cpu-llcc-ddr-bw/governor"
    vote.parent.mkdir()
    vote.write_text("bw_hwmon\n")
    conditions = board.conditions(memory_governor="performance")
    with conditions.held(ours):
        assert states(conditions.ready()) == {"memory_governor": True}
        assert vote.read_text() == "bw_hwmon\n"
        fixed.write_text("undefined\n")  # as the kernel's governor does when it starts again
    assert board.memory.read_text() == "userspace\n"
    assert fixed.read_text() == "528000000\n"
    assert not board.state.exists()


def test_a_hot_board_is_waited_for_but_not_for_ever(board: Board) -> None:
    wanted = {"max_start_temperature": 50, "max_wait": "1s"}
    cool = board.conditions(**wanted).ready()
    assert (cool[0].had, cool[0].ok) == ("45 °C", True)
    board.heat.write_text("91000\n")
    hot = board.conditions(**wanted).ready()
    assert (hot[0].had, hot[0].ok) == ("91 °C", False)
    assert (
        board.notes[0] == "waiting up to 1.00 s for the board: temperature: 91 °C, wanted <= 50 °C"
    )
    with pytest.raises(
        BoardNotReady, match=r"did not become ready within 1.00 s: temperature: 91 °C"
    ):
        board.conditions(strict=True, **wanted).ready()


def zone(board: Board, number: int, reads: str) -> None:
    folder = board.fakes / f"sys/class/thermal/thermal_zone{number}"
    folder.mkdir(exist_ok=True)
    (folder / "type").write_text("vendor\n")
    (folder / "temp").write_text(f"{reads}\n")


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ("78", "perhaps whole degrees"),
        ("-1", "perhaps whole degrees"),
        ("999", "perhaps whole degrees"),
        ("999999", "outside -40 to 150 °C"),
        ("-40001", "outside -40 to 150 °C"),
        ("150001", "outside -40 to 150 °C"),
        ("45.2", "not a whole number"),
    ],
)
def test_a_zone_that_is_not_trusted_is_named_and_strict_refuses(
    board: Board, reads: str, why: str
) -> None:
    """It neither passes as a fraction of a degree nor keeps the run waiting."""
    zone(board, 0, reads)
    named = f"not trusted: thermal_zone0 vendor: {reads}, {why}"
    wanted = {"max_start_temperature": 60, "max_wait": "10h"}
    (found,) = board.conditions(**wanted).ready()
    assert (found.had, found.ok) == (f"the board does not report it; {named}", None)
    assert board.notes == [f"note: temperature <= 60 °C cannot be checked: {found.had}"]
    with pytest.raises(ConfigError, match=named):
        board.conditions(strict=True, **wanted).ready()


@pytest.mark.parametrize(
    ("reads", "had"),
    [("0", "0 °C"), ("1000", "1 °C"), ("-40000", "-40 °C"), ("150000", "150 °C")],
)
def test_a_zone_at_the_edge_is_trusted(board: Board, reads: str, had: str) -> None:
    """0 is the same temperature in degrees and in thousandths."""
    zone(board, 0, reads)
    (found,) = board.conditions(max_start_temperature=150, strict=True).ready()
    assert (found.had, found.ok) == (had, True)


def test_other_zones_count_beside_one_that_is_not_trusted(board: Board) -> None:
    zone(board, 1, "999999")
    named = "not trusted: thermal_zone1 vendor: 999999, outside -40 to 150 °C"
    (cool,) = board.conditions(max_start_temperature=60, max_wait="10h").ready()
    assert (cool.had, cool.ok) == (f"45 °C; {named}", None)
    with pytest.raises(ConfigError, match=named):
        board.conditions(max_start_temperature=60, strict=True).ready()
    (hot,) = board.conditions(max_start_temperature=40, max_wait="100ms").ready()
    assert (hot.had, hot.ok) == (f"45 °C; {named}", False)
    assert board.notes[-1] == f"note: temperature <= 40 °C is not met: {hot.had}"


def test_a_wait_never_takes_what_the_run_has_no_time_for(board: Board) -> None:
    board.heat.write_text("91000\n")
    wanted = {"max_start_temperature": 50, "max_wait": "10h"}
    (hot,) = board.conditions(**wanted).ready(longest_s=0)
    assert (hot.had, hot.ok) == ("91 °C", False)


def test_a_wait_ends_when_another_controller_takes_the_board(board: Board) -> None:
    board.heat.write_text("91000\n")

    def lost() -> None:
        raise LeaseLost("another lab took the board")

    with pytest.raises(LeaseLost):
        board.conditions(max_start_temperature=50, max_wait="10h").ready(mine=lost)


def test_memory_and_load_are_looked_at(board: Board) -> None:
    found = board.conditions(min_free_memory="1kB", max_load=1000, max_wait="1s").ready()
    assert states(found) == {"load": True, "memory": True}
    found = board.conditions(min_free_memory="900TB", max_wait="1s").ready()
    assert states(found) == {"memory": False}


def test_a_phone_that_charges_misses_the_condition(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: dict[str, Any] = {"charging": False, "max_wait": "0.1s"}
    (found,) = board.conditions(**wanted).ready()
    assert (found.had, found.ok) == ("the board does not report it", None)
    programs, status = tmp_path / "programs", tmp_path / "status"
    programs.mkdir()
    status.write_text("  USB powered: true\n  status: 2\n")
    program(programs, "getprop", "exit 0")
    program(programs, "dumpsys", f"[ $1 != battery ] || cat {status}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (found,) = board.conditions(**wanted).ready()
    assert (found.wanted, found.had, found.ok) == ("no", "charging, power: usb", False)
    with pytest.raises(BoardNotReady, match="charging: charging, power: usb, wanted no"):
        board.conditions(**wanted, strict=True).ready()
    status.write_text("  USB powered: true\n  status: 5\n")
    assert states(board.conditions(**wanted).ready()) == {"charging": True}


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
        with board.conditions(stop_processes=("labctl-noise",)).held(ours):
            assert state_of(noise.pid) == "T"
            assert state_of(other.pid) != "T"
        assert wait_until(lambda: state_of(noise.pid) != "T", timeout=120, interval=0.05)
    finally:
        process.stop(noise)
        process.stop(other)
        for pipe in (noise.stdout, noise.stderr, other.stdout, other.stderr):
            if pipe:
                pipe.close()
