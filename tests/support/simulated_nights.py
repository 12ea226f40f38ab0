"""Series of nights with a known truth: how often a step is found where it is, or where none is."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from labctl.stats.steps import find_steps

Kind = Literal["normal", "outliers", "heavy tails", "correlated"]


def nights(
    count: int, sigma: float, chance: np.random.Generator, kind: Kind = "normal"
) -> NDArray[np.float64]:
    """Logarithms of a level of 1 with noise; one night in 30 is 20 % slow with ``outliers``."""
    if kind == "heavy tails":
        return sigma * chance.standard_t(4, count) / math.sqrt(2)
    values = chance.standard_normal(count)
    if kind == "correlated":
        for night in range(1, count):
            values[night] = 0.3 * values[night - 1] + math.sqrt(1 - 0.3**2) * values[night]
    found: NDArray[np.float64] = sigma * values
    if kind == "outliers":
        found[chance.random(count) < 1 / 30] += math.log(1.2)
    return found


def false_steps(
    series: int, sigma: float, chance: np.random.Generator, kind: Kind = "normal", count: int = 100
) -> int:
    """The number of series without a step in which one is found."""
    return sum(
        bool(find_steps(np.exp(nights(count, sigma, chance, kind)).tolist())) for _ in range(series)
    )


@dataclass
class Found:
    """Of series with one step: shares in which it is placed within 3 nights, and in which the
    range that is given for the nearest step holds it.
    """

    placed: float
    held: float


def found_steps(
    series: int, ratio: float, sigma: float, chance: np.random.Generator, kind: Kind = "normal"
) -> Found:
    """Look for one step in 100 nights, ten or more from either end."""
    placed = held = found = 0
    for _ in range(series):
        at = int(chance.integers(10, 91))
        values = nights(100, sigma, chance, kind)
        values[at:] += math.log(ratio)
        steps = find_steps(np.exp(values).tolist())
        if not steps:
            continue
        found += 1
        near = min(steps, key=lambda step: abs(step.index - at))
        placed += abs(near.index - at) <= 3
        held += near.earliest <= at <= near.latest
    return Found(placed / series, held / max(1, found))
