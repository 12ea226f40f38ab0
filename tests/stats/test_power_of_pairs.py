"""Pairs for a power, and what they find, held against many simulated comparisons."""

import math

import numpy as np
import pytest

from labctl.stats.power import least_difference, repeats_for_difference, repeats_for_exclusion


def test_the_least_difference_is_what_that_many_pairs_are_enough_for() -> None:
    least = least_difference(0.02, 20, threshold=0.02, error=0.001, power=0.98)
    assert repeats_for_difference(0.02, least, threshold=0.02, error=0.001, power=0.98) == 20


def test_more_noise_hides_a_larger_difference() -> None:
    found = [least_difference(sigma, 12, error=0.001) for sigma in (0.01, 0.02, 0.03)]
    assert found == sorted(found)


def test_one_pair_finds_nothing() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        least_difference(0.01, 1)


def test_pairs_exclude_a_difference_as_often_as_they_promise() -> None:
    from scipy.stats import t as student

    margin, error = math.log(1.05), 0.005
    count = repeats_for_exclusion(0.02, margin, error=error, power=0.9)
    assert count is not None
    chance = np.random.default_rng(3)
    pairs = 0.02 * math.sqrt(2) * chance.standard_normal((20_000, count))
    bound = pairs.mean(1) + student.ppf(1 - error, count - 1) * pairs.std(1, ddof=1) / math.sqrt(
        count
    )
    assert np.mean(bound < margin) == pytest.approx(0.9, abs=0.03)
    assert np.mean(bound + margin < margin) <= 1.3 * error
