"""Holm's procedure, tests without a distribution, and how many repeats a verdict needs."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.stats.hypothesis_tests import holm, mann_whitney, sign_flip
from labctl.stats.log_ratio import paired
from labctl.stats.power import POWER, repeats_for_difference, repeats_for_same


def test_the_smallest_of_several_has_the_strictest_test() -> None:
    """As R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") < 0.05 holds for the 1st and 4th."""
    probabilities = [0.01, 0.04, 0.03, 0.005]
    errors = holm(probabilities)
    assert errors == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])
    passed = [p <= error for p, error in zip(probabilities, errors, strict=True)]
    assert passed == [True, False, False, True]
    assert holm([]) == []
    assert holm([0.9]) == [0.05]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_it_is_holms_adjustment(probabilities: list[float]) -> None:
    errors = holm(probabilities)
    ordered = sorted(probabilities)
    count = len(ordered)
    rejected = list(
        itertools.takewhile(lambda pair: pair[1] <= 0.05 / (count - pair[0]), enumerate(ordered))
    )
    passed = sum(p <= error for p, error in zip(probabilities, errors, strict=True))
    assert passed == len(rejected)


def test_all_signs_of_a_few_pairs_are_tried() -> None:
    assert sign_flip([1.0, 2.0, 3.0, 4.0]) == 2 / 16  # itself, and all turned round
    assert sign_flip([1.0, -1.0]) == 1.0
    exact = sign_flip([0.5, -0.1, 0.3, 0.2, 0.4, -0.2, 0.1, 0.3, 0.6, 0.2, 0.1, 0.3])
    # exact by hand: sums of 2^12 assignments that are as far from 0 as 2.7
    values = [0.5, -0.1, 0.3, 0.2, 0.4, -0.2, 0.1, 0.3, 0.6, 0.2, 0.1, 0.3]
    far = sum(
        abs(sum(s * abs(v) for s, v in zip(signs, values, strict=True))) >= sum(values) - 1e-9
        for signs in itertools.product((1, -1), repeat=12)
    )
    assert exact == far / 2**12


def test_of_many_pairs_a_sample_of_signs_does() -> None:
    values = [0.01 * math.sin(n * n) + 0.003 for n in range(20)]
    assert sign_flip(values) == sign_flip(values)  # the same sample each time
    found = paired([math.exp(v) for v in values], [1.0] * 20).p_different()
    assert sign_flip(values) == pytest.approx(found, abs=0.02)


def test_mann_and_whitney() -> None:
    """As R: wilcox.test(a, b, exact=FALSE), with its correction for ties."""
    a = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30, 1.30]
    b = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29, 1.10]
    # U = 77, two ties in each of three pairs
    spread = math.sqrt(100 / 12 * (21 - 18 / (20 * 19)))
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    expected = math.erfc((abs(wins - 50) - 0.5) / spread / math.sqrt(2))
    assert mann_whitney(a, b) == pytest.approx(expected)
    assert mann_whitney(a, b) == pytest.approx(mann_whitney(b, a))
    assert mann_whitney(a, a) == 1.0
    assert mann_whitney([1.0] * 10, [1.0] * 10) == 1.0
    assert mann_whitney([1.0 + n for n in range(10)], [101.0 + n for n in range(10)]) < 0.001


def test_pairs_that_show_sameness() -> None:
    """± 3 % at 1, 2 and 3 % of noise: 5, 12 and 24 pairs."""
    margin = math.log(1.03)
    assert [repeats_for_same(sigma, margin) for sigma in (0.01, 0.02, 0.03)] == [5, 12, 24]
    assert repeats_for_same(0.01, margin, difference=margin) is None
    assert repeats_for_same(0.2, margin) is None
    near = repeats_for_same(0.01, margin, difference=0.02)
    assert near is not None
    assert near > 5


def test_pairs_that_show_a_difference() -> None:
    five = math.log(1.05)
    found = [repeats_for_difference(sigma, five) for sigma in (0.01, 0.02, 0.03)]
    assert found == sorted(found, key=lambda n: n or 0)
    assert found[0] is not None
    assert found == [repeats_for_difference(s, -five) for s in (0.01, 0.02, 0.03)]
    assert repeats_for_difference(0.01, 0.02, threshold=0.02) is None
    assert repeats_for_difference(0.5, five) is None
    assert repeats_for_difference(1e-12, five) == 2


@pytest.mark.parametrize(("sigma", "difference"), [(0.01, 0.0), (0.02, 0.0), (0.02, 0.05)])
def test_so_many_pairs_do_it_in_nine_of_ten_cases(sigma: float, difference: float) -> None:
    """The powers are those of the tests, by simulation."""
    chance = random.Random(3)
    margin = math.log(1.03)
    needed = (
        repeats_for_difference(sigma, difference, threshold=0.02)
        if difference
        else repeats_for_same(sigma, margin)
    )
    assert needed is not None
    shown = 0
    for _ in range(1000):
        left = [math.exp(chance.gauss(0, sigma)) for _ in range(needed)]
        right = [math.exp(chance.gauss(difference, sigma)) for _ in range(needed)]
        found = paired(right, left)
        if difference:
            shown += found.p_different() <= 0.05 and found.mean > 0.02
        else:
            shown += found.p_beyond(margin) <= 0.05
    assert POWER - 0.03 <= shown / 1000 <= POWER + 0.08
