import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.stats.describe import mad, mean, median, percentile, ratio

SAMPLES = st.lists(st.integers(0, 10**12), min_size=1, max_size=50)


def test_percentiles_between_neighbours_are_linear() -> None:
    sample = [40, 10, 30, 20]
    assert percentile(sample, 0) == 10
    assert percentile(sample, 100) == 40
    assert percentile(sample, 50) == 25
    assert percentile(sample, 90) == pytest.approx(37)


@given(SAMPLES)
def test_median_is_the_standard_librarys(sample: list[int]) -> None:
    assert median(sample) == pytest.approx(statistics.median(sample))


@given(SAMPLES, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_grow_and_stay_inside(sample: list[int], one: float, two: float) -> None:
    low, high = sorted((one, two))
    slack = 1e-9 * max(sample)
    assert min(sample) - slack <= percentile(sample, low)
    assert percentile(sample, low) <= percentile(sample, high) + slack
    assert percentile(sample, high) <= max(sample) + slack


def test_spread_ignores_one_outlier() -> None:
    assert mad([10, 11, 9, 10, 10_000]) == pytest.approx(1.4826)
    assert mad([5, 5, 5]) == 0


def test_mean_and_ratio() -> None:
    assert mean([1, 2, 6]) == 3
    assert ratio(49.73, 18.18) == pytest.approx(2.735, abs=1e-3)


@pytest.mark.parametrize("function", [median, mean, mad, lambda v: percentile(v, 99)])
def test_nothing_is_described_of_nothing(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="no values"):
        function([])


def test_ratio_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="ratio"):
        ratio(1.0, 0.0)


def test_percent_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        percentile([1], 101)
