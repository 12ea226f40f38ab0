"""Series of nights with a known truth: how often a step is found where it is, or where none is."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from labctl.stats.steps import LEAST_SERIES, Step, find_steps

Kind = Literal["normal", "outliers", "heavy tails", "correlated"]
Values = NDArray[np.float64]
#: Makes the logarithms of so many nights without a step.
Noise = Callable[[int, np.random.Generator], Values]

SIGMA = 0.02


def nights(
    count: int, sigma: float, chance: np.random.Generator, kind: Kind = "normal"
) -> NDArray[np.float64]:
    """Logarithms of a level of 1 with noise; one night in 30 is 20 % slow with ``outliers``."""
    if kind == "heavy tails":
        return sigma * chance.standard_t(4, count) / math.sqrt(2)
    if kind == "outliers":
        return outliers(1 / 30, sigma=sigma)(count, chance)
    return wandering(0.3 if kind == "correlated" else 0, sigma)(count, chance)


def wandering(correlation: float, sigma: float = SIGMA) -> Noise:
    """Noise in which each night resembles the one before it."""

    def noise(count: int, chance: np.random.Generator) -> Values:
        values = chance.standard_normal(count)
        for night in range(1, count):
            new = math.sqrt(1 - correlation**2) * values[night]
            values[night] = correlation * values[night - 1] + new
        return sigma * values

    return noise


def outliers(share: float, correlation: float = 0, sigma: float = SIGMA) -> Noise:
    """Noise with a share of nights that are 20 % slow."""

    def noise(count: int, chance: np.random.Generator) -> Values:
        values = wandering(correlation, sigma)(count, chance)
        values[chance.random(count) < share] += math.log(1.2)
        return values

    return noise


def louder(factor: float, correlation: float = 0) -> Noise:
    """Noise whose standard deviation changes in the middle."""

    def noise(count: int, chance: np.random.Generator) -> Values:
        values = wandering(correlation)(count, chance)
        values[count // 2 :] *= factor
        return values

    return noise


def drifting(by: float) -> Noise:
    """Noise on a level that becomes slower steadily."""
    return lambda count, chance: wandering(0)(count, chance) + np.linspace(0, by, count)


def drunken(step: float, sigma: float) -> Noise:
    """A random walk, with independent noise beside it."""
    return lambda count, chance: (
        np.cumsum(step * chance.standard_normal(count)) + wandering(0, sigma)(count, chance)
    )


#: What the documentation has a figure for.
NOISES: dict[str, Noise] = {
    "independent, normal": wandering(0),
    "wandering, correlation 0.3": wandering(0.3),
    "wandering, correlation 0.5": wandering(0.5),
    "wandering, correlation 0.7": wandering(0.7),
    "3 times as large from the middle on": louder(3),
    "4 times as large from the middle on": louder(4),
    "8 times as large from the middle on": louder(8),
    "10 % of nights 20 % slow": outliers(0.1),
    "20 % of nights 20 % slow": outliers(0.2),
    "wandering 0.5, 10 % of nights 20 % slow": outliers(0.1, 0.5),
    "wandering 0.7, 4 times as large": louder(4, 0.7),
    "heavy tails (t, 2 degrees of freedom)": lambda n, c: SIGMA * c.standard_t(2, n),
    "skewed (lognormal)": lambda n, c: SIGMA * np.exp(c.standard_normal(n)),
    "two levels at random, 5 % apart": lambda n, c: (
        0.05 * (c.random(n) < 0.5) + wandering(0, 0.01)(n, c)
    ),
    "weekends 6 % slow": lambda n, c: wandering(0)(n, c) + 0.06 * (np.arange(n) % 7 > 4),
    "rounded to 3 %": lambda n, c: 0.03 * np.round(wandering(0)(n, c) / 0.03),
    "a drift of 4 % over the series": drifting(0.04),
    "a drift of 20 % over the series": drifting(0.2),
    "wandering, correlation 0.9": wandering(0.9),
    "a random walk, 1 % a night": drunken(0.01, 0),
    "a random walk, 0.6 % a night, and noise of 2 %": drunken(0.006, SIGMA),
}


def shows(values: Values) -> list[Step]:
    """Return the steps in nights given by their logarithms."""
    return find_steps(np.exp(values).tolist())


def false_steps(series: int, noise: Noise, chance: np.random.Generator, count: int = 100) -> int:
    """The number of series without a step in which one is found, each read once."""
    return sum(bool(shows(noise(count, chance))) for _ in range(series))


def false_steps_of_mornings(
    series: int, noise: Noise, chance: np.random.Generator, count: int = 100
) -> int:
    """The number of series without a step that show one on any morning."""
    return sum(
        any(shows(values[:night]) for night in range(LEAST_SERIES, count + 1))
        for values in (noise(count, chance) for _ in range(series))
    )


@dataclass
class Found:
    """Of series with one step: shares in which one is shown and is placed within 3 nights, and of
    the series that show it, in which the range that is given for the nearest step holds it.
    """

    shown: float
    placed: float
    held: float
    #: Middle of the widths of the ranges, in nights.
    width: float


def found_steps(
    series: int,
    ratio: float,
    noise: Noise,
    chance: np.random.Generator,
    *,
    before: int | None = None,
    count: int = 100,
) -> Found:
    """Look for one step, after some nights or ten or more from either end."""
    placed = held = 0
    widths = []
    for _ in range(series):
        at = before or int(chance.integers(10, count - 9))
        values = noise(count, chance)
        values[at:] += math.log(ratio)
        steps = shows(values)
        if not steps:
            continue
        near = min(steps, key=lambda step: abs(step.index - at))
        placed += abs(near.index - at) <= 3
        held += near.earliest <= at <= near.latest
        widths.append(near.latest - near.earliest + 1)
    shown = len(widths)
    width = float(np.median(widths)) if widths else math.nan
    return Found(shown / series, placed / series, held / max(1, shown), width)
