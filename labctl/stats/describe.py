"""Describe a sample and its trend."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

#: Factor from median absolute deviation to standard deviation, for a normal distribution.
MAD_TO_SIGMA = 1.4826


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which ``percent`` % of the sample lies, by linear interpolation.

    Definition: rank ``(n - 1) * percent / 100`` from 0 in the sorted sample; Hyndman and Fan's type
    7, the default of numpy and R. 0 gives the minimum, 100 the maximum.
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"a percentile is from 0 to 100, not {percent}")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return percentile(values, 50)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    if not values:
        raise ValueError("a mean of no values")
    return statistics.fmean(values)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean. Raises ValueError without values, or if a value is <= 0."""
    if min(values, default=0) <= 0:
        raise ValueError("a geometric mean is of values above 0")
    if len(values) == 1:
        return float(values[0])  # logarithms round
    return math.exp(statistics.fmean(map(math.log, values)))


def mad(values: Sequence[float]) -> float:
    """Return the spread: median absolute deviation from the median, times 1.4826.

    It has the unit of the values. For normal noise it estimates the standard deviation, and a
    single outlier hardly changes it.
    """
    middle = median(values)
    return MAD_TO_SIGMA * median([abs(value - middle) for value in values])


def ratio(value: float, reference: float) -> float:
    """Return ``value / reference``; both must be above 0, like durations and sizes."""
    if value <= 0 or reference <= 0:
        raise ValueError(f"a ratio of {value} and {reference}")
    return value / reference


@dataclass(frozen=True)
class Trend:
    """A rise (or fall) by ``slope`` from each value to the next.

    ``probability``: probability of at least so much order, up or down, without a trend.
    """

    slope: float
    probability: float


def find_trend(
    values: Sequence[float], *, at_most: float = 0.05, counted: int = 40
) -> Trend | None:
    """Return the trend of values in their order; None unless its p-value is below ``at_most``.

    The test of H. B. Mann (Econometrica 13(3), 1945) and M. G. Kendall counts how many pairs rise
    and how many fall. It assumes no distribution, a single outlier does not decide it, and fewer
    than five values never show a trend. The slope is the median of the pairs' slopes (H. Theil
    1950, P. K. Sen 1968). The distribution is computed exactly for up to ``counted`` values; above,
    its normal approximation is as good.
    """
    pairs = list(combinations(enumerate(values), 2))
    score = sum((b > a) - (b < a) for (_, a), (_, b) in pairs)
    probability = _probability(abs(score), len(values), counted)
    if probability > at_most:
        return None
    return Trend(median([(b - a) / (j - i) for (i, a), (j, b) in pairs]), probability)


def _probability(score: int, count: int, counted: int) -> float:
    """Return the probability of a score of at least this size, with either sign, by chance.

    By chance: all orders of the values are equally likely.
    """
    if score == 0:
        return 1.0
    if count > counted:
        spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        return math.erfc((score - 1) / spread / math.sqrt(2))
    # Number of orders with 0, 1, 2 ... falling pairs: the k-th value adds 0 to k - 1 of them.
    orders = [1]
    for k in range(2, count + 1):
        sums = [0, *accumulate(orders + [0] * (k - 1))]
        orders = [sums[n + 1] - sums[max(0, n + 1 - k)] for n in range(len(sums) - 1)]
    falling = (count * (count - 1) // 2 - score) // 2
    return min(1.0, 2 * sum(orders[: falling + 1]) / math.factorial(count))
