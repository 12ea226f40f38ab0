"""Forecast a recipe on a board: its parameters, times and trials, computed once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import CLUSTERS, DEFAULT_MAX_WAIT_SECONDS, Variant, cpu_numbers
from labctl.engines.base import Roles, TokenCounts
from labctl.performance.bottleneck import Baseline
from labctl.performance.prediction import (
    ModelWorkload,
    Rates,
    memory_clock_doubt,
    predictions,
    source_of,
    tells_reading,
)
from labctl.records.board import BoardFacts
from labctl.records.trial import TrialPrediction
from labctl.results.repeats import fewest_repeats
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.planning.memory_fit import MemoryFit
from labctl.runs.planning.time_limits import Amount
from labctl.runs.planning.trials import Plan, PlannedTrial, cut, make_plan
from labctl.stats.roofline import Prediction
from labctl.units import duration, ranges

#: Tokens that one trial of a variant computes, by its parameter and with or without a warm-up.
TokenCountsOf = Callable[[Variant, int | None, bool], TokenCounts | None]


@dataclass(frozen=True)
class Forecast:
    """All predictions for a recipe's variants on a board, by slug.

    Warnings, plan, limits and records all use this object, so they never disagree. In ``variants``
    every open parameter is decided; ``notes`` explain the choices.
    """

    facts: BoardFacts
    rates: Rates | None
    workloads: Mapping[str, ModelWorkload]
    predicted: Mapping[str, Prediction]
    token_counts: TokenCountsOf
    roles: Roles
    variants: tuple[Variant, ...] = ()
    notes: tuple[str, ...] = ()
    fits: tuple[MemoryFit, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Return warnings about variants that will be slow or fail because of too little memory."""
        return [text for fit in self.fits if (text := fit.warning())]

    @property
    def sources(self) -> dict[str, str]:
        """Sources of the rates that each prediction uses."""
        if self.rates is None:
            return {}
        return {
            slug: source_of(prediction, self.workloads[slug], self.rates)
            for slug, prediction in self.predicted.items()
        }

    def baseline(self, slug: str) -> Baseline | None:
        """Return the inputs that explain a variant's result; None if nothing is known."""
        if self.rates is None or slug not in self.workloads:
            return None
        return Baseline(self.workloads[slug], self.facts, self.rates)

    def seconds(self, variant: Variant, tokens: int | None, warm_up_pass: bool) -> float | None:
        """Return the minimum time of a trial in s; None if nothing is known."""
        prediction = self.predicted.get(variant.slug)
        counts = self.token_counts(variant, tokens, warm_up_pass)
        if prediction is None or counts is None:
            return None
        return prediction.seconds(prompts=counts.prompts, tokens=counts.tokens)

    def longest(self, trial: PlannedTrial) -> float | None:
        """Return the time of a trial in s if each prompt token takes as long as a generated one.

        It never takes longer than that, because the measured arithmetic is of decoding.
        """
        prediction = self.predicted.get(trial.variant.slug)
        counts = self.token_counts(trial.variant, trial.tokens, trial.warm_up_pass)
        if prediction is None or counts is None:
            return None
        tokens = counts.tokens + counts.prompts * counts.prompt_tokens
        return prediction.slower.seconds(prompts=counts.prompts, tokens=tokens)

    def of(self, trial: PlannedTrial) -> TrialPrediction | None:
        """Return the prediction of one trial; None if nothing is known."""
        slug = trial.variant.slug
        prediction = self.predicted.get(slug)
        if prediction is None:  # also the guard of a search, which has other parameters
            return None
        counts = self.token_counts(trial.variant, trial.tokens, trial.warm_up_pass)
        if counts is None:
            return None
        seconds = prediction.seconds(prompts=counts.prompts, tokens=counts.tokens)
        before = counts.before_first
        first = None if before is None else prediction.seconds(prompts=1, tokens=before)
        both = prediction.both
        return TrialPrediction(
            token_ns=_ns(prediction.seconds_per_token),
            trial_ns=_ns(seconds),
            ttft_ns=None if first is None else _ns(first),
            resident_token_ns=_ns(both[0].seconds_per_token) if both else None,
            storage_token_ns=_ns(both[1].seconds_per_token) if both else None,
            upper_token_ns=_ns(upper) if (upper := prediction.upper_seconds) else None,
            bound=prediction.bound,
            source=self.sources[slug],
        )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def make_forecast(
    prepared: Prepared,
    facts: BoardFacts,
    rates: Rates | None,
    planned: Sequence[Variant] | None = None,
) -> Forecast:
    """Forecast a recipe; ``planned`` are its variants if they were resolved before.

    Raises ConfigError if the board lacks CPUs that the recipe requests.
    """
    variants, notes = (planned, ()) if planned else resolve_defaults(prepared, facts)
    workloads = {}
    for variant in variants:
        model = prepared.models[variant.model_key].identity
        parameters = prepared.engine.parameters(variant.parameters)
        need = prepared.engine.memory(parameters, model, text_bytes(prepared))
        if need is not None and model.bytes_per_token is not None:
            workload = prepared.engine.roles.workload(variant.parameters)
            workloads[variant.slug] = ModelWorkload.of(
                model, need, workload, _token_counts_of(prepared, variant)
            )

    def token_counts(
        variant: Variant, tokens: int | None, warm_up_pass: bool
    ) -> TokenCounts | None:
        return _token_counts_of(prepared, cut(variant, tokens, warm_up_pass, prepared.engine.roles))

    # The arithmetic of prompts gives the time without generation.
    asked = {variant.slug: _token_counts_of(prepared, variant) for variant in variants}
    readers = {slug for slug, found in asked.items() if found is not None and not found.tokens}
    found = predictions(workloads, facts, rates)
    predicted = {
        slug: prediction
        for slug, prediction in found.items()
        if slug not in readers or tells_reading(prediction, workloads[slug], rates)
    }
    fits = tuple(
        MemoryFit.of(f"{prepared.recipe.name} {slug}", work, found.get(slug), facts, rates)
        for slug, work in workloads.items()
    )
    return Forecast(
        facts,
        rates,
        workloads,
        predicted,
        token_counts,
        prepared.engine.roles,
        tuple(variants),
        (*notes, doubt) if (doubt := memory_clock_doubt(facts, rates)) else tuple(notes),
        fits,
    )


def resolve_defaults(prepared: Prepared, facts: BoardFacts) -> tuple[list[Variant], list[str]]:
    """Decide every open parameter of the variants; return notes on the choices.

    Raises ConfigError if the board lacks CPUs that the recipe requests.
    """
    variants: list[Variant] = []
    notes: list[str] = []
    facts = as_scheduled(prepared.recipe, facts)
    engine = prepared.engine
    for variant in prepared.recipe.variants():
        resolved = engine.resolved(
            prepared.tool,
            variant.parameters,
            facts,
            prepared.models[variant.model_key].identity,
            text_bytes(prepared),
        )
        decided = resolved.parameters.model_dump(mode="json", exclude_none=True)
        variants.append(replace(variant, parameters=decided))
        notes += [note for note in resolved.notes if note not in notes]
    return variants, notes


def as_scheduled(recipe: Recipe, facts: BoardFacts) -> BoardFacts:
    """Return the board with the CPUs that the recipe's programs may use.

    Raises ConfigError, with the line, for CPUs that the board does not give to jobs. If a board
    does not report its CPUs, they are assumed to exist; the agent refuses wrong ones.
    """
    wanted = recipe.scheduling.cpus
    if wanted is None:
        return facts
    if wanted in CLUSTERS:
        chosen = facts.cluster("big" if wanted == "big" else "little")
        if chosen is None:
            why = "no slower CPUs, or it hides their frequencies"
            raise recipe.refusal(("scheduling", "cpus"), f"{wanted}: the board has {why}")
        wanted = chosen
    elif facts.cpus_allowed is not None:
        lacking = cpu_numbers(wanted) - cpu_numbers(facts.cpus_allowed)
        if lacking:
            raise recipe.refusal(
                ("scheduling", "cpus"),
                f"the board has no CPU {ranges(lacking)} for jobs, it has {facts.cpus_allowed}",
            )
    return facts.model_copy(update={"cpus_allowed": wanted})


def _token_counts_of(prepared: Prepared, variant: Variant) -> TokenCounts | None:
    """Count what one run of a resolved variant computes."""
    engine = prepared.engine
    return engine.token_counts(engine.parameters(variant.parameters), text_bytes(prepared))


def text_bytes(prepared: Prepared) -> int:
    """Return the length of the prompt, or of the files that the program reads."""
    if prepared.prompt is not None:
        return len(prepared.prompt.encode())
    read = (prepared.files[name] for name in prepared.engine.files if name in prepared.files)
    return sum(item.size_bytes for item in read)


def plan_trials(recipe: Recipe, forecast: Forecast, max_seconds: float) -> Plan:
    """Plan the trials, cut to ``max_seconds``. Raises ConfigError if that is impossible."""
    until = recipe.repeats_until
    wanted = Amount(
        fewest_repeats(until, recipe.repeats),
        recipe.warm_up,
        {
            variant.slug: tokens
            for variant in forecast.variants
            if (tokens := forecast.roles.workload(variant.parameters).tokens) is not None
        },
        most_repeats=until.max_repeats if until else 0,
    )
    plan = make_plan(
        forecast.variants,
        wanted,
        order=recipe.order,
        seed=recipe.order_seed,
        max_seconds=max_seconds,
        min_tokens=recipe.min_tokens,
        predict=forecast.seconds,
        roles=forecast.roles,
    )
    if not recipe.conditions.waits:
        return plan
    longest = duration((recipe.conditions.max_wait or DEFAULT_MAX_WAIT_SECONDS) * 1e9)
    note = (
        f"each trial waits up to {longest} for the board to be ready, which counts against max_time"
    )
    return replace(plan, notes=(*plan.notes, note))
