"""Confidence intervals of a mean and of a quantile.

The interval of a mean is Student's, for the few repeats that a board allows. The interval of a
quantile holds for any distribution.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_NORMAL = statistics.NormalDist()


@dataclass(frozen=True)
class QuantileInterval:
    """Ends of the interval of a quantile; None: the sample is too small to have this end."""

    low: float | None
    high: float | None


def quantile_interval(
    values: Sequence[float], percent: float, *, level: float = 0.95
) -> QuantileInterval:
    """Return the interval of a quantile of independent values, between two values of the sample.

    Of ``n`` values, the number below the quantile is binomial. So order statistics contain it with
    at least ``level``, with half of the rest on each side (W. R. Thompson, Annals of Mathematical
    Statistics 7(3), 1936; H. A. David and H. N. Nagaraja, Order Statistics, 2003, 7.1). The 99th
    percentile has an upper end at 95 % from 368 values on. Raises ValueError without values.
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


#: Number of values that the interval of a ratio loses if repeating stopped because a result was
#: precise (G. Simons, Annals of Mathematical Statistics 39(6), 1968). An interval that may have
#: stopped the repeating itself has more values than this.
STOPPING_COST = 3
#: Probability that the spread of the values exceeds its limit in an interval that may have stopped
#: the repeating. Repeating stops when the spread is small by chance. No interval can correct such a
#: lucky stop afterwards, so lucky stops must be rare.
_LUCK = 0.002


def stopping_cost(count: int, *, stopped: bool) -> int:
    """Return the number of values that the interval of a ratio of ``count`` values loses.

    ``stopped``: repeating may have stopped because a result was precise.
    """
    return STOPPING_COST if stopped and count > STOPPING_COST else 0


@dataclass(frozen=True)
class Interval:
    """A mean and its interval at ``level`` confidence; all in the unit of the values."""

    mean: float
    low: float
    high: float
    level: float
    count: int

    @property
    def relative(self) -> float:
        """Half of its width divided by the mean: 0.02 is plus or minus 2 %."""
        return (self.high - self.low) / 2 / abs(self.mean) if self.mean else math.inf

    @property
    def is_vague(self) -> bool:
        """True if an end is more than 100 % away from the mean.

        Two values that differ by chance can have an interval over forty orders of magnitude.
        """
        return abs(self.mean) < max(self.high - self.mean, self.mean - self.low)


def mean_interval(
    values: Sequence[float], *, level: float = 0.95, stopped: bool = False
) -> Interval:
    """Return the interval of the mean of independent values (W. S. Gosset, Biometrika 6(1), 1908).

    Exact for normal values. ``stopped``: repeating may have stopped because this interval was
    narrow, which never happens with :data:`STOPPING_COST` values or fewer. The interval then uses
    an upper limit of the spread instead of its estimate, as if the spread were known (compare the
    rule of Y. S. Chow and H. Robbins, Annals of Mathematical Statistics 36(2), 1965). Raises
    ValueError for fewer than two values, or a level outside (0, 1).
    """
    if len(values) < 2:
        raise ValueError("an interval needs two values or more")
    if not 0 < level < 1:
        raise ValueError(f"a level is between 0 and 1, not {level}")
    mean = statistics.fmean(values)
    if stopped and len(values) > STOPPING_COST:
        factor = _stopped_factor(len(values) - 1, level)
    else:
        factor = student_quantile((1 + level) / 2, len(values) - 1)
    half = factor * (statistics.stdev(values) / math.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half, level, len(values))


def geometric_interval(
    values: Sequence[float], *, level: float = 0.95, stopped: bool = False
) -> Interval:
    """Return the interval of values above 0: :func:`mean_interval` of their logarithms.

    Its ends are above 0; the ends for rates are the reciprocals of the ends for times. The mean is
    the geometric mean. Raises ValueError as :func:`mean_interval` does, and if a value is <= 0.
    """
    if min(values, default=1.0) <= 0:
        raise ValueError("a geometric mean is of values above 0")
    found = mean_interval([math.log(value) for value in values], level=level, stopped=stopped)
    mean, low, high = map(math.exp, (found.mean, found.low, found.high))
    return Interval(mean, low, high, level, found.count)


def _stopped_factor(degrees: int, level: float) -> float:
    """Return the half width of an interval after a stop, in estimated standard errors.

    Below a level of 95 %, it is at most the value for 95 %, which is sufficient there too.
    """
    factor = _NORMAL.inv_cdf((1 + level) / 2) * _spread_limit(degrees, level)
    return factor if level >= 0.95 else min(factor, _stopped_factor(degrees, 0.95))


@lru_cache(maxsize=1024)
def _spread_limit(degrees: int, level: float) -> float:
    """Return the upper limit of a standard deviation divided by its estimate.

    The limit is exceeded with probability _LUCK at the level of 0.95. At a higher level a lucky
    stop is more costly, at a lower level it comes sooner; so at both, the limit is exceeded less
    often (simulated: make soak).
    """
    luck = _LUCK * min((1 - level) / 0.05, 0.05 / (1 - level))
    low, high = 0.0, float(degrees)
    for _ in range(60):
        middle = (low + high) / 2
        if _chi_square(middle, degrees) < luck:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees / high)


def _chi_square(value: float, degrees: int) -> float:
    """Return the distribution function of chi-square by its series (Abramowitz, Stegun, 6.5.29)."""
    half, term, total, k = value / 2, 1.0, 1.0, degrees / 2
    while term > 1e-17 * total:
        k += 1
        term *= half / k
        total += term
    log = degrees / 2 * math.log(half) - half - math.lgamma(degrees / 2 + 1) if half else -math.inf
    return total * math.exp(log)


@lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees: float) -> float:
    """Return the quantile ``t`` of Student's distribution with ``degrees`` degrees of freedom."""
    if not float(degrees).is_integer():
        from scipy.special import stdtrit  # slow to import

        return float(stdtrit(degrees, probability))
    if probability < 0.5:
        return -student_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while student_cdf(high, degrees) < probability:
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        if student_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_cdf(t: float, degrees: float) -> float:
    """Return Student's distribution function.

    For whole degrees it uses the finite series (Abramowitz and Stegun, 26.7.3 and 26.7.4), which
    needs no library.
    """
    if not float(degrees).is_integer():
        from scipy.special import stdtr

        return float(stdtr(degrees, t))
    if t < 0:
        return 1 - student_cdf(-t, degrees)
    return _student_series(t, int(degrees))


def _student_series(t: float, degrees: int) -> float:
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        term, total = cosine, cosine if degrees > 1 else 0.0
        for k in range(2, degrees - 1, 2):
            term *= cosine**2 * k / (k + 1)
            total += term
        between = 2 / math.pi * (angle + sine * total)
    else:
        term = total = 1.0
        for k in range(1, degrees - 1, 2):
            term *= cosine**2 * k / (k + 1)
            total += term
        between = sine * total
    return 0.5 + between / 2
