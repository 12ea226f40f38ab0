"""Repeats with a known truth: how often what is told of them is so."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from records_made import model, timing, trial

from labctl.config.recipe import Precision
from labctl.records.trial import TrialRecord
from labctl.results.repeats import LEAST_REPEATS, is_enough, is_narrow, trend_verdict
from labctl.results.summary import estimate_of

TRUTH = 100.0


def trials(*milliseconds: float) -> list[TrialRecord]:
    """One trial a value, whose tokens all take that long."""
    return [trial(n, timing=timing([ms] * 4)) for n, ms in enumerate(milliseconds, 1)]


def noise(sigma: float, chance: random.Random, correlation: float = 0) -> Iterator[float]:
    """Values around the truth, each like the one before it as far as it is correlated."""
    state = chance.gauss(0, 1)
    while True:
        yield TRUTH * (1 + sigma * state)
        own = chance.gauss(0, 1)
        state = correlation * state + (1 - correlation**2) ** 0.5 * own


@dataclass(frozen=True)
class Stops:
    """Shares of runs: whose interval holds the truth, that reached the precision, and of the latter
    those whose interval holds the truth. ``repeats``: the mean number.
    """

    covered: float
    repeats: float
    reached: float
    covered_if_reached: float


def coverage(
    wanted: Precision,
    sigma: float,
    *,
    runs: int,
    chance: random.Random,
    correlation: float = 0,
) -> Stops:
    """How often the interval at the stop holds the truth."""
    covered = repeats = reached = both = 0
    for _ in range(runs):
        values: list[float] = []
        found = None
        for value in noise(sigma, chance, correlation):
            values.append(value)
            estimate = estimate_of(values, wanted) if len(values) >= LEAST_REPEATS else None
            found = estimate.interval if estimate else None
            if len(values) == wanted.max_repeats or is_narrow(wanted, found):
                break
        assert found is not None
        holds = found.low <= TRUTH <= found.high
        covered += holds
        repeats += len(values)
        if is_narrow(wanted, found):
            reached += 1
            both += holds
    return Stops(covered / runs, repeats / runs, reached / runs, both / reached if reached else 1)


def stopped(wanted: Precision, source: Iterator[float], variant: str) -> list[TrialRecord]:
    """The trials of a variant until it is known well enough."""
    found: list[TrialRecord] = []
    while len(found) < wanted.max_repeats and not is_enough(wanted, found):
        repeat = len(found) + 1
        record = trial(
            repeat, variant=variant, model=model(variant), timing=timing([next(source)] * 2)
        )
        found.append(record)
    return found


def trends_told(slope: float, *, runs: int, chance: random.Random) -> float:
    """The share of runs of ten in which a trend is told; ``slope`` in sigmas a repeat."""
    told = 0
    for _ in range(runs):
        values = [TRUTH + 2 * (chance.gauss(0, 1) + slope * n) for n in range(10)]
        told += trend_verdict("m", trials(*values)) is not None
    return told / runs
