"""Repeats that a comparison of a recipe's variants needs, at the noise of the board."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from labctl.config.recipe import ComparisonLimits
from labctl.stats.power import MOST_REPEATS, POWER, repeats_for_difference, repeats_for_same
from labctl.units import counted

#: The difference of which a plan tells how many repeats show it.
DIFFERENCE = 0.05


@dataclass(frozen=True)
class Noise:
    """Standard deviation of a repeat's token time inside a run: 0.02 is 2 %."""

    sigma: float
    repeats: int
    runs: int


@dataclass(frozen=True)
class RepeatsNeeded:
    """Noise by variant, and what it means for `labctl compare`; a variant without is not known."""

    noise: Mapping[str, Noise]
    limits: ComparisonLimits

    @cached_property
    def sigma(self) -> float | None:
        """The largest noise; None: of no variant it is known."""
        return max((one.sigma for one in self.noise.values()), default=None)

    @cached_property
    def same(self) -> int | None:
        """Interleaved repeats that show sameness; None: not known, or more than is of use."""
        margin = math.log1p(self.limits.same_within)
        return None if self.sigma is None else repeats_for_same(self.sigma, margin)

    @cached_property
    def different(self) -> int | None:
        """Interleaved repeats that show a difference of 5 %; None as in ``same``."""
        if self.sigma is None:
            return None
        threshold = math.log1p(self.limits.practical)
        return repeats_for_difference(self.sigma, math.log1p(DIFFERENCE), threshold=threshold)

    @property
    def text(self) -> str:
        """Say how many repeats a comparison of two variants needs, for people."""
        if self.sigma is None:
            return (
                "repeats that a comparison needs: not known, as the noise on this board is not: no"
                " run of it has two good repeats of such a variant"
            )
        known = [
            f"{slug} {one.sigma:.2%} ({counted(one.repeats, 'repeat')} of"
            f" {counted(one.runs, 'run')})"
            for slug, one in self.noise.items()
        ]
        within = f"± {100 * self.limits.same_within:.3g} %"
        return (
            f"noise of a repeat's token time: {', '.join(known)}; with probability {POWER:.0%},"
            f" `labctl compare --figure tpot_ms` shows two variants that are the same to be so"
            f" (within {within}) by {_interleaved(self.same)}, a difference of {DIFFERENCE:.0%} by"
            f" {_interleaved(self.different)}"
        )

    def document(self) -> dict[str, JsonValue]:
        """Return it for machines."""
        return {
            "variants": {
                slug: {"sigma": one.sigma, "repeats": one.repeats, "runs": one.runs}
                for slug, one in self.noise.items()
            },
            "same_within": self.limits.same_within,
            "repeats_for_same": self.same,
            "difference": DIFFERENCE,
            "repeats_for_difference": self.different,
        }


def _interleaved(count: int | None) -> str:
    if count is None:
        return f"no number up to {MOST_REPEATS}"
    return f"{count} interleaved repeats"
