"""Intervals of quantiles hold the true quantile as often as they say."""

import random

import pytest

from labctl.stats.intervals import quantile_interval


def test_a_p99_has_an_upper_end_from_368_values_on() -> None:
    """0.99^367 is 2.50 %, the half of what 95 % leaves."""
    assert quantile_interval(range(367), 99).high is None
    assert quantile_interval(range(368), 99).high == 367


def test_a_median_lies_between_order_statistics() -> None:
    """Ranks 40 and 61 of 100, as tables of the sign test have them."""
    found = quantile_interval(range(1, 101), 50)
    assert (found.low, found.high) == (40, 61)


@pytest.mark.parametrize(("percent", "count"), [(50, 30), (90, 100), (99, 600)])
def test_it_covers(percent: float, count: int) -> None:
    source, held, times = random.Random(5), 0, 400
    for _ in range(times):
        found = quantile_interval([source.random() for _ in range(count)], percent)
        low = 0 if found.low is None else found.low
        high = 1 if found.high is None else found.high
        held += low <= percent / 100 <= high
    assert held / times > 0.93


def test_no_values_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile_interval([], 99)
