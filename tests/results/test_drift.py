"""A rate that changes inside a trial is no number of that trial."""

import random
from pathlib import Path
from typing import Any

import pytest
from played_runs import Setting
from records_made import model, timing

from labctl.engines.base import MemoryNeed
from labctl.performance.prediction import ModelWorkload
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import Check
from labctl.results.timing_checks import drift

NEED = MemoryNeed(0, 0, None, None, kv_bytes_per_position=60_000)  # of the weights, a thousandth


def checked(
    gaps: list[float],
    execution: Execution = Execution.BOARD,
    work: ModelWorkload | None = None,
    **more: Any,
) -> Check | None:
    facts = BoardFacts(execution=execution, machine="aarch64", kernel="5.10", boot_id="b1")
    found = drift(timing(gaps, **more), facts, work.bytes_at if work else None)
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    "gaps",
    [
        [100] * 16 + [150] * 16,
        [100] * 20 + [150] * 12,
        [150] * 8 + [100] * 24,
        [100] * 28 + [150] * 4,
        [100 + n for n in range(32)],
        [100] * 4 + [150] * 3,
        [100] * 9 + [400],
    ],
)
@pytest.mark.parametrize("execution", [Execution.BOARD, Execution.NATIVE_HOST])
def test_a_step_a_slope_and_a_stall_are_flagged(gaps: list[float], execution: Execution) -> None:
    check = checked(gaps, execution)
    assert check is not None
    assert (check.name, check.ok) == ("drift", False)


def test_what_was_seen_is_told() -> None:
    check = checked([100] * 16 + [150] * 16)
    assert check is not None
    assert check.detail == ("mean 125 ms, median 150 ms a token; last quarter 1.50 times the first")


def noisy(chance: random.Random, gaps: int, sigma: float, *, step: bool = False) -> bool:
    """Whether a trial of 100 ms a token is flagged; with a step, 150 ms from a quarter's end on."""
    from_token = chance.randrange(gaps // 4, gaps - gaps // 4 + 1) if step else gaps
    check = checked(
        [chance.gauss(100, sigma) * (1.5 if n >= from_token else 1) for n in range(gaps)]
    )
    assert check is not None
    return check.ok is False


@pytest.mark.parametrize(
    ("gaps", "sigma", "most"), [(31, 2, 0), (31, 5, 2), (12, 5, 2), (13, 5, 2), (15, 5, 2)]
)
def test_few_steady_trials_are_flagged_and_hardly_a_step_is_missed(
    gaps: int, sigma: float, most: int
) -> None:
    """Of 100 each; with the spread of three gaps as their noise, 6 steady ones were flagged."""
    chance = random.Random(2)
    assert sum(noisy(chance, gaps, sigma) for _ in range(300)) / 3 <= most
    assert sum(noisy(chance, gaps, sigma, step=True) for _ in range(300)) / 3 >= 98


@pytest.mark.soak
@pytest.mark.parametrize("gaps", [8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 31])
def test_the_shares_of_false_alarms_and_of_missed_steps(gaps: int) -> None:
    chance = random.Random(gaps)
    trials = 20_000
    alarms = sum(noisy(chance, gaps, 5) for _ in range(trials)) / trials
    found = sum(noisy(chance, gaps, 5, step=True) for _ in range(trials)) / trials
    assert alarms <= 0.02
    assert found >= (0.99 if gaps >= 12 else 0.97)


def test_a_longer_context_may_take_longer() -> None:
    """A thousandth of the weights a position: 400 positions later 1.4 times as much is read."""
    work = ModelWorkload(model(), NEED)
    growing = [100 * (1 + n / 1000) for n in range(540)]
    check = checked(growing, work=work)
    assert check is not None
    assert check.ok is True
    assert check.detail.endswith(
        "last quarter 1.38 times the first, of which 1.38 by the longer context"
    )
    without = checked(growing)
    assert without is not None
    assert without.ok is False
    stepped = checked([gap * (1.2 if n > 400 else 1) for n, gap in enumerate(growing)], work=work)
    assert stepped is not None
    assert stepped.ok is False


def test_nothing_is_checked_where_there_is_nothing_to_check() -> None:
    assert checked([100, 150]) is None
    assert checked([100] * 9, p50_ns=None) is None
    assert checked([100] * 9, mean_ns=None) is None


def test_a_gap_of_several_tokens_is_no_drift() -> None:
    gaps = [100.0] * 30 + [200.0]
    check = checked(gaps, merged_chunks=(30,), mean_ns=100_000_000)
    assert check is not None
    assert check.ok is True


def test_a_trial_on_a_board_is_checked(tmp_path: Path) -> None:
    for execution, is_open in ((Execution.BOARD, False), (Execution.EMULATED, True)):
        setting = Setting(tmp_path / execution)
        setting.execution = execution
        trials = setting.run().trials
        found = {c.is_open for t in trials for c in t.checks if c.name == "drift"}
        assert found == {is_open}
