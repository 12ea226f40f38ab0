import math

import numpy as np
import pytest
from simulated_nights import NOISES, Noise, false_steps, found_steps, louder, nights, wandering

from labctl.stats.steps import LEAST_SERIES, find_steps, smallest_step


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


def test_six_nights_at_the_end_can_be_a_step_and_three_cannot() -> None:
    values = series((100, 60), (150, 6))
    assert [step.index for step in find_steps(values)] == [60]
    assert find_steps(values[:-3]) == []


def test_a_level_that_comes_and_goes_has_all_its_steps() -> None:
    found = find_steps(series((100, 25), (110, 25), (100, 25), (110, 25)))
    assert [step.ratio > 1 for step in found] == [True, False, True]
    assert all(
        step.earliest <= at <= step.latest for step, at in zip(found, (25, 50, 75), strict=True)
    )


@pytest.mark.parametrize(("levels", "lasts"), [(12, 30), (8, 25), (24, 30)])
def test_a_year_of_changes_shows_them_all(levels: int, lasts: int) -> None:
    """No one or two cuts of the whole series stand out."""
    found = find_steps(series(*[(100 + 10 * (n % 2), lasts) for n in range(levels)]))
    assert [step.ratio > 1 for step in found] == [n % 2 == 0 for n in range(levels - 1)]
    assert all(abs(step.index - lasts * n) <= 2 for n, step in enumerate(found, 1))


def test_the_unit_and_the_direction_do_not_matter() -> None:
    values = series((100, 40), (107, 40))
    (step,) = find_steps(values)
    (other,) = find_steps([1e9 / value for value in values])
    assert (other.index, other.earliest, other.latest) == (step.index, step.earliest, step.latest)
    assert other.ratio == pytest.approx(1 / step.ratio)


def test_the_size_of_a_step_is_the_same_up_and_down() -> None:
    up = series((100, 40), (101, 40), sigma=0.001)
    assert [step.size for step in find_steps(up)] == [pytest.approx(0.01, rel=0.1)]
    assert [step.size for step in find_steps(up[::-1])] == [pytest.approx(0.01, rel=0.1)]


def test_values_without_noise_are_no_steps_and_a_clear_one_is() -> None:
    assert find_steps([100.0] * 50) == []
    assert find_steps([100.0, 100.01] * 25) == []
    assert [s.index for s in find_steps([100.0] * 25 + [103.0] * 25)] == [25]


def test_a_short_series_has_no_step() -> None:
    assert find_steps([]) == []
    assert find_steps([100.0] * 5 + [200.0] * (LEAST_SERIES - 6)) == []


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_only_values_above_0_have_a_ratio(bad: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        find_steps([1.0] * 20 + [bad])


@pytest.mark.parametrize("name", list(NOISES)[:11])
def test_noise_that_wanders_or_changes_is_no_step(name: str) -> None:
    """The small case of the soak."""
    assert false_steps(25, NOISES[name], np.random.default_rng(1)) <= 3


def test_a_step_of_5_percent_is_shown_and_the_range_holds_it() -> None:
    """The small case of the soak."""
    chance = np.random.default_rng(1)
    short = found_steps(40, 1.05, wandering(0), chance, before=20, count=30)
    long = found_steps(25, 1.05, wandering(0), chance, before=50)
    assert short.shown >= 0.6
    assert long.shown >= 0.95
    assert min(short.held, long.held) >= 0.85


def values_of(noise: Noise, count: int = 100, step: float = 1) -> list[float]:
    logs = noise(count, np.random.default_rng(5))
    logs[count // 2 :] += math.log(step)
    return np.exp(logs).tolist()


def test_what_could_not_be_told_grows_with_the_noise() -> None:
    plain, wanders, loud = (
        smallest_step(values_of(noise), []) for noise in (wandering(0), wandering(0.7), louder(8))
    )
    assert plain is not None
    assert wanders is not None
    assert loud is not None
    assert 0.015 < plain < 0.03 < wanders < loud
    few = smallest_step(values_of(wandering(0), 20), [])
    assert few is not None
    assert few > plain
    assert smallest_step([100.0] * (LEAST_SERIES - 1), []) is None
    assert smallest_step(values_of(wandering(0.9, 1.0)), []) is None


@pytest.mark.parametrize("noise", [wandering(0), wandering(0.5), wandering(0.7)])
def test_a_step_below_that_is_not_shown_and_one_well_above_it_is(noise: Noise) -> None:
    smallest = smallest_step(values_of(noise), [])
    assert smallest is not None
    assert find_steps(values_of(noise, step=1 + 0.3 * smallest)) == []
    (step,) = find_steps(values_of(noise, step=1 + 2.5 * smallest))
    assert step.earliest <= 50 <= step.latest
    assert smallest_step(values_of(noise, step=1 + 2.5 * smallest), [step]) == pytest.approx(
        smallest, rel=0.4
    )


@pytest.mark.parametrize("mean", [0.293, 0.2951])
def test_rates_that_were_rounded_until_most_are_equal_are_no_steps(mean: float) -> None:
    """0.29 and 0.30 tokens/s are 3 % apart, and no night lies between them."""
    chance = np.random.default_rng(1)
    noisy = [np.round(mean * np.exp(0.007 * chance.standard_normal(100)), 2) for _ in range(40)]
    assert sum(any(s.size >= 0.02 for s in find_steps(values)) for values in noisy) <= 2
    assert all(find_steps([*values[:50], *(values[50:] * 0.9)]) for values in noisy)
