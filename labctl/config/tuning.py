"""``tune`` of a recipe: its run is a search for the best settings."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from labctl.config.recipe_parts import Scalar, Values
from labctl.config.yaml.document import StrictModel

Objective: TypeAlias = Literal["decode", "prefill", "memory", "energy"]


class Tuning(StrictModel):
    """The run searches for better parameters, within the recipe's `max_time`."""

    objectives: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=4)] = ("decode",)
    """Figures to improve: `decode` (the default), `prefill`, `memory`, `energy`; each gets its own
    winner."""
    space: dict[str, Values] = Field(default_factory=dict)
    """Parameters and the values to try; by default the engine's own for the board."""
    never: tuple[dict[str, Scalar], ...] = ()
    """Combinations that never run, each as parameters with their values."""
    divergence: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """Largest KL divergence from the default's logits in `files.base_logits`, plus two standard
    errors, of a setting with other tokens."""
    seed: int = Field(default=1, ge=0)
    """Seed of all random orders."""

    def forbids(self, parameters: Mapping[str, object]) -> bool:
        """Return True for a combination that must not run."""
        return any(
            all(key in parameters and parameters[key] == value for key, value in one.items())
            for one in self.never
        )
