"""Accuracies: intervals of a share of right answers, and how many questions a precision needs.

A question may have several samples. They are one cluster: what counts for it is the share of its
samples that is right.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean

from labctl.stats.intervals import Interval

#: Questions between two looks at whether the interval is narrow enough.
LOOK = 10
#: Widening of an interval that ended the asking. With the continuity correction alone computed
#: errors reach 5.04 %; with it they are at most 4.7 % at all accuracies, from ± 2 to ± 10 points.
_WIDENING = 1.02
_NORMAL = NormalDist()
#: Weight of the end of the range in :func:`bounded_interval`; simulated coverage is in
#: docs/comparing-reference.md.
_NEAR = 0.75
#: Random weighted means: the ends move by about 1 % of the width with other draws.
_DRAWS = 20_000


def wilson_interval(
    correct: float, total: int, *, level: float = 0.95, stopped: bool = False
) -> Interval:
    """Return the interval of an accuracy (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927).

    ``stopped``: asking ended because this interval was narrow, at one of the looks of
    :func:`half_width_reached`. It is then the one with continuity correction (R. G. Newcombe,
    Statistics in Medicine 17, 1998, method 4), 2 % wider, which makes up for the looks.

    Args:
        correct: right answers; of several samples the sum over questions of the share that is
            right. The interval is then at least as wide as need be.
        total: questions.
        level: between 0 and 1.
        stopped: see above.

    Raises ValueError for no question, or more right answers than questions.
    """
    if total < 1:
        raise ValueError("an accuracy of no questions")
    if not 0 <= correct <= total:
        raise ValueError(f"{correct} right answers of {total}")
    z = _two_sided(level) * (_WIDENING if stopped else 1)
    low, high = _wilson(correct / total, total, z, corrected=stopped)
    return Interval(correct / total, low, high, level, total)


def clustered_interval(
    shares: Sequence[float], samples: int, *, level: float = 0.95, stopped: bool = False
) -> Interval:
    """Return the interval of an accuracy with several samples of each question.

    ``shares`` are the questions' shares of right samples. With one sample of each it is
    :func:`wilson_interval`, else :func:`bounded_interval`: the shares of few questions near 0 or 1
    are too skewed for an interval that rests on their variance. ``count`` is the number of
    questions. ``stopped`` as in :func:`wilson_interval`. Raises ValueError for no question.
    """
    if not shares:
        raise ValueError("an accuracy of no questions")
    if samples == 1:
        return wilson_interval(sum(shares), len(shares), level=level, stopped=stopped)
    return bounded_interval(shares, level=level, stopped=stopped)


def bounded_interval(
    values: Sequence[float],
    *,
    least: float = 0.0,
    most: float = 1.0,
    level: float = 0.95,
    stopped: bool = False,
) -> Interval:
    """Return the interval of the mean of independent values between ``least`` and ``most``.

    Each end is a quantile of random weighted means of the values, in which the end of the range
    beyond it counts too: as 3/4 of a value, and the opposite end of the range as 1/4. With 1 and 0
    it is the bound of N. Gaffke (Mathematical Methods of Statistics 14(4), 2005), for values of 0
    and 1 the bound of Clopper and Pearson, which holds more often than it says; with 1/2 and 1/2 it
    is the bound of Jeffreys, which can hold less often.
    ``stopped``: asking ended because an interval was narrow. It is then Gaffke's, with the same
    widening as :func:`wilson_interval`. The draws are the same for the same values. Raises
    ValueError for no values, or one outside of the range.
    """
    if not values or not least <= min(values) <= max(values) <= most:
        raise ValueError(f"a mean of values between {least:g} and {most:g}")
    mean = fmean(values)
    near = 1.0 if stopped else _NEAR
    z = _two_sided(level) * (_WIDENING if stopped else 1)
    low, high = _weighted_means(tuple(sorted(values)), least, most, near, _NORMAL.cdf(z))
    return Interval(mean, min(low, mean), max(high, mean), level, len(values))


@lru_cache(maxsize=256)
def _weighted_means(
    values: tuple[float, ...], least: float, most: float, near: float, share: float
) -> tuple[float, float]:
    """Return the ends of :func:`bounded_interval`; ``near``: the weight of the range's end."""
    import numpy as np

    chance = np.random.default_rng(0)
    known, counts = np.unique(values, return_counts=True)
    weights = chance.standard_gamma(counts, (_DRAWS, len(counts)))
    ends = chance.standard_gamma([near, 1 - near], (_DRAWS, 2))
    total, whole = weights @ known, weights.sum(axis=1) + ends.sum(axis=1)
    low = (total + ends @ [least, most]) / whole
    high = (total + ends @ [most, least]) / whole
    return (
        least if values[-1] == least else float(np.quantile(low, 1 - share)),
        most if values[0] == most else float(np.quantile(high, share)),
    )


def interval_of_variance(
    accuracy: float,
    variance: float,
    questions: int,
    *,
    level: float = 0.95,
    stopped: bool = False,
) -> Interval:
    """Return Wilson's interval of an accuracy whose estimate has this variance.

    It is that of ``accuracy x (1 - accuracy) / variance`` answers; with a variance of 0, as where
    all are right or all wrong, of as many as there are questions. ``stopped`` as in
    :func:`wilson_interval`.
    """
    worth = accuracy * (1 - accuracy) / variance if variance > 0 else 0.0
    z = _two_sided(level) * (_WIDENING if stopped else 1)
    low, high = _wilson(accuracy, worth or float(questions), z, corrected=stopped)
    return Interval(accuracy, low, high, level, questions)


def half_width_reached(
    correct: float, total: int, half_width: float, *, level: float = 0.95, look: int = LOOK
) -> bool:
    """Return True if asking can stop: the interval of the accuracy is plus or minus ``half_width``.

    True only at a look, after each ``look`` questions, and where :func:`wilson_interval` with
    ``stopped`` is narrow enough. That interval then holds the accuracy with the probability of
    ``level`` or more, though it was looked at again and again: its width depends on the accuracy
    found, and hardly on how far that is from the true one. ``tests/stats`` has the simulations.

    ``correct`` and ``total`` as in :func:`wilson_interval`; ``half_width`` 0.03 is ± 3 points.
    """
    if look < 1:
        raise ValueError(f"a look every {look} questions")
    if total < 1 or total % look:
        return False
    found = wilson_interval(correct, total, level=level, stopped=True)
    return (found.high - found.low) / 2 <= half_width


def _two_sided(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a level is between 0 and 1, not {level}")
    return _NORMAL.inv_cdf((1 + level) / 2)


def _wilson(p: float, n: float, z: float, *, corrected: bool) -> tuple[float, float]:
    q, middle, scale = 1 - p, 2 * n * p + z * z, 2 * (n + z * z)
    if corrected:
        below = z * math.sqrt(max(0.0, z * z - 2 - 1 / n + 4 * p * (n * q + 1))) + 1
        above = z * math.sqrt(max(0.0, z * z + 2 - 1 / n + 4 * p * (n * q - 1))) + 1
    else:
        below = above = z * math.sqrt(z * z + 4 * n * p * q)
    low = max(0.0, (middle - below) / scale) if p > 0 else 0.0
    high = min(1.0, (middle + above) / scale) if p < 1 else 1.0
    return low, high
