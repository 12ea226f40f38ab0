"""A search for settings: ``tuning.json``, written before each round begins."""

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from labctl.config.recipe_parts import MOST_VARIANTS
from labctl.config.tuning import Objective
from labctl.records.base import FileRecord, Record


class DroppedSetting(Record):
    """A setting that was not raced to the end."""

    setting: str
    rounds: int = Field(description="of the race that it was in")
    reason: str


class TuningRound(Record):
    """Trials in running order, one of each setting."""

    kind: Literal["guard", "first", "try", "race", "proof", "parts"]
    first: int = Field(description="number of its first trial")
    order: tuple[str, ...] = Field(min_length=1, description="variants in running order")


class TuningRecord(FileRecord):
    """The rounds of a search and its decisions; what trials measured is in their records."""

    default: str = Field(description="the variant that all others are compared with")
    objectives: tuple[str, ...] = Field(min_length=1)
    seed: int
    budget_s: float
    settings: dict[str, dict[str, bool | int | float | str]] = Field(
        max_length=MOST_VARIANTS,
        description="variant -> the parameters in which it differs from the default",
    )
    patches: dict[str, dict[str, bool | int | float | str]] = Field(
        max_length=MOST_VARIANTS,
        description="variant -> the parameters to add to the recipe; the rest follows from them",
    )
    model: str = Field(description="its key in the recipe")
    parameters: dict[str, bool | int | float | str] = Field(
        description="engine parameters of the default, resolved"
    )
    impossible: tuple[DroppedSetting, ...] = Field(
        (),
        max_length=MOST_VARIANTS,
        description="never run: the engine refuses it, it cannot fit, or the budget is too small",
    )
    divergence: float | None = Field(
        None, description="largest KL divergence of other tokens; None: there must be none"
    )
    rounds: tuple[TuningRound, ...] = ()
    dropped: tuple[DroppedSetting, ...] = Field((), max_length=MOST_VARIANTS)
    named: dict[str, str] | None = Field(
        None, description="objective -> the one variant of its proof, named before the proof began"
    )
    pairs: int = Field(0, description="of the proof of each named variant, as planned")
    said: tuple[str, ...] = Field((), description="what the proof can show, told before it began")

    @model_validator(mode="after")
    def _known(self) -> Self:
        objectives = {*self.objectives, *(self.named or {})}
        if odd := sorted(objectives - {*get_args(Objective)}):
            raise ValueError(f"unknown objective {odd[0][:100]!r}")
        known = {self.default, *self.settings}
        used = {slug for one in self.rounds for slug in one.order}
        if odd := sorted((used - known) | ({*(self.named or {}).values()} - {*self.settings})):
            raise ValueError(f"a search without the setting {odd[0][:100]!r} names it")
        if self.patches.keys() != self.settings.keys():
            raise ValueError("patches and settings are not of the same variants")
        following = 1
        for number, one in enumerate(self.rounds, 1):
            if one.first != following or len({*one.order}) < len(one.order):
                raise ValueError(f"round {number} does not follow the round before it")
            following += len(one.order)
        return self
