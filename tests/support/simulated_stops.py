"""Evaluations that end when their accuracy is precise enough, computed and simulated."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from labctl.stats.proportions import LOOK, half_width_reached, wilson_interval

#: Look -> for each number of right answers whether asking ends, and the interval that is then told.
Stops = Mapping[int, tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]]


def stops_at_a_half_width(half_width: float, most: int) -> Stops:
    found = {}
    for total in range(LOOK, most + 1, LOOK):
        intervals = [wilson_interval(n, total, stopped=True) for n in range(total + 1)]
        ends = [half_width_reached(n, total, half_width) for n in range(total + 1)]
        found[total] = (
            np.array(ends),
            np.array([one.low for one in intervals]),
            np.array([one.high for one in intervals]),
        )
        if all(ends):
            break
    return found


def coverage_at_the_stop(
    accuracy: float, half_width: float, stops: Stops | None = None
) -> tuple[float, float]:
    """Return the exact probability that the interval told holds, and the questions asked."""
    stops = stops or stops_at_a_half_width(half_width, 100_000)
    step = np.array(
        [math.comb(LOOK, k) * accuracy**k * (1 - accuracy) ** (LOOK - k) for k in range(LOOK + 1)]
    )
    open_ones, held, questions = np.array([1.0]), 0.0, 0.0
    for total, (ends, low, high) in stops.items():
        open_ones = np.convolve(open_ones, step)
        ended = open_ones * ends
        held += float(ended[(low <= accuracy) & (accuracy <= high)].sum())
        questions += total * float(ended.sum())
        open_ones = open_ones * ~ends
    assert open_ones.sum() < 1e-9
    return held, questions


def errors_of_looks(accuracy: float, stops: Stops, *, simulations: int, seed: int) -> float:
    """Return the share of simulated evaluations whose interval misses the accuracy."""
    chance = np.random.default_rng(seed)
    right = np.zeros(simulations, dtype=int)
    is_open = np.ones(simulations, dtype=bool)
    wrong = 0
    for ends, low, high in stops.values():
        right += chance.binomial(LOOK, accuracy, simulations)
        ending = is_open & ends[np.minimum(right, len(ends) - 1)]
        told = right[ending]
        wrong += int(((low[told] > accuracy) | (high[told] < accuracy)).sum())
        is_open &= ~ending
    assert not is_open.any()
    return wrong / simulations
