import itertools
import random

import pytest

from labctl.stats.describe import find_trend


def counted(score: int, count: int) -> float:
    """Of all orders, how many are as ordered as that."""
    orders = list(itertools.permutations(range(count)))
    as_ordered = 0
    for order in orders:
        pairs = itertools.combinations(order, 2)
        as_ordered += abs(sum(1 if b > a else -1 for a, b in pairs)) >= score
    return as_ordered / len(orders)


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [1, 2, 4, 3, 5, 6, 7]])
def test_the_probability_is_that_of_all_orders(values: list[float]) -> None:
    found = find_trend(values)
    assert found is not None
    pairs = itertools.combinations(values, 2)
    score = abs(sum(1 if b > a else -1 for a, b in pairs))
    assert found.probability == pytest.approx(counted(score, len(values)))


def test_the_slope_is_a_steps_and_no_outlier_moves_it() -> None:
    rising = [10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 99.0, 13.5]
    found = find_trend(rising)
    assert found is not None
    assert found.slope == pytest.approx(0.5, abs=0.1)
    fallen = find_trend([-value for value in rising])
    assert fallen is not None
    assert fallen.slope == pytest.approx(-found.slope)


@pytest.mark.parametrize(
    "values", [[], [1.0], [1, 2], [1, 2, 3, 4], [7.0] * 30, [3, 1, 2, 5, 4, 1, 3, 2, 4, 3]]
)
def test_too_few_equal_or_mixed_values_have_none(values: list[float]) -> None:
    assert find_trend(values) is None


def test_many_values_are_tested_like_few() -> None:
    """From 41 values on the distribution is no longer counted, but taken for normal."""
    chance = random.Random(3)
    for step in (0.01, 0.02, 0.03):
        values = [chance.gauss(0, 1) + n * step for n in range(40)]
        few = find_trend(values, at_most=1)
        more = find_trend(values, at_most=1, counted=39)
        assert few is not None
        assert more is not None
        assert more.probability == pytest.approx(few.probability, rel=0.15)


@pytest.mark.parametrize("count", [4, 5, 6, 7])
def test_chance_alone_is_seldom_taken_for_a_trend(count: int) -> None:
    orders = list(itertools.permutations(range(count)))
    alarms = sum(find_trend(order) is not None for order in orders)
    assert alarms <= 0.05 * len(orders)
