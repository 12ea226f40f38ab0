"""Rhythms of runs: a board's changing heat can slow every second run, every third, ...

A rhythm is searched in the change from the first run of a pair to its second. So slow drift neither
hides a rhythm nor looks like one. Shuffling the pairs tests if this order is chance; it assumes no
form of the noise (R. A. Fisher, 1935; E. Edgington, Randomization Tests, 1980).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from labctl.stats.hypothesis_tests import sign_flip

#: Lengths of the searched rhythms, in runs.
SHORTEST, LONGEST = 2, 8
#: Probability that steady runs show a rhythm of any size, for each of both tests.
_ERROR = 0.001
#: Six pairs have 720 orders: too few for a test of the order to reach this error.
_LEAST_PAIRS = 7
_SHUFFLES = 9999
#: A few shuffles are enough to rule out results far from this error.
_FEW_SHUFFLES, _HOPELESS = 499, 0.02
#: Minimum strength for shuffling: -log p of each test alone.
_WEAK = -math.log(0.01)


@dataclass(frozen=True)
class Rhythm:
    """A rhythm: its length in runs, and how much its slowest run exceeds its fastest.

    ``swing`` is a logarithm: 0.08 for about 8 %.
    """

    runs: int
    swing: float


def find_rhythm(pairs: Sequence[tuple[float, float]]) -> Rhythm | None:
    """Return the rhythm of runs; None if chance explains their order.

    ``pairs``: logarithms of the runs of each pair, in the order of measurement, without the
    difference between both sides. Fewer than 7 pairs never show a rhythm.
    """
    return _rhythm(tuple(pairs))


@lru_cache(maxsize=1024)  # called with the same pairs before each step of a night
def _rhythm(pairs: tuple[tuple[float, float], ...]) -> Rhythm | None:
    import numpy as np

    changes = np.array([second - first for first, second in pairs])
    if len(changes) < _LEAST_PAIRS:
        return None
    rest = changes - changes.mean()
    if rest.any() and _p_of_order(rest) <= _ERROR:
        return _longer(np.array(pairs).ravel())
    if sign_flip([*changes]) <= _ERROR:  # every second run differs, whichever side it is
        return Rhythm(SHORTEST, abs(float(changes.mean())))
    return None


def _p_of_order(changes: Any) -> float:
    """Return the p-value of "the pairs are in any order"."""
    import numpy as np

    seen = _strength(changes[None, :])[0]
    if seen < _WEAK:
        return 1.0
    chance = np.random.default_rng(1)  # the same for the same pairs
    p = 1.0
    for count in (_FEW_SHUFFLES, _SHUFFLES):
        shuffled = _strength(changes[chance.random((count, len(changes))).argsort(axis=1)])
        p = float((1 + np.sum(shuffled >= seen * (1 - 1e-9))) / (1 + count))
        if p > _HOPELESS:
            return p
    return p


def _strength(rows: Any) -> Any:
    """Return for each row of changes how much of their variance a rhythm explains at best.

    The rhythm has any form (mean of each phase), or is a wave of any length. Each result is -log p
    of an F test, so that few and many phases can be compared.
    """
    import numpy as np
    from scipy.special import fdtrc

    count = rows.shape[1]
    total = (rows**2).sum(axis=1)
    best = np.zeros(len(rows))

    def consider(share: Any, phases: int) -> None:
        left = np.maximum(1 - share, 1e-12) / (count - phases)
        chance = fdtrc(phases - 1, count - phases, share / (phases - 1) / left)
        np.maximum(best, -np.log(np.maximum(chance, 1e-300)), out=best)

    for cycle in sorted({_in_pairs(runs) for runs in range(SHORTEST + 1, LONGEST + 1)}):
        if count >= 2 * cycle:
            sums = (rows[:, phase::cycle].sum(axis=1) ** 2 for phase in range(cycle))
            sizes = (len(range(phase, count, cycle)) for phase in range(cycle))
            consider(sum(one / size for one, size in zip(sums, sizes, strict=True)) / total, cycle)
    # In quarters of a frequency; without the first and last ones, whose phase is unknown.
    waves = np.abs(np.fft.rfft(rows, n=4 * count, axis=1)[:, 4:-4]) ** 2
    consider(2 * waves.max(axis=1) / count / total, 3)
    return best


def _in_pairs(runs: int) -> int:
    """Return the number of pairs after which a rhythm of this many runs repeats."""
    return runs // math.gcd(runs, 2)


def _longer(values: Any) -> Rhythm:
    """Return the length that explains the runs best, by the mean of each phase."""
    import numpy as np
    from scipy.special import fdtrc

    count = len(values)
    steady = values - np.polyval(np.polyfit(np.arange(count), values, 1), np.arange(count))
    found: list[tuple[float, float, int, float]] = []
    for runs in range(SHORTEST + 1, min(LONGEST, count // 2) + 1):
        means = np.array([steady[phase::runs].mean() for phase in range(runs)])
        fitted = means[np.arange(count) % runs]
        left = float(((steady - fitted) ** 2).sum()) / (count - runs)
        ratio = float((fitted**2).sum()) / (runs - 1) / max(left, 1e-18)
        chance = float(fdtrc(runs - 1, count - runs, ratio))
        found.append((chance, -ratio, runs, float(np.ptp(means))))
    _, _, runs, swing = min(found)
    return Rhythm(runs, swing)
