"""The noise of groups of values, of which a few may be far out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from labctl.stats.describe import MAD_TO_SIGMA

#: What is farther out than so many standard deviations counts as that far out.
_BOUND = 2.0
#: Bounded values say less than all of their number: seen for 5 to 70 degrees of normal noise.
_WORTH = 0.9
#: The mean square of normal values that are bounded so.
_SHARE = 0.9205
_ROUNDS = 30


@dataclass(frozen=True)
class Scatter:
    """A standard deviation, and degrees of freedom of a chi-squared one with its own scatter."""

    sigma: float
    degrees: float


def pooled_scatter(groups: Iterable[Sequence[float]]) -> Scatter | None:
    """Return the noise inside groups; None without two values in one of them.

    Each group has its own centre. Values far out are bounded (P. J. Huber's proposal 2, Annals of
    Mathematical Statistics 35(1), 1964), so that one throttled run changes little; for normal noise
    it is the standard deviation.
    """
    centred = [_around(group) for group in groups if len(group) > 1]
    sizes = [abs(value) for group in centred for value in group]
    degrees = sum(len(group) - 1 for group in centred)
    if not sizes:
        return None
    sigma = MAD_TO_SIGMA * median(sizes) * math.sqrt(len(sizes) / degrees)
    if sigma == 0:  # more than half are equal
        sigma = math.sqrt(sum(size**2 for size in sizes) / degrees)
    for _ in range(_ROUNDS):
        bounded = sum(min(size, _BOUND * sigma) ** 2 for size in sizes)
        sigma = math.sqrt(bounded / degrees / _SHARE)
    return Scatter(sigma, _WORTH * degrees)


def _around(values: Sequence[float]) -> list[float]:
    middle = median(values)
    return [value - middle for value in values]
