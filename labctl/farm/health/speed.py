"""The speed of a board against its own history: the parts that became slower.

Each part (memory, a method of reading storage, arithmetic with a quantization) has one test, on the
mean of its rates with 1, 2, 4 … threads. All tests of a check share one error. Two probes in a row
must find a slowdown, so one disturbed probe does not make a board bad.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labctl.stats.hypothesis_tests import NextValue, holm, predict_next

#: Probability that a probe of a board that has not changed shows a slowdown somewhere.
ERROR = 0.02
#: Minimum assumed difference between probes of one quiet board, even if a few probes differ less.
_LEAST_SCATTER = 0.005


@dataclass(frozen=True)
class Slower:
    """A part of a board that is slower than its history predicts."""

    part: str
    #: 0.1: 10 % slower than the geometric mean of the earlier probes.
    share: float
    probability: float
    scatter: float
    count: int

    def __str__(self) -> str:
        return f"{self.part} {self.share:.0%} slower than in {self.count} earlier probes"


@dataclass(frozen=True)
class Speed:
    """Findings of one probe."""

    slower: tuple[Slower, ...]
    #: Parts with too few earlier probes.
    unjudged: tuple[str, ...]
    tests: Mapping[str, NextValue]
    least: float

    @property
    def judged(self) -> tuple[str, ...]:
        """Parts that could be judged."""
        return tuple(self.tests)

    @property
    def smallest(self) -> Mapping[str, float]:
        """Return for each part the smallest slowdown that can be found, given its noise."""
        error = ERROR / max(len(self.tests), 1)
        return {part: max(-t.lowest_expected(error), self.least) for part, t in self.tests.items()}


def judge_speed(
    now: Mapping[str, float],
    earlier: Sequence[Mapping[str, float]],
    *,
    least_history: int,
    slower: float,
) -> Speed:
    """Compare the rates of a probe with the rates of earlier probes, by name.

    Args:
        now: ``"memory read, 4 threads"`` -> bytes per second.
        earlier: the rates of good probes of the same board and firmware.
        least_history: number of earlier probes that a part needs.
        slower: a smaller share does not count as a slowdown.
    """
    tests: dict[str, NextValue] = {}
    unjudged = []
    for part, whats in _parts(now).items():
        known = [rates for rates in earlier if all(rates.get(what, 0) > 0 for what in whats)]
        if len(known) < least_history:
            unjudged.append(part)
            continue
        tests[part] = predict_next(
            _mean(now, whats),
            [_mean(rates, whats) for rates in known],
            least_scatter=_LEAST_SCATTER,
        )
    errors = holm([test.probability for test in tests.values()], ERROR)
    found = tuple(
        Slower(part, -test.change, test.probability, test.scatter, test.count)
        for (part, test), error in zip(tests.items(), errors, strict=True)
        if test.probability <= error and -test.change >= slower
    )
    return Speed(found, tuple(unjudged), tests, slower)


def confirmed(first: Speed, second: Speed) -> tuple[Slower, ...]:
    """Return the second probe's findings for parts that the first probe found slower, too."""
    before = {one.part for one in first.slower}
    return tuple(one for one in second.slower if one.part in before)


def _parts(rates: Mapping[str, float]) -> dict[str, list[str]]:
    """Return the rates of one part: they differ in the number of threads."""
    found: dict[str, list[str]] = {}
    for what, rate in rates.items():
        if rate > 0:
            found.setdefault(what.rpartition(", ")[0], []).append(what)
    return found


def _mean(rates: Mapping[str, float], whats: Sequence[str]) -> float:
    return math.exp(statistics.fmean(math.log(rates[what]) for what in whats))
