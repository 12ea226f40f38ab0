"""Test of one new value against earlier ones of the same source: is it lower than predicted?"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from labctl.stats.describe import mad, median
from labctl.stats.intervals import student_cdf, student_quantile

#: Robust standard deviations from the median beyond which a value is an outlier.
_DEVIATIONS = 3.5


@dataclass(frozen=True)
class NextValue:
    """A new value and its prediction by earlier ones, all positive."""

    #: New value over the geometric mean of the earlier ones, minus 1: -0.1 is 10 % lower.
    change: float
    #: Probability of a value this low or lower if nothing has changed.
    probability: float
    #: Standard deviation of the earlier values' logarithms.
    scatter: float
    count: int

    def lowest_expected(self, error: float) -> float:
        """Return the change below which a value that has not changed falls with ``error``."""
        limit = student_quantile(1 - error, self.count - 1)
        return math.expm1(-limit * self.scatter * math.sqrt(1 + 1 / self.count))


def predict_next(new: float, earlier: Sequence[float], *, least_scatter: float) -> NextValue:
    """Compare a new value with at least two earlier ones.

    The logarithms are taken for normal: ``(new - mean) / (s * sqrt(1 + 1/n))`` has Student's
    distribution with ``n - 1`` degrees of freedom (the prediction interval of a further value; G.
    Hahn and W. Meeker, Statistical Intervals, 1991, 4.7). ``least_scatter`` stands in for a smaller
    ``s``: a few values may agree by chance. Earlier values that are outliers are left out: a moment
    in which the source was disturbed must not hide all later changes.
    """
    logs = _without_outliers([math.log(value) for value in earlier])
    count, mean = len(logs), statistics.fmean(logs)
    scatter = max(statistics.stdev(logs), least_scatter)
    change = math.log(new) - mean
    t = change / (scatter * math.sqrt(1 + 1 / count))
    return NextValue(math.expm1(change), student_cdf(t, count - 1), scatter, count)


def _without_outliers(logs: Sequence[float]) -> list[float]:
    """Leave out what is too far from the median (B. Iglewicz and D. Hoaglin, 1993).

    At most a fifth, the farthest: more of them are no outliers, but how the source is.
    """
    middle, spread = median(logs), mad(logs)
    if not spread:
        return list(logs)
    far = [log for log in logs if abs(log - middle) > _DEVIATIONS * spread]
    far = sorted(far, key=lambda log: -abs(log - middle))[: len(logs) // 5]
    return [log for log in logs if log not in far]
