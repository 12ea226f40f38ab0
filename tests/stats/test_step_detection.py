import math

import numpy as np
import pytest
from simulated_nights import false_steps, found_steps, nights

from labctl.stats.steps import LEAST_SERIES, find_steps


def series(*levels: tuple[float, int], sigma: float = 0.02, seed: int = 3) -> list[float]:
    chance = np.random.default_rng(seed)
    return [
        level * math.exp(value)
        for level, n in levels
        for value in nights(n, sigma, chance).tolist()
    ]


def test_a_step_has_its_place_its_levels_and_its_ratio() -> None:
    (step,) = find_steps(series((100, 40), (110, 30)))
    assert abs(step.index - 40) <= 1
    assert step.earliest <= 40 <= step.latest
    assert step.before == pytest.approx(100, rel=0.01)
    assert step.ratio == pytest.approx(1.1, rel=0.02)


def test_a_step_and_its_repair_are_two_steps() -> None:
    down = find_steps(series((100, 30), (112, 8), (100, 30)))
    assert [step.ratio > 1 for step in down] == [True, False]


@pytest.mark.parametrize("slow", [1.5, 4.0, 0.3])
def test_three_bad_nights_are_no_step(slow: float) -> None:
    values = series((100, 60))
    for night in (20, 40, 41, 42, 57, 58, 59):
        values[night] *= slow
    assert find_steps(values) == []


def test_bad_nights_hide_no_step() -> None:
    values = series((100, 40), (106, 40))
    for night in (10, 37, 38, 55, 56, 57):
        values[night] *= 3
    (step,) = find_steps(values)
    assert abs(step.index - 40) <= 3


def test_four_nights_at_the_end_can_be_a_step_and_three_cannot() -> None:
    values = series((100, 60), (150, 4))
    assert [step.index for step in find_steps(values)] == [60]
    assert find_steps(values[:-1]) == []


def test_the_unit_and_the_direction_do_not_matter() -> None:
    values = series((100, 40), (107, 40))
    (step,) = find_steps(values)
    (other,) = find_steps([1e9 / value for value in values])
    assert (other.index, other.earliest, other.latest) == (step.index, step.earliest, step.latest)
    assert other.ratio == pytest.approx(1 / step.ratio)


def test_a_step_of_no_interest_is_left_out() -> None:
    values = series((100, 40), (101, 40), sigma=0.001)
    assert len(find_steps(values)) == 1
    assert find_steps(values, at_least=0.02) == []


def test_values_without_noise_are_no_steps_and_a_clear_one_is() -> None:
    assert find_steps([100.0] * 50) == []
    assert find_steps([100.0, 100.01] * 25) == []
    assert [s.index for s in find_steps([100.0] * 25 + [103.0] * 25)] == [25]


def test_a_short_series_has_no_step() -> None:
    assert find_steps([]) == []
    assert find_steps([100.0] * 5 + [200.0] * (LEAST_SERIES - 6)) == []


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_only_values_above_0_have_a_ratio(bad: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        find_steps([1.0] * 20 + [bad])


def test_false_steps_are_rare_and_a_step_of_5_percent_is_placed() -> None:
    """The small case of the soak."""
    chance = np.random.default_rng(1)
    assert false_steps(300, 0.02, chance) <= 2
    assert found_steps(100, 1.05, 0.02, chance).placed >= 0.95


@pytest.mark.parametrize("mean", [0.293, 0.2951])
def test_rates_that_were_rounded_until_most_are_equal_are_no_steps(mean: float) -> None:
    """0.29 and 0.30 tokens/s are 3 % apart, and no night lies between them."""
    chance = np.random.default_rng(1)
    noisy = [np.round(mean * np.exp(0.007 * chance.standard_normal(100)), 2) for _ in range(200)]
    assert sum(bool(find_steps(values, at_least=0.02)) for values in noisy) <= 6
    assert all(find_steps([*values[:50], *(values[50:] * 0.9)]) for values in noisy)
