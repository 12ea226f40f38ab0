"""Multiple comparisons with the best: the variants that may have the smallest true value.

J. C. Hsu, Annals of Statistics 9(5), 1981, and Multiple Comparisons, 1996, chapter 4. With the
given error, the set contains the true best: noise alone would place the best this far behind
another variant in so few cases. This holds for variants of one noise; if the best is several times
as noisy as the others and has few repeats, the set lacks it more often. All computation uses
natural logarithms.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import fmean, variance

from labctl.stats.intervals import stopping_cost
from labctl.stats.log_ratio import Repeat, are_interleaved, variance_within
from labctl.stats.power import chi_scatter
from labctl.stats.scatter import Scatter, pooled_scatter

#: Smallest variance that counts, as a share of the pooled one: two repeats may be equal by chance.
_LEAST_SQUARE = 1e-5


@dataclass(frozen=True)
class _Mean:
    """Mean of a variant's logarithms, its variance, and the variance's degrees of freedom."""

    value: float
    square: float
    degrees: float


def may_be_best(
    variants: Sequence[Sequence[Repeat]], *, error: float = 0.05, stopped: bool = False
) -> list[bool]:
    """Return for each variant whether it may have the smallest true value.

    A variant is left out if it is slower than another one by more than the noise of both explains:
    the critical value is C. W. Dunnett's for one side (J. American Statistical Association 50(272),
    1955). All variants have one robust noise (:func:`pooled_scatter`), unless their noises differ
    by more than chance explains: then each has its own, see :func:`_own_noises`. In interleaved
    rounds that all variants have, the drift from round to round is not noise.

    A variant with a smaller estimate than one in the set is in the set too: a noisy variant must
    not appear better than a steady one that is faster.

    Args:
        variants: repeats of each variant, all with values above 0; estimates are geometric means.
        error: probability that the set lacks the true best, if all variants have one noise.
        stopped: repeating may have stopped because a result was precise, see
            :func:`labctl.stats.intervals.stopping_cost`.

    If no variant has two repeats, the noise is unknown, and every variant may be the best, as an
    only one is. Raises
    ValueError for a variant without repeats.
    """
    means = _means(variants, stopped=stopped) if len(variants) > 1 else None
    if means is None:
        return [True] * len(variants)
    loudest = max(one.square for one in means)
    critical = partial(_critical, len(means) - 1, error)
    last = max(
        one.value
        for one in means
        if not any(_is_shown_larger(one, other, loudest, critical) for other in means)
    )
    return [one.value <= last for one in means]


def _means(variants: Sequence[Sequence[Repeat]], *, stopped: bool) -> list[_Mean] | None:
    """Return the means; None if no variant shows the noise."""
    logs = [[math.log(one.value) for one in repeats] for repeats in variants]
    groups, share = _residuals(variants, logs)
    noises = _noises(groups, share)
    if noises is None:
        return None
    found = []
    for values, noise in zip(logs, noises, strict=True):
        worth = len(values) - stopping_cost(len(values), stopped=stopped)
        found.append(_Mean(fmean(values), noise.sigma**2 / worth, noise.degrees))
    return found


def _residuals(
    variants: Sequence[Sequence[Repeat]], logs: Sequence[Sequence[float]]
) -> tuple[list[list[float]], float]:
    """Return each variant's values without the drift of the rounds, and their share of the noise.

    The share is that of the variance, and of the degrees of freedom: 1 - 1/k for k variants, of
    which the rounds' means take 1/k.
    """
    rounds = {tuple(one.round for one in repeats) for repeats in variants}
    if len(rounds) > 1 or not are_interleaved([one for repeats in variants for one in repeats]):
        return [list(values) for values in logs], 1.0
    drift = [fmean(values) for values in zip(*logs, strict=True)]
    parts = [[v - d for v, d in zip(values, drift, strict=True)] for values in logs]
    return parts, 1 - 1 / len(variants)


def _noises(groups: Sequence[Sequence[float]], share: float) -> list[Scatter] | None:
    """Return the noise of each variant; None if none has two repeats. ``share``: of the noise."""
    if len(groups) > 2:
        pooled = pooled_scatter(groups)
    else:  # no other variants tell what an outlier is
        square, whole = variance_within(groups)
        pooled = Scatter(math.sqrt(square), whole) if whole else None
    if pooled is None:
        return None
    common = Scatter(pooled.sigma / math.sqrt(share), pooled.degrees * share)
    if common.sigma == 0:
        return [common] * len(groups)
    squares = [variance(group) / share if len(group) > 1 else 0.0 for group in groups]
    degrees = [(len(group) - 1) * share for group in groups]
    return _own_noises(squares, degrees, common) or [common] * len(groups)


def _own_noises(
    squares: Sequence[float], degrees: Sequence[float], common: Scatter
) -> list[Scatter] | None:
    """Return own noises from variances and their degrees; None if chance explains the differences.

    Two or three repeats say little about a variant's noise, but all variants together say how much
    noises differ. So each variance is moderated by the typical one, with the weight that the spread
    of all variances gives it (G. K. Smyth, Statistical Applications in Genetics and Molecular
    Biology 3(1), 2004, sections 4 and 6.2).
    """
    from scipy.special import digamma, polygamma

    measured = [(s, d) for s, d in zip(squares, degrees, strict=True) if d]
    if len(measured) < 2:
        return None
    least = _LEAST_SQUARE * common.sigma**2
    logs = [math.log(max(s, least)) - digamma(d / 2) + math.log(d / 2) for s, d in measured]
    spread = variance(logs) - fmean(float(polygamma(1, d / 2)) for _, d in measured)
    if spread <= 0:
        return None
    low, high = 1e-3, 1e6  # the trigamma function falls
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if polygamma(1, middle) > spread else (low, middle)
    weight = 2 * low
    typical = math.exp(fmean(logs) + digamma(weight / 2) - math.log(weight / 2))
    return [
        Scatter(
            math.sqrt((weight * typical + of * square) / (weight + of)),
            min(weight + of, common.degrees),
        )
        for square, of in zip(squares, degrees, strict=True)
    ]


def _is_shown_larger(
    one: _Mean, other: _Mean, loudest: float, critical: Callable[[float, int], float]
) -> bool:
    """Return True if a variant is shown to be larger than another one, in view of all others."""
    square = one.square + other.square
    if square == 0 or one.value <= other.value:
        return one.value > other.value
    degrees = one.degrees
    if one.degrees != other.degrees:  # F. E. Satterthwaite, Biometrics Bulletin 2(6), 1946
        parts = sum(m.square**2 / m.degrees for m in (one, other))
        degrees = square**2 / parts
    # Rounded to the wide side, so that few critical values are computed.
    share = math.floor(20 * one.square / (one.square + loudest)) / 20
    steps = 1 if degrees < 20 else 10
    limit = critical(share, max(1, math.floor(degrees / steps) * steps))
    return one.value - other.value > limit * math.sqrt(square)


@lru_cache(maxsize=1024)
def _critical(others: int, error: float, share: float, degrees: int) -> float:
    """Return the value that the largest of ``others`` differences exceeds by chance with ``error``.

    Each difference is divided by its estimated standard error. ``share``: the correlation of two of
    them, the part of the variance that all have in common, because one variant is in all.
    """
    import numpy as np
    from scipy.special import ndtr

    spreads = chi_scatter(degrees)[:, None]
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    weights /= weights.sum()
    common, rest = math.sqrt(share) * nodes, math.sqrt(1 - share)
    low, high = 0.0, 1.0

    def is_reached(value: float) -> bool:
        held = ndtr((common + value * spreads) / rest) ** others
        return bool((held @ weights).mean() >= 1 - error)

    while not is_reached(high):
        low, high = high, 2 * high
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if is_reached(middle) else (middle, high)
    return high
