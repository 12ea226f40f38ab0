"""Confidence intervals of a quantile, whatever the distribution is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class QuantileInterval:
    """Ends of the interval of a quantile; None: the sample is too small to have this end."""

    low: float | None
    high: float | None


def quantile_interval(
    values: Sequence[float], percent: float, *, level: float = 0.95
) -> QuantileInterval:
    """Return the interval of a quantile of independent values, between two values of the sample.

    Of ``n`` values the number below the quantile is binomial, so that order statistics hold it with
    at least ``level``, half of what is left on each side (W. R. Thompson, Annals of Mathematical
    Statistics 7(3), 1936; H. A. David and H. N. Nagaraja, Order Statistics, 2003, 7.1). The 99th
    percentile has an upper end at 95 % from 368 values on. Raises ValueError for no values.
    """
    if not values:
        raise ValueError("a quantile of no values")
    ordered, share, tail = sorted(values), percent / 100, (1 - level) / 2
    count = len(ordered)
    low: float | None = None
    high: float | None = None
    below = 0.0  # P(fewer than ``rank`` values are below the quantile)
    for rank in range(1, count + 1):
        below += _binomial(count, rank - 1, share)
        if below <= tail:
            low = ordered[rank - 1]
        if below >= 1 - tail:
            high = ordered[rank - 1]
            break
    return QuantileInterval(low, high)


def _binomial(count: int, hits: int, share: float) -> float:
    """Return the probability of ``hits`` in ``count`` trials."""
    if share in (0, 1):
        return float(hits == count * share)
    log = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    return math.exp(log + hits * math.log(share) + (count - hits) * math.log1p(-share))
