"""What a recipe means on a board: its trials and how long they will take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from labctl.config.conditions import DEFAULT_MAX_WAIT_SECONDS
from labctl.config.recipe import Recipe
from labctl.config.variants import Variant
from labctl.engines import Passes, Roles
from labctl.performance.bottleneck import Ground
from labctl.performance.prediction import Work, predictions, source_of, tells_reading
from labctl.performance.rates import Rates
from labctl.records import BoardFacts, TrialPrediction
from labctl.results.stopping_rule import fewest_repeats
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.plan.memory_fit import passes_of, works_of
from labctl.runs.plan.trials import Amount, Plan, PlannedTrial, cut, make_plan
from labctl.stats import Prediction
from labctl.units import duration

#: What one trial of a variant computes with so many tokens, with a warm-up pass or without.
PassesOf = Callable[[Variant, int | None, bool], Passes | None]


@dataclass(frozen=True)
class Foresight:
    """All that is known beforehand of a recipe's variants on a board, by slug."""

    facts: BoardFacts
    rates: Rates | None
    works: Mapping[str, Work]
    predicted: Mapping[str, Prediction]
    passes: PassesOf
    roles: Roles

    @property
    def sources(self) -> dict[str, str]:
        """Where the rates come from that each prediction stands on."""
        if self.rates is None:
            return {}
        return {
            slug: source_of(prediction, self.works[slug], self.rates)
            for slug, prediction in self.predicted.items()
        }

    def ground(self, slug: str) -> Ground | None:
        """What a variant's number is held against; None where nothing is known."""
        if self.rates is None or slug not in self.works:
            return None
        return Ground(self.works[slug], self.facts, self.rates)

    def seconds(self, variant: Variant, tokens: int | None, warm_up_pass: bool) -> float | None:
        """How long a trial takes at least; None where nothing is known."""
        prediction = self.predicted.get(variant.slug)
        passes = self.passes(variant, tokens, warm_up_pass)
        if prediction is None or passes is None:
            return None
        return prediction.seconds(prompts=passes.prompts, tokens=passes.tokens)

    def longest(self, trial: PlannedTrial) -> float | None:
        """What a trial takes if each token of a prompt takes as long as one that is generated.

        It never takes longer than that: what is measured of arithmetic is decoding.
        """
        prediction = self.predicted.get(trial.variant.slug)
        passes = self.passes(trial.variant, trial.tokens, trial.warm_up_pass)
        if prediction is None or passes is None:
            return None
        tokens = passes.tokens + passes.prompts * passes.prompt_tokens
        return prediction.slower.seconds(prompts=passes.prompts, tokens=tokens)

    def of(self, trial: PlannedTrial) -> TrialPrediction | None:
        """The prediction of one trial; None where nothing is known."""
        slug = trial.variant.slug
        prediction = self.predicted.get(slug)
        passes = self.passes(trial.variant, trial.tokens, trial.warm_up_pass)
        if prediction is None or passes is None:
            return None
        seconds = prediction.seconds(prompts=passes.prompts, tokens=passes.tokens)
        before = passes.before_first
        first = None if before is None else prediction.seconds(prompts=1, tokens=before)
        both = prediction.both
        return TrialPrediction(
            token_ns=_ns(prediction.seconds_per_token),
            trial_ns=_ns(seconds),
            ttft_ns=None if first is None else _ns(first),
            resident_token_ns=_ns(both[0].seconds_per_token) if both else None,
            storage_token_ns=_ns(both[1].seconds_per_token) if both else None,
            bound=prediction.bound,
            source=self.sources[slug],
        )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def foresee(
    prepared: Prepared, variants: Sequence[Variant], facts: BoardFacts, rates: Rates | None
) -> Foresight:
    """What to expect of settled variants."""
    works = works_of(prepared, variants)

    def passes(variant: Variant, tokens: int | None, warm_up_pass: bool) -> Passes | None:
        return passes_of(prepared, cut(variant, tokens, warm_up_pass, prepared.engine.roles))

    # How long it takes to read only, the arithmetic of prompts says.
    asked = {variant.slug: passes_of(prepared, variant) for variant in variants}
    readers = {slug for slug, found in asked.items() if found is not None and not found.tokens}
    predicted = {
        slug: prediction
        for slug, prediction in predictions(works, facts, rates).items()
        if slug not in readers or tells_reading(prediction, works[slug], rates)
    }
    return Foresight(facts, rates, works, predicted, passes, prepared.engine.roles)


def plan_trials(
    recipe: Recipe, variants: Sequence[Variant], foresight: Foresight, max_seconds: float
) -> Plan:
    """The trials, cut down to ``max_seconds``. Raises ConfigError when that cannot be."""
    until = recipe.repeats_until
    wanted = Amount(
        fewest_repeats(until, recipe.repeats),
        recipe.warm_up,
        {
            variant.slug: tokens
            for variant in variants
            if (tokens := foresight.roles.workload(variant.parameters).tokens) is not None
        },
        most_repeats=until.max_repeats if until else 0,
    )
    plan = make_plan(
        variants,
        wanted,
        order=recipe.order,
        seed=recipe.order_seed,
        max_seconds=max_seconds,
        min_tokens=recipe.min_tokens,
        predict=foresight.seconds,
        roles=foresight.roles,
    )
    if not recipe.conditions.waits:
        return plan
    longest = duration((recipe.conditions.max_wait or DEFAULT_MAX_WAIT_SECONDS) * 1e9)
    note = (
        f"each trial waits up to {longest} for the board to be ready, which counts against max_time"
    )
    return replace(plan, notes=(*plan.notes, note))
