"""Hypothesis tests: ranks, one new value, and the correction for several tests at once.

Rank tests assume no distribution; from LEAST repeats on, they check the tests that assume one. A
new value is compared with the prediction from earlier ones of the same source. Each additional test
is another chance to be wrong.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labctl.stats.describe import mad, median
from labctl.stats.intervals import student_cdf, student_quantile


def holm(probabilities: Sequence[float], error: float = 0.05) -> list[float]:
    """Return for each p-value the error at which it is judged, so that ``error`` holds for all.

    S. Holm's step-down procedure (Scandinavian Journal of Statistics 6(2), 1979). The smallest of
    ``m`` p-values is judged at ``error / m``, the next at ``error / (m - 1)``, up to the first that
    fails; all later ones are judged at the same error, and fail too. A test holds if its p-value is
    at most its own error, which means that the interval of the level ``1 - error`` excludes the
    tested value.
    """
    errors = [0.0] * len(probabilities)
    judged: float | None = None
    for rank, index in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        if judged is None:
            errors[index] = error / (len(probabilities) - rank)
            if probabilities[index] > errors[index]:
                judged = errors[index]
        else:
            errors[index] = judged
    return errors


#: With fewer repeats, no p-value can be small, so a different result would mean nothing.
LEAST = 10
#: Up to this many pairs, all signs are tried; for more, their sums are counted in steps.
_ALL_SIGNS = 16
_STEPS = 20_000


def sign_flip(differences: Sequence[float], *, one_sided: bool = False) -> float:
    """Return the p-value of "differences are as often positive as negative", two-sided.

    R. A. Fisher's test by randomisation (The Design of Experiments, 1935, section 21): the share of
    all assignments of signs whose sum is at least as far from 0 as the observed one; ``one_sided``:
    at least as large. For more than 16 differences, sums are counted in steps, and rounding counts
    against the result (M. Pagano and D. Tritchler, J. American Statistical Association 78(382),
    1983).
    """
    import numpy as np  # only with enough repeats

    values = np.asarray(differences, dtype=float)
    if not one_sided and (seen := float(values.sum())) <= 0:
        return 1.0 if seen == 0 else sign_flip([-value for value in differences])
    sides = 1 if one_sided else 2
    if len(values) > _ALL_SIGNS:
        return min(1.0, sides * _share_of_sums(values))
    bits = np.arange(2 ** len(values))[:, None] >> np.arange(len(values))
    # Sums of the same numbers in another order differ by rounding.
    least = values.sum() - 1e-12 * np.abs(values).sum()
    return min(1.0, sides * float(np.mean((1 - 2 * (bits & 1)) @ values >= least)))


def least_differences(error: float) -> int:
    """Return the smallest number of differences that reach this p-value if all signs are equal."""
    return math.ceil(-math.log2(error))


def f_tail(ratio: float, degrees: float, of_reference: float) -> float:
    """Return the p-value of a ratio of two variances or a larger one (R. A. Fisher's F test)."""
    from scipy.special import fdtrc

    return float(fdtrc(degrees, of_reference, ratio))


def _share_of_sums(values: Any) -> float:
    """Return the share of all assignments of signs with a sum as large as the observed one."""
    import numpy as np

    sizes = np.abs(values)
    if not sizes.any():
        return 1.0
    steps = np.rint(sizes / sizes.sum() * _STEPS).astype(int)
    # Use the sum of the positive ones: the total is twice this sum minus the sum of all sizes.
    shares = np.zeros(int(steps.sum()) + 1)
    shares[0] = 1.0
    for step in steps:
        shares[step:] = (shares[step:] + shares[: len(shares) - step]) / 2
        shares[:step] /= 2
    seen = int(steps[values > 0].sum())
    return float(shares[max(0, seen - len(steps) // 2) :].sum())


def mann_whitney(values: Sequence[float], references: Sequence[float]) -> float:
    """Return the p-value of "neither side tends to be larger", two-sided.

    H. B. Mann and D. R. Whitney (Annals of Mathematical Statistics 18(1), 1947), by the normal
    approximation with corrections for ties and continuity, which is close from ten values on.
    """
    both = sorted([*values, *references])
    ranks: dict[float, float] = {}
    start = 0
    ties = Counter(both)
    for value, count in sorted(ties.items()):
        ranks[value] = start + (count + 1) / 2
        start += count
    n, m = len(values), len(references)
    above = sum(ranks[value] for value in values) - n * (n + 1) / 2
    tied = sum(count**3 - count for count in ties.values())
    spread = n * m / 12 * (n + m + 1 - tied / ((n + m) * (n + m - 1)))
    if spread <= 0:
        return 1.0
    distance = max(0.0, abs(above - n * m / 2) - 0.5) / math.sqrt(spread)
    return math.erfc(distance / math.sqrt(2))


#: Robust standard deviations from the median beyond which a value is an outlier.
_DEVIATIONS = 3.5


@dataclass(frozen=True)
class NextValue:
    """A new value and its prediction from earlier ones, all positive."""

    #: New value divided by the geometric mean of the earlier ones, minus 1: -0.1 is 10 % lower.
    change: float
    #: Probability of a value this low or lower if nothing has changed.
    probability: float
    #: Standard deviation of the earlier values' logarithms.
    scatter: float
    count: int

    def lowest_expected(self, error: float) -> float:
        """Return the change that an unchanged source falls below with probability ``error``."""
        limit = student_quantile(1 - error, self.count - 1)
        return math.expm1(-limit * self.scatter * math.sqrt(1 + 1 / self.count))


def predict_next(new: float, earlier: Sequence[float], *, least_scatter: float) -> NextValue:
    """Compare a new value with at least two earlier ones.

    The logarithms are assumed to be normal: ``(new - mean) / (s * sqrt(1 + 1/n))`` has Student's
    distribution with ``n - 1`` degrees of freedom (the prediction interval of a further value; G.
    Hahn and W. Meeker, Statistical Intervals, 1991, 4.7). ``least_scatter`` is the minimum of
    ``s``: a few values may agree by chance. Earlier outliers are left out: a short disturbance of
    the source must not hide all later changes.
    """
    logs = _without_outliers([math.log(value) for value in earlier])
    count, mean = len(logs), statistics.fmean(logs)
    scatter = max(statistics.stdev(logs), least_scatter)
    change = math.log(new) - mean
    t = change / (scatter * math.sqrt(1 + 1 / count))
    return NextValue(math.expm1(change), student_cdf(t, count - 1), scatter, count)


def _without_outliers(logs: Sequence[float]) -> list[float]:
    """Leave out values too far from the median (B. Iglewicz and D. Hoaglin, 1993).

    At most the farthest fifth: if there are more, they are normal for the source, not outliers.
    """
    middle, spread = median(logs), mad(logs)
    if not spread:
        return list(logs)
    far = [log for log in logs if abs(log - middle) > _DEVIATIONS * spread]
    far = sorted(far, key=lambda log: -abs(log - middle))[: len(logs) // 5]
    return [log for log in logs if log not in far]
