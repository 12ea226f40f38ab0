"""Ctrl-C while many jobs run."""

import os
import signal
from pathlib import Path
from threading import Event

import pytest

from labctl.config.lab import Lab, LabFile
from labctl.database import DatabaseAway
from labctl.farm.interrupts import on_interrupt
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.queue_source import QueueSource
from labctl.state import lab_state


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_is_told_and_the_second_raises(
    number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(number, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(number, before))
    told: list[str] = []
    with on_interrupt(lambda: told.append("told")):
        interrupt(number)
        assert told == ["told"]
        with pytest.raises(KeyboardInterrupt):
            interrupt(number)
    assert told == ["told"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_so(request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, before))
    with on_interrupt(lambda: pytest.fail("it was told")):
        interrupt(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def night(tmp_path: Path) -> LabExecutor:
    lab = LabFile(tmp_path, Lab(boards={}))
    return LabExecutor(lab, None, None, print, {})  # type: ignore[arg-type]


def test_ctrl_c_in_a_night_waits_for_the_runs_of_all_boards(tmp_path: Path) -> None:
    executor, done = night(tmp_path), []

    def work(board: str) -> None:
        if board == "rk1":
            interrupt()
        assert executor.stopping.wait(60)
        done.append(board)

    with pytest.raises(KeyboardInterrupt):
        executor.each(work, ["rk1", "rk2", "rk3"])
    assert sorted(done) == ["rk1", "rk2", "rk3"]


def test_the_first_error_of_a_night_stops_the_others_at_once(tmp_path: Path) -> None:
    executor = night(tmp_path)

    def work(board: str) -> None:
        if board == "rk2":
            raise OSError("no space")
        assert executor.stopping.wait(60)
        raise KeyboardInterrupt  # as `measure` does from then on

    with pytest.raises(OSError, match="no space"):
        executor.each(work, ["rk1", "rk2", "rk3"])


def test_a_queue_that_is_to_end_waits_for_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = QueueSource(lab_state(LabFile(tmp_path, Lab(boards={}))), tmp_path / "runs", {}, {})
    source.stopping, asked = Event(), []

    def away() -> None:
        asked.append("asked")
        if len(asked) == 3:
            source.stopping.set()
        raise DatabaseAway("no answer")

    monkeypatch.setattr(source, "_give_sign", away)
    with pytest.raises(KeyboardInterrupt):
        source.begin()
    assert asked == ["asked"] * 3
