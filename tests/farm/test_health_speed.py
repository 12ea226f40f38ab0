"""Verdicts on the speed of a board: healthy noisy ones stay good, slow memory is found."""

import numpy as np
import pytest
from simulated_health import RATES, Kind, bad_checks

from labctl.farm.health.speed import confirmed, judge_speed

SEED = 20261122


def judged(now: dict[str, float], earlier: list[dict[str, float]]) -> list[str]:
    speed = judge_speed(now, earlier, least_history=4, slower=0.05)
    return [one.part for one in speed.slower]


def steady(*factors: float) -> list[dict[str, float]]:
    return [{what: rate * factor for what, rate in RATES.items()} for factor in factors]


STEADY = steady(1, 1.01, 0.99, 1, 1.005, 0.995)


def test_the_part_that_became_slower_is_named() -> None:
    now = {w: r * (0.85 if "random" in w else 1) for w, r in RATES.items()}
    assert judged(now, STEADY) == ["storage read, random (direct)"]
    assert judged(dict(RATES), STEADY) == []
    assert judged({w: r * 1.5 for w, r in RATES.items()}, STEADY) == []


def test_a_slowdown_that_harms_nobody_is_none() -> None:
    still = steady(1, 1.0001, 0.9999, 1, 1)
    assert judged({w: r * 0.96 for w, r in RATES.items()}, still) == []


def test_too_little_history_is_no_verdict() -> None:
    speed = judge_speed(
        {w: r / 2 for w, r in RATES.items()}, STEADY[:3], least_history=4, slower=0.05
    )
    assert (speed.slower, speed.judged) == ((), ())
    assert "memory read" in speed.unjudged


def test_what_was_not_measured_before_is_not_judged() -> None:
    earlier = [{w: r for w, r in probe.items() if "memory" not in w} for probe in STEADY]
    now = {w: r / 2 for w, r in RATES.items()}
    assert "memory read" not in judged(now, earlier)
    assert "storage read, random (direct)" in judged(now, earlier)


def test_one_disturbed_probe_of_the_past_hides_no_slowdown() -> None:
    assert "memory read" in judged({w: r * 0.9 for w, r in RATES.items()}, [*STEADY, *steady(0.6)])


def test_both_probes_in_a_row_have_to_show_it() -> None:
    slow = judge_speed({w: r * 0.8 for w, r in RATES.items()}, STEADY, least_history=4, slower=0.05)
    fine = judge_speed(dict(RATES), STEADY, least_history=4, slower=0.05)
    assert confirmed(slow, fine) == ()
    assert confirmed(fine, slow) == ()
    assert {one.part for one in confirmed(slow, slow)} == set(slow.judged)


def hold(kind: Kind, sigma: float, history: int, boards: int) -> None:
    """At most 1 % false verdicts of healthy boards; 95 % of slow memories found (10 % slower)."""
    chance = np.random.default_rng(SEED)
    false = bad_checks(boards, sigma, chance, history=history, kind=kind)
    found = bad_checks(boards // 2, sigma, chance, history=history, kind=kind, slow=0.1)
    print(  # noqa: T201 - quoted where the counts are reported
        f"seed {SEED}, {kind}, sigma {sigma:.1%}, {history} earlier probes: {false} of {boards}"
        f" healthy boards called bad; {found} of {boards // 2} memories 10 % slower found"
    )
    assert false <= 0.01 * boards
    assert found >= 0.95 * (boards // 2)


@pytest.mark.parametrize(("sigma", "history"), [(0.01, 8), (0.02, 20)])
def test_healthy_boards_stay_good_and_slow_memory_is_found(sigma: float, history: int) -> None:
    hold("normal", sigma, history, boards=100)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "correlated", "outliers"])
@pytest.mark.parametrize(("sigma", "history"), [(0.005, 8), (0.01, 8), (0.015, 8), (0.02, 20)])
def test_a_thousand_checks(kind: Kind, sigma: float, history: int) -> None:
    hold(kind, sigma, history, boards=1000)
