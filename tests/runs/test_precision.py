"""Repeating until a result is known, and the order of trials."""

from dataclasses import replace
from pathlib import Path

import pytest
from played_runs import Setting, planned
from records_made import timing, trial

from labctl.config.recipe import Precision
from labctl.config.variants import Variant
from labctl.records import TrialRecord, TrialState
from labctl.runs.plan import Amount, Order, make_plan
from labctl.runs.precision import is_enough, verdict

WANTED = Precision(confidence_interval=0.02)


def trials(*milliseconds: float) -> list[TrialRecord]:
    return [trial(n, timing=timing([ms] * 4)) for n, ms in enumerate(milliseconds, 1)]


def test_equal_repeats_are_soon_enough_and_scattered_ones_are_not() -> None:
    assert is_enough(WANTED, trials(100, 100.5, 99.8))
    assert not is_enough(WANTED, trials(100, 130, 90, 101))
    assert not is_enough(WANTED, trials(100, 100))  # too few to know their spread


def test_neither_warm_ups_nor_failures_count() -> None:
    good = trials(100, 100.5, 99.8)
    bad = [
        trial(4, repeat=0, timing=timing([500] * 4)),
        trial(5, state=TrialState.FAILED, timing=timing([500] * 4)),
    ]
    assert is_enough(WANTED, good + bad)


def test_the_verdict_tells_what_was_reached_and_what_was_wanted() -> None:
    assert verdict(WANTED, "m", trials(100, 100, 100)) == (
        "m: tokens_per_second 10 ± 0.0% (95% interval, 3 repeats)"
    )
    assert verdict(WANTED, "m", trials(100, 130, 90)).endswith(", wanted ± 2.0% from 3 or more")
    assert "wanted" in verdict(WANTED, "m", trials(100, 100))  # two are no evidence of anything
    assert "too few repeats" in verdict(WANTED, "m", trials(100))


A, B, C = (Variant(name, name, {"tokens": 4}) for name in "abc")


def order(order: Order, seed: int = 1, repeats: int = 4) -> list[str]:
    plan = make_plan(
        [A, B, C],
        Amount(repeats, 1, {"a": 4, "b": 4, "c": 4}),
        order=order,
        seed=seed,
        max_seconds=60,
        min_tokens=None,
        predict=lambda *_: None,
    )
    return [t.variant.slug for t in plan.trials]


def test_randomised_order_is_in_blocks_and_the_same_for_a_seed() -> None:
    assert order("interleaved") == ["a", "b", "c"] * 5
    assert order("grouped") == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    mixed = order("randomised")
    assert mixed == order("randomised")
    assert mixed != order("randomised", seed=2)
    assert all(sorted(mixed[i : i + 3]) == ["a", "b", "c"] for i in range(0, 15, 3))


@pytest.mark.parametrize(("interval", "repeats"), [(0.5, 3), (1e-9, 4)])
def test_optional_repeats_are_left_out_once_the_result_is_known(
    tmp_path: Path, interval: float, repeats: int
) -> None:
    setting = Setting(tmp_path)
    setting.precision = Precision(confidence_interval=interval)
    setting.trials = [replace(t, optional=t.number > 3) for t in planned()]
    setting.agent.slower = {2: 1.1}
    outcome = setting.run()
    assert len(outcome.trials) == repeats
    assert outcome.exit_status == 0
