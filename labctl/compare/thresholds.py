"""Thresholds: shares up to which results are the same, and from which they differ."""

import math
from dataclasses import dataclass

from pydantic import JsonValue

from labctl.config.recipe import ComparisonLimits


@dataclass(frozen=True)
class Thresholds:
    """Shares: 0.03 is 3 %. ``error``: error of each of the two families of tests."""

    same_within: float
    practical: float
    error: float = 0.05

    @classmethod
    def of_recipe(cls, resolved: dict[str, JsonValue]) -> "Thresholds":
        """Return the thresholds of a run's recipe; the defaults for an older recipe without any."""
        asked = ComparisonLimits.model_validate(resolved.get("comparison") or {})
        return cls(asked.same_within, asked.practical)

    @property
    def same_log(self) -> float:
        """Margin of sameness, for the logarithm of a ratio.

        Symmetric: 1.03 times as long, or 1.03 times as fast.
        """
        return math.log1p(self.same_within)

    @property
    def practical_log(self) -> float:
        """Smallest difference that matters, for the logarithm of a ratio."""
        return math.log1p(self.practical)
