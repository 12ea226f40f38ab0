"""Thresholds: shares that count as the same, and as a difference."""

import math
from dataclasses import dataclass

from pydantic import JsonValue

from labctl.config.recipe import ComparisonLimits


@dataclass(frozen=True)
class Thresholds:
    """Shares: 0.03 is 3 %. ``error`` is the error of each of the two families of tests."""

    same_within: float
    practical: float
    error: float = 0.05

    @classmethod
    def of_recipe(cls, resolved: dict[str, JsonValue]) -> "Thresholds":
        """Return those of a run's recipe; the defaults if an older one has none."""
        asked = ComparisonLimits.model_validate(resolved.get("comparison") or {})
        return cls(asked.same_within, asked.practical)

    @property
    def same_log(self) -> float:
        """The margin of sameness, of a ratio's logarithm.

        Both directions alike: 1.03 times as long, or 1.03 times as fast.
        """
        return math.log1p(self.same_within)

    @property
    def practical_log(self) -> float:
        """The least difference that matters, of a ratio's logarithm."""
        return math.log1p(self.practical)
