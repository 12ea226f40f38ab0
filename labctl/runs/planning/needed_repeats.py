"""Repeats needed to compare a recipe's variants, given the noise of the board."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from labctl.config.recipe import ComparisonLimits
from labctl.stats.power import MOST_REPEATS, POWER, repeats_for_difference, repeats_for_same
from labctl.units import counted

#: Difference for which a plan shows the number of repeats.
DIFFERENCE = 0.05


@dataclass(frozen=True)
class Noise:
    """Standard deviation of a repeat's token time inside a run: 0.02 is 2 %."""

    sigma: float
    repeats: int
    runs: int


@dataclass(frozen=True)
class RepeatsNeeded:
    """Noise by variant, and its meaning for `labctl compare`; missing variants are unknown."""

    noise: Mapping[str, Noise]
    limits: ComparisonLimits

    @cached_property
    def sigma(self) -> float | None:
        """The largest noise; None: unknown for all variants."""
        return max((one.sigma for one in self.noise.values()), default=None)

    @cached_property
    def same(self) -> int | None:
        """Interleaved repeats that show sameness; None: unknown, or too many to be useful."""
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
        """Text for people: the repeats needed to compare two variants."""
        if self.sigma is None:
            return (
                "repeats needed for a comparison: unknown. No run on this board has two good"
                " repeats of one of these variants, so their noise is unknown"
            )
        known = [
            f"{slug} {one.sigma:.2%} ({counted(one.repeats, 'repeat')} of"
            f" {counted(one.runs, 'run')})"
            for slug, one in self.noise.items()
        ]
        within = f"± {100 * self.limits.same_within:.3g}%"
        return (
            f"noise per repeat of the token time: {', '.join(known)}; with {POWER:.0%} probability,"
            f" `labctl compare --figure tpot_ms` finds: equal variants"
            f" ({within}) with {_interleaved(self.same)}; a difference of {DIFFERENCE:.0%} with"
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
        return f"more than {MOST_REPEATS} interleaved repeats"
    return f"{count} interleaved repeats"
