"""Runs with noise, and how often what a comparison says of them holds."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from compared import side_of

from labctl.compare.estimates import estimate, other_sessions
from labctl.compare.sides import Side
from labctl.figures.figure import Figure
from labctl.index.rows import TrialRow
from labctl.stats.log_ratio import LogRatio, between_sessions, paired, unpaired

#: A way to compare; the truth is that there is no difference.
Way = Callable[[random.Random, "Noise", int], LogRatio]


@dataclass(frozen=True)
class Noise:
    """Noise of logarithms: 0.01 is 1 %.

    ``inside`` is a repeat's; ``between`` a run's; ``memory`` how much of its noise a repeat hands
    on to the next (AR(1)); ``throttled`` the share of repeats that are 20 % slower; ``slow_board``
    the share of runs on a board that is 5 % slower.
    """

    inside: float
    between: float = 0.0
    memory: float = 0.0
    throttled: float = 0.0
    slow_board: float = 0.0


def realistic(inside: float) -> Noise:
    """Noise as boards have it."""
    return Noise(inside, between=0.01, memory=0.5, throttled=1 / 30, slow_board=1 / 8)


def run(chance: random.Random, noise: Noise, count: int) -> list[float]:
    """The times of a run's trials, one after the other."""
    offset = chance.gauss(0, noise.between) if noise.between else 0.0
    if noise.slow_board and chance.random() < noise.slow_board:
        offset += math.log(1.05)
    times = []
    before = chance.gauss(0, noise.inside)
    fresh = noise.inside * math.sqrt(1 - noise.memory**2)
    for _ in range(count):
        throttled = noise.throttled and chance.random() < noise.throttled
        times.append(math.exp(offset + before + (math.log(1.2) if throttled else 0)))
        before = noise.memory * before + chance.gauss(0, fresh)
    return times


def interleaved(chance: random.Random, noise: Noise, repeats: int) -> LogRatio:
    """Two variants of one run that take turns."""
    times = run(chance, noise, 2 * repeats)
    return paired(times[1::2], times[::2])


def grouped(chance: random.Random, noise: Noise, repeats: int) -> LogRatio:
    """Two variants of one run, one after the other."""
    times = run(chance, noise, 2 * repeats)
    return unpaired(times[repeats:], times[:repeats])


def naive(chance: random.Random, noise: Noise, repeats: int) -> LogRatio:
    """Two runs, as if they were one."""
    return unpaired(run(chance, noise, repeats), run(chance, noise, repeats))


def sessions(history: int) -> Way:
    """Two runs, and others of the board that tell how runs differ."""

    def compared(chance: random.Random, noise: Noise, repeats: int) -> LogRatio:
        left, right, *others = (run(chance, noise, repeats) for _ in range(history + 2))
        return between_sessions([right], [left], [others])

    return compared


def variants_of_two_runs(history: int) -> Way:
    """One variant of a run and another of a second one; the others of the board have both."""

    def compared(chance: random.Random, noise: Noise, repeats: int) -> LogRatio:
        times: dict[tuple[int, str], list[float]] = {}
        for number in range(history + 2):
            both = run(chance, noise, 2 * repeats)
            times[number, "a"], times[number, "b"] = both[::2], both[1::2]
        figure = Figure[TrialRow]("made_up", "number", "made up", lambda r: r.figures["made_up"])
        sides = {
            key: _with_times(side, times[key]) for key, side in _sides(history + 2, repeats).items()
        }
        pair = (sides[0, "a"], sides[1, "b"])
        past = {v: [sides[n, v].repeats for n in range(2, history + 2)] for v in "ab"}
        others = other_sessions(pair, lambda side, _without: past[side.variant])
        found = estimate(pair, figure, others).found
        assert found is not None
        return found

    return compared


def _with_times(side: Side, times: Sequence[float]) -> Side:
    (session,) = side.sessions
    rows = zip(session.repeats, times, strict=True)
    repeats = tuple(replace(row, figures={"made_up": value}) for row, value in rows)
    return replace(side, sessions=(replace(session, repeats=repeats),))


@cache
def _sides(count: int, repeats: int) -> dict[tuple[int, str], Side]:
    return {
        (n, variant): side_of(str(n), [1.0] * repeats, variant=variant)
        for n in range(count)
        for variant in "ab"
    }


def coverage(
    way: Way, noise: Noise, repeats: int, *, runs: int, seed: int = 1
) -> tuple[float, float]:
    """How often the 95 % and the 90 % interval have the truth in them."""
    chance = random.Random(seed)
    held = [0, 0]
    for _ in range(runs):
        found = way(chance, noise, repeats)
        for place, level in enumerate((0.95, 0.90)):
            interval = found.interval(level)
            held[place] += interval.low <= 1 <= interval.high
    return held[0] / runs, held[1] / runs


def false_verdicts(
    way: Way, noise: Noise, repeats: int, *, runs: int, seed: int = 2
) -> tuple[float, float]:
    """How often a difference is told that is not there: by the test, and beyond 2 %."""
    chance = random.Random(seed)
    told = [0, 0]
    for _ in range(runs):
        found = way(chance, noise, repeats)
        if found.p_different() <= 0.05:
            told[0] += 1
            told[1] += abs(found.mean) > math.log(1.02)
    return told[0] / runs, told[1] / runs
