"""Accuracies: intervals of a share of right answers, and number of questions for a precision.

A question may have several samples. They are one cluster: the question counts with its share of
right samples.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean

from labctl.stats.intervals import Interval

#: Number of questions between two checks of the interval's width.
LOOK = 10
#: Factor that widens an interval after it stopped the asking. With only the continuity correction,
#: computed errors reach 5.04 %; with this factor they are at most 4.7 % for all accuracies, from ±
#: 2 to ± 10 points.
_WIDENING = 1.02
_NORMAL = NormalDist()
#: Weight of the near end of the range in :func:`bounded_interval`; docs/comparing.md has
#: the simulated coverage.
_NEAR = 0.75
#: Number of random weighted means: other draws move the ends by about 1 % of the width.
_DRAWS = 20_000


def wilson_interval(
    correct: float, total: int, *, level: float = 0.95, stopped: bool = False
) -> Interval:
    """Return the interval of an accuracy (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927).

    ``stopped``: asking stopped because this interval was narrow, at one of the checks of
    :func:`half_width_reached`. It then has the continuity correction (R. G. Newcombe, Statistics in
    Medicine 17, 1998, method 4) and is 2 % wider, to compensate for the repeated checks.

    Args:
        correct: right answers; with several samples, the sum of each question's share of right
            samples. The interval is then at least as wide as necessary.
        total: questions.
        level: between 0 and 1.
        stopped: see above.

    Raises ValueError without questions, or for more right answers than questions.
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

    ``shares``: the questions' shares of right samples. With one sample per question it is
    :func:`wilson_interval`, otherwise :func:`bounded_interval`: the shares of few questions near 0
    or 1 are too skewed for an interval based on their variance. ``count``: number of questions.
    ``stopped`` as in :func:`wilson_interval`. Raises ValueError without questions.
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

    Each end is a quantile of random weighted means of the values. The means include both ends of
    the range: the near end as 3/4 of a value, the opposite end as 1/4. With weights 1 and 0, it is
    the bound of N. Gaffke (Mathematical Methods of Statistics 14(4), 2005); for values of 0 and 1
    this is the bound of Clopper and Pearson, which holds more often than stated. With 1/2 and 1/2
    it is the bound of Jeffreys, which can hold less often.

    ``stopped``: asking stopped because an interval was narrow. It is then Gaffke's bound, widened
    as in :func:`wilson_interval`. The same values give the same draws. Raises ValueError without
    values, or for a value outside of the range.
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
    """Return the ends of :func:`bounded_interval`; ``near``: weight of the range's near end."""
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

    It is the interval of ``accuracy x (1 - accuracy) / variance`` answers. With a variance of 0
    (all right or all wrong), the number of questions is used instead. ``stopped`` as in
    :func:`wilson_interval`.
    """
    worth = accuracy * (1 - accuracy) / variance if variance > 0 else 0.0
    z = _two_sided(level) * (_WIDENING if stopped else 1)
    low, high = _wilson(accuracy, worth or float(questions), z, corrected=stopped)
    return Interval(accuracy, low, high, level, questions)


def half_width_reached(
    correct: float, total: int, half_width: float, *, level: float = 0.95, look: int = LOOK
) -> bool:
    """Return True if asking can stop: the interval of the accuracy is at most ± ``half_width``.

    True only at a check (after every ``look`` questions), if :func:`wilson_interval` with
    ``stopped`` is narrow enough. In spite of repeated checks, this interval contains the accuracy
    with probability ``level`` or more: its width depends on the found accuracy, and hardly on that
    accuracy's error. ``tests/stats`` has the simulations.

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
