"""What a recipe means on a board: its trials and how long they will take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labctl.config.recipe import Recipe
from labctl.config.variants import Variant
from labctl.engines import MemoryNeed
from labctl.records import BoardFacts, ModelIdentity, TrialPrediction
from labctl.runs.explain import Ground
from labctl.runs.fit import memory_of
from labctl.runs.plan import TOKENS, Amount, Plan, PlannedTrial, make_plan
from labctl.runs.precision import LEAST_REPEATS
from labctl.runs.predict import predictions, trial_predictor
from labctl.runs.prepare import Prepared
from labctl.runs.rates import Rates
from labctl.stats import Prediction


@dataclass(frozen=True)
class Foresight:
    """All that is known beforehand of a recipe's variants on a board, by slug."""

    facts: BoardFacts
    rates: Rates | None
    needs: Mapping[str, tuple[ModelIdentity, MemoryNeed]]
    predicted: Mapping[str, Prediction]

    def ground(self, slug: str) -> Ground | None:
        """What a variant's number is held against; None where nothing is known."""
        if self.rates is None or slug not in self.needs:
            return None
        return Ground(*self.needs[slug], self.facts, self.rates)

    def of(self, trial: PlannedTrial) -> TrialPrediction | None:
        """The prediction of one trial; None where nothing is known."""
        prediction = self.predicted.get(trial.variant.slug)
        seconds = trial_predictor(self.predicted)(trial.variant, trial.tokens, trial.warm_up_pass)
        if prediction is None or seconds is None or self.rates is None:
            return None
        return TrialPrediction(
            token_ns=round(prediction.seconds_per_token * 1e9),
            trial_ns=round(seconds * 1e9),
            bound=prediction.bound,
            source=self.rates.source,
        )


def foresee(
    prepared: Prepared, variants: Sequence[Variant], facts: BoardFacts, rates: Rates | None
) -> Foresight:
    """What to expect of settled variants."""
    found = {variant.slug: memory_of(prepared, variant) for variant in variants}
    needs = {
        slug: (model, need)
        for slug, (model, need) in found.items()
        if need is not None and model.bytes_per_token is not None
    }
    predicted = predictions(needs, facts, rates, prepared.prompt)
    # What is not one prompt and its continuation does not take as long as one.
    return Foresight(facts, rates, needs, predicted if prepared.engine.is_generation else {})


def plan_trials(
    recipe: Recipe, variants: Sequence[Variant], foresight: Foresight, max_seconds: float
) -> Plan:
    """The trials, cut down to ``max_seconds``. Raises ConfigError when that cannot be."""
    until = recipe.repeats_until
    wanted = Amount(
        max(recipe.repeats, LEAST_REPEATS) if until else recipe.repeats,
        recipe.warm_up,
        {
            variant.slug: int(variant.parameters[TOKENS])
            for variant in variants
            if TOKENS in variant.parameters
        },
        most_repeats=until.max_repeats if until else 0,
    )
    return make_plan(
        variants,
        wanted,
        order=recipe.order,
        seed=recipe.order_seed,
        max_seconds=max_seconds,
        min_tokens=recipe.min_tokens,
        predict=trial_predictor(foresight.predicted),
    )
