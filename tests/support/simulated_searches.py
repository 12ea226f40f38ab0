"""Searches for the fastest of some variants, whose true times are known, from a seed."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from labctl.stats.log_ratio import Repeat
from labctl.stats.multiple_comparisons import may_be_best


@dataclass(frozen=True)
class Search:
    """True logarithms of the variants' times, of which the first is the best, and their noise.

    ``outliers``: share of repeats that take longer, by up to some ten times the noise. ``drift``:
    standard deviation of what all variants of a round have in common.
    """

    logs: Sequence[float]
    noises: Sequence[float]
    repeats: int
    outliers: float = 0.0
    drift: float = 0.0

    def measured(self, chance: random.Random) -> list[list[Repeat]]:
        """Measure all variants in interleaved rounds."""
        drifts = [chance.gauss(0, self.drift) for _ in range(self.repeats)]
        found = []
        for place, (log, noise) in enumerate(zip(self.logs, self.noises, strict=True)):
            repeats = []
            for number, drift in enumerate(drifts, 1):
                is_far = chance.random() < self.outliers
                late = abs(chance.gauss(0, 10 * noise)) if is_far else 0.0
                value = math.exp(log + drift + chance.gauss(0, noise) + late)
                repeats.append(Repeat(number, number * len(self.logs) + place, value))
            found.append(repeats)
        return found


def share_with_the_best(search: Search, *, count: int, seed: int) -> float:
    """Return the share of searches whose set contains the true best."""
    chance = random.Random(seed)
    return sum(may_be_best(search.measured(chance))[0] for _ in range(count)) / count


def searches(cells: int, repeats: int) -> dict[str, Search]:
    """Return searches of several kinds; where all variants are equal, the set is hardest to get."""
    equal, apart = [0.0] * cells, [0.01 * n for n in range(cells)]
    steady = [0.02] * cells
    mixed = [0.01 * (1 + n % 6) for n in range(cells)]
    return {
        "equal": Search(equal, steady, repeats),
        "apart": Search(apart, steady, repeats),
        "unequal noise": Search(equal, mixed, repeats),
        "outliers": Search(equal, steady, repeats, outliers=0.05),
        "drift": Search(apart, steady, repeats, drift=0.1),
    }
