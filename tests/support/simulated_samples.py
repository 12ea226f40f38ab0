"""Evaluations with several samples per question, whose accuracy is known."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labctl.stats.proportions import clustered_interval


@dataclass(frozen=True)
class Questions:
    """``alike``: a + b of the beta distribution of the questions' own accuracies.

    Near 0: a question is always right or always wrong; infinite: all have the same accuracy.
    """

    count: int
    samples: int
    accuracy: float
    alike: float


class Held(NamedTuple):
    """Share of the intervals that hold the accuracy; mean width over the width that would do."""

    held: float
    width: float


def covered(asked: Questions, *, runs: int, seed: int) -> Held:
    """Simulate evaluations. The width that would do is that of a normal mean."""
    chance = np.random.default_rng(seed)
    a, b = asked.accuracy * asked.alike, (1 - asked.accuracy) * asked.alike
    held, widths, means = 0, 0.0, []
    for _ in range(runs):
        is_equal = math.isinf(asked.alike)
        each = np.full(asked.count, asked.accuracy) if is_equal else chance.beta(a, b, asked.count)
        shares = chance.binomial(asked.samples, each) / asked.samples
        found = clustered_interval(shares.tolist(), asked.samples)
        held += found.low <= asked.accuracy <= found.high
        widths += found.high - found.low
        means.append(shares.mean())
    return Held(held / runs, widths / runs / (2 * 1.96 * float(np.std(means))))
