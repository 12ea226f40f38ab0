"""Accuracies: intervals of a share of right answers, and how many questions a precision needs.

A question may have several samples. They are one cluster: what counts for it is the share of its
samples that is right.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

from labctl.stats.intervals import Interval

#: Questions between two looks at whether the interval is narrow enough.
LOOK = 10
#: Widening of an interval that ended the asking. With the continuity correction alone computed
#: errors reach 5.04 %; with it they are at most 4.7 % at all accuracies, from ± 2 to ± 10 points.
_WIDENING = 1.02
_NORMAL = NormalDist()


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

    ``shares`` are the questions' shares of right samples. It is Wilson's interval for the number of
    independent answers that are worth as much: p (1 - p) over the variance of the mean of the
    questions (E. L. Korn and B. I. Graubard, Survey Methodology 24(2), 1998). That number lies
    between questions and answers; with one sample of each it is the number of questions.
    ``count`` is the number of questions. ``stopped`` as in :func:`wilson_interval`. Raises
    ValueError for no question.
    """
    if not shares:
        raise ValueError("an accuracy of no questions")
    count, mean = len(shares), fmean(shares)
    variance = fmean([(share - mean) ** 2 for share in shares]) / count
    least = variance and max(variance, mean * (1 - mean) / (count * samples))
    return interval_of_variance(mean, least, count, level=level, stopped=stopped)


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
