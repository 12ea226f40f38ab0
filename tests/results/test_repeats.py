"""Repeating until a result is known, and the order of trials."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from played_runs import Setting, planned
from records_made import timing, trial
from simulated_repeats import coverage, trends_told, trials

from labctl.config.recipe import Precision
from labctl.config.recipe_parts import Variant
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.records.trial import TrialState
from labctl.results.repeats import fewest_repeats, is_enough, trend_verdict, verdict
from labctl.runs.planning.time_limits import Amount
from labctl.runs.planning.trials import Order, make_plan

WANTED = Precision(confidence_interval=0.02)


def test_equal_repeats_are_soon_enough_and_scattered_ones_are_not() -> None:
    assert is_enough(WANTED, trials(100, 100.1, 99.9, 100.05))
    assert not is_enough(WANTED, trials(100, 100.5, 99.8, 100.2))  # perhaps by luck
    assert not is_enough(WANTED, trials(100, 130, 90, 101))
    assert not is_enough(WANTED, trials(100, 100, 100))  # too few to know their spread


def test_neither_warm_ups_nor_failures_count() -> None:
    good = trials(100, 100.1, 99.9, 100.05)
    bad = [
        trial(5, repeat=0, timing=timing([500] * 4)),
        trial(6, state=TrialState.FAILED, timing=timing([500] * 4)),
    ]
    assert is_enough(WANTED, good + bad)


def test_the_verdict_tells_what_was_reached_and_what_was_wanted() -> None:
    assert verdict(WANTED, "m", trials(100, 100, 100, 100)) == (
        "m: tokens_per_second 10.0 ± 0.0% (95% interval 10.0 to 10.0, 4 repeats)"
    )
    missed = "; not reached: ± 2.0% from 4 or more repeats"
    assert verdict(WANTED, "m", trials(100, 130, 90, 101)).endswith(missed)
    assert verdict(WANTED, "m", trials(100, 100)).endswith(missed)  # no evidence of anything
    assert verdict(WANTED, "m", trials(100)) == (
        f"m: tokens_per_second: too few repeats for an interval{missed}"
    )


def test_the_value_of_the_verdict_is_the_tables() -> None:
    """The geometric mean of the trials, 102 ms, the centre of the interval beside it."""
    told = verdict(WANTED, "m", trials(100, 100, 100, 100, 110))
    assert told.startswith("m: tokens_per_second 9.81 ± ")


@pytest.mark.parametrize(("sigma", "repeats"), [(0.01, 8.4), (0.02, 15.1), (0.03, 23.7)])
def test_an_interval_that_ended_the_repeating_holds_as_often_as_it_says(
    sigma: float, repeats: float
) -> None:
    """A narrow interval is narrow by chance too: Student's own holds 90 % at sigma 3 %."""
    found = coverage(WANTED, sigma, runs=300, chance=random.Random(5))
    assert found.covered >= 0.945
    assert found.repeats == pytest.approx(repeats, abs=0.7)


@pytest.mark.parametrize(("sigma", "most"), [(0.03, 6), (0.05, 10), (0.05, 20)])
def test_a_precision_that_few_repeats_cannot_show_is_not_said_to_be_reached(
    sigma: float, most: int
) -> None:
    """Lucky runs said so in 5, 2 and 15 of 100; 79, 62 and 85 % of their intervals held it."""
    wanted = Precision(confidence_interval=0.02, max_repeats=most)
    assert coverage(wanted, sigma, runs=400, chance=random.Random(6)).reached <= 0.01


def test_a_trend_over_the_repeats_is_told() -> None:
    assert trends_told(0.5, runs=300, chance=random.Random(11)) >= 0.9
    told = trend_verdict("m", trials(*range(100, 110)))
    assert told == (
        "m: trend: token time +0.96% a repeat over 10 repeats (Mann-Kendall test, p = 5.5e-07):"
        " its interval holds only without a trend"
    )


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
        roles=LlamaCpp.roles,
    )
    return [t.variant.slug for t in plan.trials]


def test_randomised_order_is_in_blocks_and_the_same_for_a_seed() -> None:
    assert order("interleaved") == ["a", "b", "c"] * 5
    assert order("grouped") == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    mixed = order("randomised")
    assert mixed == order("randomised")
    assert mixed != order("randomised", seed=2)
    assert all(sorted(mixed[i : i + 3]) == ["a", "b", "c"] for i in range(0, 15, 3))


@pytest.mark.parametrize(("interval", "repeats"), [(0.5, 4), (1e-9, 5)])
def test_optional_repeats_are_left_out_once_the_result_is_known(
    tmp_path: Path, interval: float, repeats: int
) -> None:
    setting = Setting(tmp_path)
    setting.precision = Precision(confidence_interval=interval)
    setting.trials = [replace(t, optional=t.number > 4) for t in planned(5)]
    setting.agent.slower = {2: 1.1}
    outcome = setting.run()
    assert len(outcome.trials) == repeats
    assert outcome.exit_status == 0


def test_a_limit_below_the_fewest_holds_and_is_not_enough() -> None:
    few = Precision(confidence_interval=0.5, max_repeats=3)
    assert fewest_repeats(few, 1) == 3
    assert fewest_repeats(few, 6) == 3
    assert fewest_repeats(WANTED, 1) == 4
    assert fewest_repeats(WANTED, 6) == 6
    assert fewest_repeats(None, 2) == 2
    told = verdict(few, "m", trials(100, 100.5, 99.8))
    assert told.endswith("3 repeats); not reached: ± 50.0% from 4 or more repeats")
