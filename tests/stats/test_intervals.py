import math

import pytest

from labctl.stats.intervals import geometric_interval, mean_interval, student_quantile


@pytest.mark.parametrize(
    ("degrees", "t"),
    # From any printed table of Student's distribution, two-sided 95 %.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228),
     (29, 2.045), (30, 2.042), (120, 1.980)],
)  # fmt: skip
def test_quantiles_are_those_of_printed_tables(degrees: int, t: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(t, abs=6e-4)
    assert student_quantile(0.025, degrees) == pytest.approx(-t, abs=6e-4)


def test_the_interval_of_a_mean() -> None:
    found = mean_interval([10.0, 12.0, 11.0, 13.0, 9.0])
    half = 2.7764 * math.sqrt(2.5) / math.sqrt(5)
    assert (found.mean, found.count) == (11.0, 5)
    assert found.high - found.mean == pytest.approx(half, rel=1e-4)
    assert found.relative == pytest.approx(half / 11, rel=1e-4)


def test_more_values_of_the_same_spread_make_it_narrower() -> None:
    few, many = mean_interval([9.0, 11.0] * 2), mean_interval([9.0, 11.0] * 10)
    assert many.relative < few.relative / 2


@pytest.mark.parametrize("values", [[], [1.0]])
def test_one_value_has_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match="two values"):
        mean_interval(values)


def test_an_interval_that_ended_the_repeating_rests_on_an_upper_limit_of_the_spread() -> None:
    """Of five values chi-square with four degrees of freedom is below 0.12924 with 0.002."""
    values = [10.0, 12.0, 11.0, 13.0, 9.0]
    plain, stopped = mean_interval(values), mean_interval(values, stopped=True)
    assert stopped.mean == plain.mean
    spread = math.sqrt(2.5) * math.sqrt(4 / 0.129238)
    assert stopped.high - 11 == pytest.approx(1.95996 * spread / math.sqrt(5), rel=1e-3)
    many = [10.0, 11.0] * 500
    usual, wider = (mean_interval(many, stopped=one).relative for one in (False, True))
    assert wider == pytest.approx(usual * 1.07, rel=0.02)
    # With three nobody could stop yet.
    assert mean_interval(values[:3], stopped=True) == mean_interval(values[:3])


def test_a_rate_and_its_time_have_one_interval() -> None:
    times = [0.02, 0.05, 0.03]
    of_times, of_rates = geometric_interval(times), geometric_interval([1 / t for t in times])
    assert of_rates.low == pytest.approx(1 / of_times.high)
    assert of_rates.high == pytest.approx(1 / of_times.low)
    assert geometric_interval([100.0, 101.0]).low > 0  # a straight one of two reaches far below
    with pytest.raises(ValueError, match="above 0"):
        geometric_interval([1.0, 0.0])


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 15, 40, 200])
def test_a_higher_level_has_no_narrower_interval(count: int, stopped: bool) -> None:
    values = [100.0 + number % 3 for number in range(count)]
    levels = (0.5, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.99, 0.999)
    widths = [mean_interval(values, level=one, stopped=stopped).high for one in levels]
    assert widths == sorted(widths)
