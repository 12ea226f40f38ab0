"""The noise of groups of values, of which a few are far out."""

import random
from statistics import fmean

import pytest

from labctl.stats.scatter import pooled_scatter


def groups(chance: random.Random, count: int, size: int) -> list[list[float]]:
    return [[5 * n + chance.gauss(0, 0.02) for _ in range(size)] for n in range(count)]


@pytest.mark.parametrize(("count", "size"), [(1, 9), (4, 8), (10, 8)])
def test_it_is_the_standard_deviation_of_normal_noise_inside_groups(count: int, size: int) -> None:
    chance = random.Random(1)
    found = [pooled_scatter(groups(chance, count, size)) for _ in range(400)]
    squares = [one.sigma**2 for one in found if one is not None]
    assert fmean(squares) ** 0.5 == pytest.approx(0.02, rel=0.06)
    # Its own scatter is that of a chi-squared variable with the degrees that it names.
    relative = fmean((one / fmean(squares) - 1) ** 2 for one in squares)
    assert found[0] is not None
    assert 2 / relative == pytest.approx(found[0].degrees, rel=0.25)


def test_a_value_far_out_changes_little() -> None:
    values = groups(random.Random(2), 1, 14)[0]
    before, after = pooled_scatter([values]), pooled_scatter([[*values[:-1], 9.0]])
    assert before is not None
    assert after is not None
    assert after.sigma < 1.5 * before.sigma


def test_equal_and_too_few_values() -> None:
    assert pooled_scatter([]) is None
    assert pooled_scatter([[1.0], [2.0]]) is None
    none = pooled_scatter([[1.0, 1.0, 1.0]])
    assert none is not None
    assert none.sigma == 0
    few = pooled_scatter([[1.0] * 9 + [1.1]])  # more than half are equal
    assert few is not None
    assert few.sigma > 0
