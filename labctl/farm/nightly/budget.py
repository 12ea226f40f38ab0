"""Error probabilities of a night, and the pairs of runs that they require.

A night errs in two ways. A false alarm blames a good commit. Over all rows of a night its
probability is at most FALSE_ALARM, split over the looks at all variants in the confirmation (C. E.
Bonferroni). The confirmation uses new pairs, which did not select these variants. A miss passes a
slow commit. The screening passes a slowdown of the size to find with probability MISSED at most,
since a row passes only if its one-sided bound excludes that slowdown. The confirmation passes it
with the same probability, over all its looks, and has the power FOUND.

These bounds hold for normal noise by Student's t, and for any other noise by the drawn order of
each pair. Both tests must agree, so no look decides before it has enough pairs for the second test.
"""

import math
from dataclasses import dataclass

from labctl.stats.hypothesis_tests import least_differences
from labctl.stats.power import least_difference, repeats_for_difference, repeats_for_exclusion

#: Probability of a false alarm, over all rows of a night.
FALSE_ALARM = 0.0005
#: Probability with which the screening lets a slowdown of the size to find pass.
MISSED = 0.005
#: Number of looks at the confirmation, each after the same number of pairs. The second look has the
#: power FOUND; the third is for noise larger than expected.
LOOKS = 3
FOUND = 0.995
#: Minimum probability of finding a slowdown of the size that a row promises to find.
PROMISED = 0.98
#: Share of sound rows that the screening passes.
PASSED = 0.9
#: Number of variants that the plan expects in the confirmation.
EXPECTED = 2
#: Maximum pairs of a row: more would waste the night.
MOST_PAIRS = 80
#: Noise for planning a row while its own noise is unknown.
_USUAL_NOISE = 0.02
#: Probability of a false "looping" of a good board, over all its rows in a month of nights.
_LOOPING, _MONTH = 0.01, 30
#: Number of pairs of equal programs of a row in a night.
SAME_PAIRS = 2


@dataclass(frozen=True)
class Pairs:
    """Number of pairs of runs of a row, in the screening and in each look of the confirmation."""

    screen: int
    look: int

    @property
    def all(self) -> int:
        """Maximum number of pairs of the row."""
        return self.screen + LOOKS * self.look


def look_error(confirming: int) -> float:
    """Return the error of one look at one variant, with ``confirming`` variants in all."""
    return FALSE_ALARM / (LOOKS * max(1, confirming))


#: Minimum numbers of pairs for a decision.
LEAST = Pairs(least_differences(MISSED), least_differences(look_error(EXPECTED)))


def scatter_error(rows: int) -> float:
    """Return the error of each test of a board's scatter; ``rows``: number of rows on the board."""
    return _LOOPING / _MONTH / max(1, rows)


def plan_pairs(noise: float | None, find: float, practical: float) -> Pairs | None:
    """Return the pairs that find a slowdown of ``find``; None if it takes too many.

    ``noise`` is the standard deviation of the logarithm of one run's value; None if not yet known.
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
