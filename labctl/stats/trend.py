"""A trend in values that were measured one after the other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from labctl.stats.describe import median

#: Up to here the distribution is counted; beyond, its normal approximation is as good.
_COUNTED = 40


@dataclass(frozen=True)
class Trend:
    """A rise (or fall) by ``slope`` from each value to the next.

    ``probability``: of so much order, up or down, where there is no trend.
    """

    slope: float
    probability: float


def find_trend(values: Sequence[float], *, at_most: float = 0.05) -> Trend | None:
    """Return the trend of values in their order; None unless its p-value is below ``at_most``.

    The test of H. B. Mann (Econometrica 13(3), 1945) and M. G. Kendall: of all pairs, how many rise
    and how many fall. It asks nothing of the distribution, one value out of line does not decide
    it, and fewer than five values never show a trend. The slope is the median of the pairs' slopes
    (H. Theil 1950, P. K. Sen 1968).
    """
    pairs = list(combinations(enumerate(values), 2))
    score = sum((b > a) - (b < a) for (_, a), (_, b) in pairs)
    probability = _probability(abs(score), len(values))
    if probability > at_most:
        return None
    return Trend(median([(b - a) / (j - i) for (i, a), (j, b) in pairs]), probability)


def _probability(score: int, count: int) -> float:
    """Of a score of so much or more, of either sign, in values that come in any order alike."""
    if score == 0:
        return 1.0
    if count > _COUNTED:
        spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        return math.erfc((score - 1) / spread / math.sqrt(2))
    # How many orders have 0, 1, 2 ... falling pairs: the k-th value adds 0 to k - 1 of them.
    orders = [1]
    for k in range(2, count + 1):
        sums = [0, *accumulate(orders + [0] * (k - 1))]
        orders = [sums[n + 1] - sums[max(0, n + 1 - k)] for n in range(len(sums) - 1)]
    falling = (count * (count - 1) // 2 - score) // 2
    return min(1.0, 2 * sum(orders[: falling + 1]) / math.factorial(count))
