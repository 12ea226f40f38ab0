"""Number of interleaved repeats that a verdict needs at a known noise, and what it can find."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

#: Probability with which the recommended repeats lead to the verdict.
POWER = 0.9
#: A larger number of repeats is not recommended.
MOST_REPEATS = 200
_NODES = 400


def repeats_for_same(
    noise: float,
    margin: float,
    *,
    difference: float = 0.0,
    error: float = 0.05,
    most: int = MOST_REPEATS,
) -> int | None:
    """Return the fewest pairs that show sameness within ± ``margin`` with probability POWER.

    Args:
        noise: standard deviation of a single repeat's logarithm; for a pair it is √2 times larger.
        margin: in logarithms.
        difference: the true difference, in logarithms.
        error: error of each of the two one-sided tests.
        most: maximum; None is returned if it is not enough.
    """

    def power(count: int) -> float:
        return _share_within(count, noise, margin, difference, error)

    return _fewest(power, most) if abs(difference) < margin else None


def repeats_for_difference(
    noise: float,
    difference: float,
    *,
    threshold: float = 0.0,
    error: float = 0.05,
    power: float = POWER,
    most: int = MOST_REPEATS,
) -> int | None:
    """Return the fewest pairs that show a true difference with probability ``power``.

    It is shown if the interval of level ``1 - error`` excludes 0 and the estimate exceeds
    ``threshold``, both in logarithms. Arguments and None as in :func:`repeats_for_same`.
    """

    def share(count: int) -> float:
        return _shares_beyond(count, noise, threshold, error)(abs(difference))

    return _fewest(share, most, power) if abs(difference) > threshold else None


def repeats_for_exclusion(
    noise: float,
    difference: float,
    *,
    error: float,
    power: float = POWER,
    most: int = MOST_REPEATS,
) -> int | None:
    """Return the fewest pairs that exclude an absent difference with probability ``power``.

    It is excluded if the one-sided bound of level ``1 - error`` is below it, in logarithms.
    """

    def share(count: int) -> float:
        from scipy.special import ndtr, stdtrit

        true, seen = _errors(count, noise)
        room = difference - stdtrit(count - 1, 1 - error) * seen
        return float(ndtr(room / true).mean())

    return _fewest(share, most, power)


def least_difference(
    noise: float, count: int, *, threshold: float = 0.0, error: float = 0.05, power: float = POWER
) -> float:
    """Return the smallest true difference that ``pairs`` show with probability ``power``.

    In logarithms; shown as in :func:`repeats_for_difference`. Raises ValueError for fewer than two
    pairs.
    """
    if count < 2:
        raise ValueError("a difference is shown by two pairs or more")
    share = _shares_beyond(count, noise, threshold, error)
    low, high = threshold, max(2 * threshold, noise)
    while share(high) < power:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if share(middle) >= power else (middle, high)
    return high


def _fewest(share: Callable[[int], float], most: int, power: float = POWER) -> int | None:
    """Return the smallest number with a sufficient share; the share grows with the number."""
    if share(most) < power:
        return None
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= power else (middle, high)
    return high


def _share_within(
    count: int, noise: float, margin: float, difference: float, error: float
) -> float:
    from scipy.special import ndtr, stdtrit

    true, seen = _errors(count, noise)
    room = margin - stdtrit(count - 1, 1 - error) * seen
    share = ndtr((room - difference) / true) - ndtr((-room - difference) / true)
    return float(share[room > 0].sum()) / _NODES


def _shares_beyond(
    count: int, noise: float, threshold: float, error: float
) -> Callable[[float], float]:
    """Return a function: true difference -> probability that it is shown."""
    from scipy.special import ndtr, stdtrit

    true, seen = _errors(count, noise)
    needed = (stdtrit(count - 1, 1 - error / 2) * seen).clip(threshold)
    return lambda difference: float(ndtr((difference - needed) / true).mean())


def _errors(count: int, noise: float) -> tuple[float, Any]:
    """Return the standard error of the mean of pairs, and its possible estimates."""
    true = max(noise, 1e-9) * math.sqrt(2 / count)
    return true, true * chi_scatter(count - 1)


@lru_cache(maxsize=256)
def chi_scatter(degrees: int) -> Any:
    """Return equally probable values of an estimated standard deviation divided by the true one."""
    import numpy as np
    from scipy.special import gammaincinv

    shares = (np.arange(_NODES) + 0.5) / _NODES
    return np.sqrt(2 * gammaincinv(degrees / 2, shares) / degrees)
