"""From the variants of a recipe to trials, inside the recipe's time limit.

When a prediction says that the trials do not fit into ``max_time``, they are cut down in this
order, and every cut is reported before anything runs: warm-ups go first, then repeats down to one,
then tokens down to ``min_tokens`` (not at all without it). If they still do not fit, the run is
refused.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from labctl.config.recipe_parts import Scalar, Variant
from labctl.engines import Roles
from labctl.errors import ConfigError
from labctl.records import PlannedRecord

#: Minimum seconds of one trial of a variant with this number of tokens (None: it generates none),
#: with a warm-up pass or without; None = no data for a prediction.
PredictTrial = Callable[[Variant, int | None, bool], float | None]
#: See :attr:`labctl.config.recipe.Recipe.order`.
Order: TypeAlias = Literal["interleaved", "grouped", "randomised"]
#: Share of max_time reserved for moving files and for optimistic predictions.
RESERVE = 0.1


@dataclass(frozen=True)
class Amount:
    """Size of a measurement: repeats, warm-ups and tokens."""

    repeats: int
    warm_up_trials: int
    tokens: Mapping[str, int]  # by variant; what generates no tokens is not in it
    most_repeats: int = 0  # more, above ``repeats``, are optional
    warm_up_pass: bool = True  # the program's own: one pass over all weights before the prompt


@dataclass(frozen=True)
class PlannedTrial:
    """One process to run. ``repeat`` 0 is a warm-up; its numbers are never used."""

    number: int
    variant: Variant
    repeat: int
    tokens: int | None  # to generate; None where that is no parameter
    warm_up_pass: bool
    optional: bool = False  # left out when the result is known well enough by then

    @classmethod
    def of(cls, record: PlannedRecord) -> "PlannedTrial":
        """Return a trial as it was planned before."""
        variant = Variant(record.variant, record.model, record.parameters)
        return cls(
            record.number,
            variant,
            record.repeat,
            record.tokens,
            record.warm_up_pass,
            record.optional,
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
        )

    @property
    def slug(self) -> str:
        """Its folder's name, unique in the run together with its number."""
        return f"{self.variant.slug}-{'warmup' if self.repeat == 0 else f'r{self.repeat}'}"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """The engine's parameters as they will be used."""
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
    """The trials in the order in which they run."""

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
    amount, predicted, notes = _fit(variants, wanted, max_seconds, min_tokens, predict)
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
    """Each variant in each round.

    Randomised order is in blocks: each round has all variants, so that drift affects all equally,
    in random order, so that no variant always follows the same other one.
    """
    if order == "grouped":
        return [(variant, repeat) for variant in variants for repeat in rounds]
    chance = random.Random(seed)  # noqa: S311 - no secret
    found = []
    for repeat in rounds:
        block = list(variants)
        if order == "randomised":
            chance.shuffle(block)
        found += [(variant, repeat) for variant in block]
    return found


def _fit(
    variants: Sequence[Variant],
    wanted: Amount,
    max_seconds: float,
    min_tokens: int | None,
    predict: PredictTrial,
) -> tuple[Amount, float | None, list[str]]:
    limit = max_seconds * (1 - RESERVE)

    def seconds(amount: Amount) -> float | None:
        times = [predict(v, amount.tokens.get(v.slug), amount.warm_up_pass) for v in variants]
        rounds = amount.repeats + amount.warm_up_trials
        return None if None in times else sum(t for t in times if t is not None) * rounds

    total = seconds(wanted)
    if total is None or total <= limit:
        return wanted, total, []
    limits = f"predicted to take {_span(total)}, max_time is {_span(max_seconds)}"
    notes = [f"as written the trials are {limits}"]
    amount = replace(wanted, warm_up_trials=0, warm_up_pass=False)
    if seconds(amount) != total:
        notes[0] += ": no warm-up"
    total = seconds(amount)
    if total is not None and total > limit and amount.repeats > 1:
        fitting = int(limit // (total / amount.repeats))
        amount = replace(amount, repeats=max(1, fitting), most_repeats=0)
        notes.append(f"{amount.repeats} of {wanted.repeats} repeats")
        total = seconds(amount)
    most = max(wanted.tokens.values(), default=0)
    if total is not None and total > limit:
        for tokens in range(most - 1, (min_tokens or most) - 1, -1):
            amount = replace(
                amount, tokens={slug: min(tokens, n) for slug, n in wanted.tokens.items()}
            )
            total = seconds(amount)
            if total is not None and total <= limit:
                notes.append(f"{tokens} of {most} tokens")
                break
    if total is not None and total > limit:
        needed = math.ceil(total / (1 - RESERVE) / 60)
        least = f", of {min(min_tokens or most, most)} tokens," if most else ""
        raise ConfigError(
            f"one trial a variant{least} is predicted to take {_span(total)};"
            f" max_time is {_span(max_seconds)}",
            hint=f"raise max_time to {needed}m or more, or measure fewer variants",
        )
    return amount, total, notes


def _span(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
