"""What a recipe means on a board: its trials and how long they will take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labctl.config.recipe import Recipe
from labctl.config.variants import Variant
from labctl.records import BoardFacts, TrialPrediction
from labctl.runs.explain import Ground
from labctl.runs.fit import works_of
from labctl.runs.plan import TOKENS, Amount, Plan, PlannedTrial, make_plan
from labctl.runs.precision import LEAST_REPEATS
from labctl.runs.predict import Work, predictions, source_of, trial_predictor
from labctl.runs.prepare import Prepared
from labctl.runs.rates import Rates
from labctl.stats import Prediction


@dataclass(frozen=True)
class Foresight:
    """All that is known beforehand of a recipe's variants on a board, by slug."""

    facts: BoardFacts
    rates: Rates | None
    works: Mapping[str, Work]
    predicted: Mapping[str, Prediction]

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

    def of(self, trial: PlannedTrial) -> TrialPrediction | None:
        """The prediction of one trial; None where nothing is known."""
        slug = trial.variant.slug
        seconds = trial_predictor(self.predicted)(trial.variant, trial.tokens, trial.warm_up_pass)
        if seconds is None:
            return None
        return TrialPrediction(
            token_ns=round(self.predicted[slug].seconds_per_token * 1e9),
            trial_ns=round(seconds * 1e9),
            bound=self.predicted[slug].bound,
            source=self.sources[slug],
        )


def foresee(
    prepared: Prepared, variants: Sequence[Variant], facts: BoardFacts, rates: Rates | None
) -> Foresight:
    """What to expect of settled variants."""
    works = works_of(prepared, variants)
    predicted = predictions(works, facts, rates, prepared.prompt)
    # What is not one prompt and its continuation does not take as long as one.
    return Foresight(facts, rates, works, predicted if prepared.engine.is_generation else {})


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
