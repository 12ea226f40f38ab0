"""How often the intervals of runs that repeat until a result is known hold the truth."""

import random

import pytest
from records_made import run
from simulated_repeats import coverage, noise, stopped, trends_told

from labctl.config.recipe import Precision
from labctl.results.repeats import trend_verdict
from labctl.results.summary import estimate_of, summarise, wanted_precision

pytestmark = pytest.mark.soak
RUNS = 10_000
ASKED = {"confidence_interval": 0.02}


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("most", [6, 8, 10, 15, 20, 30])
@pytest.mark.parametrize("sigma", [0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05])
def test_what_is_said_to_be_reached_is_so(sigma: float, most: int, level: float) -> None:
    """Or it is hardly ever said: few repeats cannot tell a lucky run from a quiet board."""
    wanted = Precision(confidence_interval=0.02, level=level, max_repeats=most)
    found = coverage(wanted, sigma, runs=2 * RUNS, chance=random.Random(7))
    print(
        f"sigma {sigma:.1%}, {most} at most, level {level:.0%}: reached in {found.reached:.2%},"
        f" of which {found.covered_if_reached:.1%} hold; of all {found.covered:.2%};"
        f" {found.repeats:.1f} repeats"
    )
    assert found.covered >= level - 0.005
    assert found.covered_if_reached >= level - 0.02 or found.reached <= 0.01


@pytest.mark.parametrize("sigma", [0.01, 0.02, 0.03])
def test_all_that_a_run_prints_holds_as_often(sigma: float) -> None:
    """With records, as a run has them: a rate asked for, the table's time and the ratio."""
    wanted = wanted_precision(run(recipe_resolved={"repeats_until": ASKED}))
    assert wanted is not None
    chance = random.Random(9)
    time = ratio = alarms = 0
    for _ in range(RUNS // 5):
        groups = [stopped(wanted, noise(sigma, chance), variant) for variant in ("a", "b")]
        _, row = summarise([t for group in groups for t in group], ("a", "b"), wanted)
        assert row.token_interval is not None
        assert row.ratio_interval is not None
        time += row.token_interval.low <= 100e6 <= row.token_interval.high
        ratio += row.ratio_interval.low <= 1 <= row.ratio_interval.high
        alarms += trend_verdict("b", groups[1]) is not None
    runs = RUNS // 5
    print(
        f"sigma {sigma:.0%}: time {time / runs:.1%}, ratio {ratio / runs:.1%},"
        f" trends told where there is none {alarms / runs:.1%}"
    )
    assert min(time, ratio) / runs >= 0.94  # of fewer runs
    assert alarms / runs <= 0.05


def test_a_trend_is_found_and_seldom_imagined() -> None:
    found = trends_told(0.5, runs=RUNS, chance=random.Random(11))
    imagined = trends_told(0, runs=RUNS, chance=random.Random(12))
    print(f"half a sigma a repeat is told in {found:.1%} of runs of ten, nothing in {imagined:.1%}")
    assert found >= 0.9
    assert imagined <= 0.05


@pytest.mark.parametrize("correlation", [0.3, 0.5, 0.7])
def test_repeats_that_resemble_the_one_before_are_beyond_any_interval(correlation: float) -> None:
    """No promise: the figures of docs/measuring-reference.md."""
    chance = random.Random(13)
    wanted = Precision.model_validate(ASKED)
    for sigma in (0.01, 0.02, 0.03):
        found = coverage(wanted, sigma, runs=RUNS, chance=chance, correlation=correlation)
        print(
            f"AR {correlation}, sigma {sigma:.0%}: {found.covered:.1%}, {found.repeats:.1f} repeats"
        )
    fixed = 0
    for _ in range(RUNS):
        source = noise(0.02, chance, correlation)
        ten = estimate_of([next(source) for _ in range(10)], None)
        assert ten is not None
        assert ten.interval is not None
        fixed += ten.interval.low <= 100 <= ten.interval.high
    print(f"AR {correlation}, ten repeats: {fixed / RUNS:.1%}")
    assert fixed / RUNS < 0.9
