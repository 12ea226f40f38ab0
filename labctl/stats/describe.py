"""Describing a sample. Every function raises ValueError for an empty one."""

import math
import statistics
from collections.abc import Sequence

#: Makes the median absolute deviation of a normal distribution its standard deviation.
MAD_TO_SIGMA = 1.4826


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which ``percent`` % of the sample lies, by linear interpolation.

    Definition: rank ``(n - 1) * percent / 100`` from 0 in the sorted sample; Hyndman and Fan's
    type 7, the default of numpy and R. 0 gives the minimum, 100 the maximum.
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


def mad(values: Sequence[float]) -> float:
    """Return the spread: median absolute deviation from the median, times 1.4826.

    In the unit of the values, and for normal noise an estimate of its standard deviation that one
    outlier cannot spoil.
    """
    middle = median(values)
    return MAD_TO_SIGMA * median([abs(value - middle) for value in values])


def ratio(value: float, reference: float) -> float:
    """``value / reference``; both must be above 0, as durations and sizes are."""
    if value <= 0 or reference <= 0:
        raise ValueError(f"a ratio of {value} and {reference}")
    return value / reference
