"""Noise of groups of values that may contain a few outliers."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from labctl.stats.describe import MAD_TO_SIGMA

#: Values further out, in standard deviations, are limited to this distance.
_BOUND = 2.0
#: Factor of the degrees of freedom, since values are limited; found for 5 to 70 degrees.
_WORTH = 0.9
#: Mean square of normal values with this limit.
_SHARE = 0.9205
_ROUNDS = 30


@dataclass(frozen=True)
class Scatter:
    """A standard deviation, and degrees of freedom of a chi-square variable that scatters alike."""

    sigma: float
    degrees: float


def pooled_scatter(groups: Iterable[Sequence[float]]) -> Scatter | None:
    """Return the noise inside groups; None if no group has two values.

    Each group has its own centre. Outliers are limited (P. J. Huber's proposal 2, Annals of
    Mathematical Statistics 35(1), 1964), so that a single throttled run changes little. For normal
    noise, the result is the standard deviation.
    """
    centred = [_around(group) for group in groups if len(group) > 1]
    sizes = sorted(abs(value) for group in centred for value in group)
    degrees = sum(len(group) - 1 for group in centred)
    if not sizes:
        return None
    squares = [0.0, *accumulate(size**2 for size in sizes)]
    sigma = MAD_TO_SIGMA * median(sizes) * math.sqrt(len(sizes) / degrees)
    if sigma == 0:  # more than half are equal
        sigma = math.sqrt(squares[-1] / degrees)
    for _ in range(_ROUNDS):
        inside = bisect_right(sizes, _BOUND * sigma)
        bounded = squares[inside] + (len(sizes) - inside) * (_BOUND * sigma) ** 2
        sigma = math.sqrt(bounded / degrees / _SHARE)
    return Scatter(sigma, _WORTH * degrees)


def _around(values: Sequence[float]) -> list[float]:
    middle = median(values)
    return [value - middle for value in values]
