"""The energy of a trial, with a board whose clock began long before this host's."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labctl.board.meter import Meter
from labctl.errors import DeviceLost, HostError
from labctl.records.energy import PhaseEnergy
from labctl.records.timing import TimingRecord
from labctl.records.trial import JobStatus
from labctl.retry import wait_until
from labctl.runs.trial import energy
from labctl.runs.trial.energy import ClockOffset, Metering, idle_floor, trouble
from labctl.stats.energy import IdlePower

#: The board's clock minus this host's.
AHEAD_NS = 10**15


class Played(Meter):
    """Shows 5 W, or a counter's joules, or an error."""

    def __init__(self, unit: str = "W", show: Callable[[], str] = lambda: "5") -> None:
        super().__init__("played", unit, 0.02, 0.2)
        self.show = show
        self.asked = 0

    def ask(self) -> str:
        self.asked += 1
        return self.show()


def board_ns() -> int:
    return time.monotonic_ns() + AHEAD_NS


def job(start_ns: int, end_ns: int) -> JobStatus:
    return JobStatus(
        outcome="exited", exit_status=0, start_mono_ns=start_ns, end_mono_ns=end_ns,
        wall_ns=end_ns - start_ns, stdout_bytes=0, stderr_bytes=0, boot_id="b", epoch=1,
    )  # fmt: skip


def watched(metering: Metering, meter: Played, readings: int) -> JobStatus:
    """A program that runs until the meter was asked so often."""
    with metering:
        start, before = board_ns(), meter.asked
        assert wait_until(lambda: meter.asked >= before + readings, timeout=120, interval=0.01)
        ended = job(start, board_ns())
    # What a busy host leaves between readings is not asked here.
    meter.interval_s = 100
    return ended


def test_a_program_of_known_power(tmp_path: Path) -> None:
    meter = Played()
    metering = Metering(meter, tmp_path, board_ns)
    ended = watched(metering, meter, 30)
    # Tokens came in the second half: ten in equal steps, after a first piece that held two.
    half = ended.wall_ns // 2
    timing = TimingRecord(
        generated_tokens=12, ttft_ns=half, token_ns=(half // 10,) * 10, mean_ns=half // 10
    )
    found = metering.record(ended, timing)
    assert found is not None
    assert found.absent is None
    assert (found.source, found.mean_watts, found.peak_watts) == ("played", 5, 5)
    assert found.joules == pytest.approx(5 * ended.wall_ns / 1e9)
    assert found.joules_per_token == pytest.approx(5 * half / 1e10, rel=1e-3)
    assert found.readings >= 29
    assert (found.failed_readings, found.coverage) == (0, 1)
    lines = [json.loads(line) for line in (tmp_path / "power.jsonl").read_text().splitlines()]
    assert len(lines) >= found.readings
    assert lines[0].keys() == {"asked_ns", "answered_ns", "value", "error"}


def test_a_counter_of_joules(tmp_path: Path) -> None:
    meter = Played("J", lambda: f"{5 * time.monotonic():.9f}")
    metering = Metering(meter, tmp_path, board_ns)
    ended = watched(metering, meter, 30)
    found = metering.record(ended, None)
    assert found is not None
    # A reading was made somewhere between its question and its answer.
    assert found.joules == pytest.approx(5 * ended.wall_ns / 1e9, rel=0.2)
    assert (found.peak_watts, found.joules_per_token) == (None, None)


def test_a_meter_is_tried_before_it_is_needed() -> None:
    assert trouble(Played()) is None
    assert trouble(Played(show=failing)) == "the meter is gone"


def test_without_a_meter_there_is_nothing(tmp_path: Path) -> None:
    with (metering := Metering(None, tmp_path, board_ns)):
        pass
    assert metering.record(job(0, 1), None) is None
    assert list(tmp_path.iterdir()) == []


def failing() -> str:
    raise HostError("the meter is gone")


def test_a_meter_that_fails_costs_no_trial(tmp_path: Path) -> None:
    meter = Played(show=failing)
    metering = Metering(meter, tmp_path, board_ns)
    found = metering.record(watched(metering, meter, 5), None)
    assert found is not None
    assert found.joules is None
    assert found.failed_readings >= 5
    assert (found.absent or "").endswith("3 are the least; the meter is gone")
    assert "the meter is gone" in (tmp_path / "power.jsonl").read_text()


def test_a_board_whose_clock_is_not_told(tmp_path: Path) -> None:
    def lost() -> int:
        raise DeviceLost("rk1: the link broke")

    meter = Played()
    metering = Metering(meter, tmp_path, lost)
    found = metering.record(watched(metering, meter, 5), None)
    assert found is not None
    assert (found.joules, found.absent) == (
        None, "the board's clock is not known: rk1: the link broke"
    )  # fmt: skip


def test_a_program_that_was_given_up(tmp_path: Path) -> None:
    metering = Metering(Played(), tmp_path, board_ns)
    with pytest.raises(DeviceLost), metering:
        raise DeviceLost("rk1: the link broke")
    found = metering.record(None, None)
    assert found is not None
    assert found.absent == "the program was not followed to its end"


def test_a_program_too_short_for_what_is_known_of_the_clock(tmp_path: Path) -> None:
    def slowly() -> int:
        # The time between question and answer is what is not known.
        until = time.monotonic_ns() + 50_000_000
        assert wait_until(lambda: time.monotonic_ns() > until, timeout=120, interval=0.005)
        return board_ns()

    meter = Played()
    metering = Metering(meter, tmp_path, slowly)
    with metering:
        now = board_ns()
    found = metering.record(job(now - 100_000_000, now), None)
    assert found is not None
    assert found.clock_uncertainty_ns is not None
    assert found.clock_uncertainty_ns >= 25_000_000
    assert "clock is not known well enough for so short a time" in (found.absent or "")


def test_the_offset_lies_between_question_and_answer() -> None:
    offset = ClockOffset.measure(board_ns)
    assert abs(offset.ns + AHEAD_NS) <= offset.uncertainty_ns


def test_clocks_that_do_not_go_alike() -> None:
    moments = iter((0, 10**12, 0))
    with pytest.raises(HostError, match="do not go alike"):
        ClockOffset.measure(lambda: next(moments))


def test_the_phases_are_told_apart_and_above_the_idle_board(tmp_path: Path) -> None:
    """The meter shows 2 W before the run, then 5 W."""
    watts = "2"
    meter = Played(show=lambda: watts)
    idle = idle_floor(meter)
    assert idle == IdlePower(2.0, 0.0, meter.asked)
    watts = "5"
    metering = Metering(meter, tmp_path, board_ns, idle)
    ended = watched(metering, meter, 60)
    half = ended.wall_ns // 2
    timing = TimingRecord(
        prompt_tokens=8, prompt_eval_ns=half, generated_tokens=11,
        ttft_ns=half, token_ns=(half // 10,) * 10, mean_ns=half // 10,
    )  # fmt: skip
    found = metering.record(ended, timing)
    assert found is not None
    assert (found.idle_watts, found.idle_spread_watts) == (2.0, 0.0)
    assert found.prompt is not None
    assert found.decode is not None
    assert found.prompt.joules_per_token == pytest.approx(3 * half / 8e9, rel=1e-3)
    assert found.decode.joules_per_token == pytest.approx(3 * half / 1e10, rel=1e-3)
    assert found.decode.gross_joules_per_token == pytest.approx(found.joules_per_token, rel=1e-3)
    assert (found.decode.readings or 0) >= 10
    assert found.decode.uncertainty_joules is not None


def test_a_slow_meter_is_read_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_IDLE_READINGS", 10**6)
    monkeypatch.setattr(energy, "_MOST_IDLE_SECONDS", 0.5)
    began = time.monotonic()
    assert isinstance(idle_floor(Played(show=lambda: "2")), IdlePower)
    assert time.monotonic() - began < 10


def test_without_an_idle_power_there_is_no_net_energy(tmp_path: Path) -> None:
    idle = idle_floor(Played(show=failing))
    assert idle == "0 readings of the idle board; 10 are the least"
    meter = Played()
    metering = Metering(meter, tmp_path, board_ns, idle)
    ended = watched(metering, meter, 30)
    half = ended.wall_ns // 2
    timing = TimingRecord(ttft_ns=half, token_ns=(half // 10,) * 10, mean_ns=half // 10)
    found = metering.record(ended, timing)
    assert found is not None
    assert found.joules_per_token is not None
    assert found.prompt is None
    assert found.decode == PhaseEnergy(absent=f"the power of the idle board is not known: {idle}")
