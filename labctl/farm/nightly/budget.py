"""Errors of a night, and the pairs of runs that they take.

A night errs in two ways. A false alarm blames a good commit: over all rows of a night that has at
most probability FALSE_ALARM, split over the looks at all variants that go into the confirmation
(C. E. Bonferroni); what they are confirmed by was not seen when they were chosen. A miss passes a
slow commit: the screening lets a slowdown of the size to find pass with at most MISSED, since a row
passes only where its one-sided bound excludes it. The confirmation lets as many pass, over all its
looks, and has the power FOUND.

These hold for normal noise by Student's t, and for any other by the drawn order of each pair: both
tests have to agree, so that no look decides before it has the pairs with which the second can.
"""

import math
from dataclasses import dataclass

from labctl.stats.hypothesis_tests import least_differences
from labctl.stats.power import least_difference, repeats_for_difference, repeats_for_exclusion

#: Probability of a false alarm, over all rows of a night.
FALSE_ALARM = 0.0005
#: Probability with which the screening lets a slowdown of the size to find pass.
MISSED = 0.005
#: Looks at the confirmation, each after as many pairs again. The second one has the power FOUND;
#: the third is for noise that was larger than it was known to be.
LOOKS = 3
FOUND = 0.995
#: Slowdowns that a row is promised to find are found with at least this probability.
PROMISED = 0.98
#: Share of sound rows that the screening passes.
PASSED = 0.9
#: Variants that are expected in the confirmation, for the plan.
EXPECTED = 2
#: Maximum pairs of a row: more would waste the night.
MOST_PAIRS = 80
#: Noise to plan a row with while its own is unknown.
_USUAL_NOISE = 0.02
#: False "looping" of a sound board, of all its rows in a month of nights.
_LOOPING, _MONTH = 0.01, 30
#: Pairs of equal programs of a row, in a night.
SAME_PAIRS = 2


@dataclass(frozen=True)
class Pairs:
    """Pairs of runs of a row: of the screening, and of each look of the confirmation."""

    screen: int
    look: int

    @property
    def all(self) -> int:
        """All that a row can take."""
        return self.screen + LOOKS * self.look


def look_error(confirming: int) -> float:
    """Return the error of one look at one variant, with ``confirming`` variants in all."""
    return FALSE_ALARM / (LOOKS * max(1, confirming))


#: The fewest pairs that decide.
LEAST = Pairs(least_differences(MISSED), least_differences(look_error(EXPECTED)))


def scatter_error(rows: int) -> float:
    """Return the error of each test of a board's scatter, with so many rows on it."""
    return _LOOPING / _MONTH / max(1, rows)


def plan_pairs(noise: float | None, find: float, practical: float) -> Pairs | None:
    """Return the pairs that find a slowdown of ``find``; None if no useful number does.

    ``noise`` is the standard deviation of the logarithm of one run's value; None: not known yet.
    """
    noise = _USUAL_NOISE if noise is None else noise
    size = math.log1p(find)
    screen = repeats_for_exclusion(noise, size, error=MISSED, power=PASSED, most=MOST_PAIRS)
    confirm = repeats_for_difference(
        noise,
        size,
        threshold=math.log1p(practical),
        error=look_error(EXPECTED),
        power=FOUND,
        most=MOST_PAIRS,
    )
    if screen is None or confirm is None:
        return None
    return Pairs(max(screen, LEAST.screen), max(math.ceil(confirm / 2), LEAST.look))


def smallest_slowdown(noise: float, pairs: int, practical: float) -> float:
    """Return the smallest slowdown, as a share, that a confirmation of that many pairs finds."""
    found = least_difference(
        noise,
        pairs,
        threshold=math.log1p(practical),
        error=look_error(EXPECTED),
        power=PROMISED,
    )
    return math.expm1(found)
