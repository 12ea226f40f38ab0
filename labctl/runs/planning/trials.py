"""Plan the trials of a recipe's variants, in running order."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from labctl.config.recipe_parts import Scalar, Variant
from labctl.engines.base import Roles
from labctl.records.run import PlannedRecord
from labctl.runs.planning.time_limits import Amount, PredictTrial, cut_to_max_time

#: See :attr:`labctl.config.recipe.Recipe.order`.
Order: TypeAlias = Literal["interleaved", "grouped", "randomised"]


@dataclass(frozen=True)
class PlannedTrial:
    """One process to run. ``repeat`` 0 is a warm-up; its numbers are never used."""

    number: int
    variant: Variant
    repeat: int
    tokens: int | None  # to generate; None without such a parameter
    warm_up_pass: bool
    optional: bool = False  # left out if the result is already precise enough
    guard: bool = False  # measures the divergence of a search's setting, not its speed

    @classmethod
    def of(cls, record: PlannedRecord) -> "PlannedTrial":
        """Return a trial from its record."""
        variant = Variant(record.variant, record.model, record.parameters)
        return cls(
            record.number,
            variant,
            record.repeat,
            record.tokens,
            record.warm_up_pass,
            record.optional,
            record.guard,
        )

    def record(self) -> PlannedRecord:
        """Return the record that :meth:`of` reads."""
        return PlannedRecord(
            number=self.number,
            variant=self.variant.slug,
            model=self.variant.model_key,
            repeat=self.repeat,
            parameters=dict(self.variant.parameters),
            tokens=self.tokens,
            warm_up_pass=self.warm_up_pass,
            optional=self.optional,
            guard=self.guard,
        )

    @property
    def slug(self) -> str:
        """Name of its folder, unique in the run together with its number."""
        return f"{self.variant.slug}-{'warmup' if self.repeat == 0 else f'r{self.repeat}'}"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """The engine's parameters in use."""
        return self.variant.parameters


def cut(variant: Variant, tokens: int | None, warm_up_pass: bool, roles: Roles) -> Variant:
    """Return a resolved variant with its planned number of tokens and warm-up pass."""
    changed: dict[str, Scalar] = {}
    if tokens is not None and roles.tokens is not None:
        changed[roles.tokens] = tokens
    if not warm_up_pass and roles.warm_up is not None and roles.warm_up in variant.parameters:
        changed[roles.warm_up] = False
    return replace(variant, parameters={**variant.parameters, **changed})


@dataclass(frozen=True)
class Plan:
    """The trials in running order."""

    trials: tuple[PlannedTrial, ...]
    predicted_seconds: float | None
    notes: tuple[str, ...]


def make_plan(
    variants: Sequence[Variant],
    wanted: Amount,
    *,
    order: Order = "interleaved",
    seed: int = 1,
    max_seconds: float,
    min_tokens: int | None,
    predict: PredictTrial,
    roles: Roles,
) -> Plan:
    """Plan all trials; reduce them to ``max_seconds`` if the prediction is longer.

    Raises ConfigError if even the smallest plan does not fit.
    """
    amount, predicted, notes = cut_to_max_time(variants, wanted, max_seconds, min_tokens, predict)
    repeats = max(amount.repeats, amount.most_repeats)
    rounds = [0] * amount.warm_up_trials + list(range(1, repeats + 1))
    planned = [cut(v, amount.tokens.get(v.slug), amount.warm_up_pass, roles) for v in variants]
    trials = tuple(
        PlannedTrial(
            number,
            variant,
            repeat,
            amount.tokens.get(variant.slug),
            amount.warm_up_pass,
            optional=repeat > amount.repeats,
        )
        for number, (variant, repeat) in enumerate(_ordered(planned, rounds, order, seed), 1)
    )
    return Plan(trials, predicted, tuple(notes))


def _ordered(
    variants: Sequence[Variant], rounds: Sequence[int], order: Order, seed: int
) -> list[tuple[Variant, int]]:
    """Yield each variant in each round.

    Randomised order is in blocks. Each round has all variants, so that drift affects all equally.
    Their order is random, so that no variant always follows the same other variant.
    """
    if order == "grouped":
        return [(variant, repeat) for variant in variants for repeat in rounds]
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    found = []
    for repeat in rounds:
        block = list(variants)
        if order == "randomised":
            chance.shuffle(block)
        found += [(variant, repeat) for variant in block]
    return found
