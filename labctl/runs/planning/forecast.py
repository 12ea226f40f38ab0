"""Forecast a recipe on a board: its parameters, memory, times and trials, worked out once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import DEFAULT_MAX_WAIT_SECONDS, Variant, cpu_numbers
from labctl.engines import MemoryNeed, Roles, TokenCounts
from labctl.performance.bottleneck import Baseline
from labctl.performance.prediction import (
    ModelWorkload,
    Rates,
    predictions,
    source_of,
    tells_reading,
)
from labctl.records import BoardFacts, TrialPrediction
from labctl.results.repeats import fewest_repeats
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.planning.trials import Amount, Plan, PlannedTrial, cut, make_plan
from labctl.stats import UNSURE, Prediction, near_border, surely_fits
from labctl.units import duration, ranges, size


@dataclass(frozen=True)
class Fit:
    """One variant against one board.

    ``memory_bytes`` is the available memory, ``total_bytes`` all of it; None if the board does not
    report it. ``seconds_per_token`` is predicted for weights read from storage, if its rate is
    known, ``resident_seconds`` for weights that stay in memory.
    """

    variant: str
    need: MemoryNeed
    bytes_per_token: int
    memory_bytes: int | None
    total_bytes: int | None
    seconds_per_token: float | None = None
    storage_bytes_per_second: float | None = None
    resident_seconds: float | None = None

    def document(self) -> dict[str, object]:
        """Return need and memory as a JSON document."""
        return {
            "variant": self.variant,
            "mapped_bytes": self.need.mapped_bytes,
            "repacked_bytes": self.need.repacked_bytes,
            "kv_bytes": self.need.kv_bytes,
            "compute_bytes": self.need.compute_bytes,
            "available_bytes": self.memory_bytes,
            "warning": self.warning(),
        }

    @classmethod
    def of(
        cls,
        variant: str,
        work: ModelWorkload,
        prediction: Prediction | None,
        facts: BoardFacts,
        rates: Rates | None,
    ) -> "Fit":
        """Compare the need of a variant with the facts of a board."""
        storage = rates.storage if rates else None
        both = prediction.both if prediction else None
        # Also for an expected board, with the storage rate of its target.
        paged = both[1] if both else prediction
        return cls(
            variant,
            work.need,
            work.bytes_per_token,
            facts.memory_available_bytes or facts.memory_total_bytes,
            facts.memory_total_bytes,
            paged.seconds_per_token if paged else work.seconds(storage),
            storage.value if storage else None,
            both[0].seconds_per_token if both else None,
        )

    def message(self) -> str:
        """Describe the parts of the need, and the available memory."""
        need = self.need
        parts = [f"{size(need.mapped_bytes)} weights mapped"]
        if need.repacked_bytes:
            parts.append(f"{size(need.repacked_bytes)} repacked")
        if not need.mapped_bytes:
            parts = [f"{size(need.repacked_bytes)} weights read into memory"]
        for count, what in ((need.kv_bytes, "KV cache"), (need.compute_bytes, "compute buffers")):
            parts.append(f"{what} unknown" if count is None else f"{size(count)} {what}")
        if need.program_bytes:
            parts.append(f"{size(need.program_bytes)} program")
        there = "" if self.memory_bytes is None else f" of {size(self.memory_bytes)} available"
        return f"{self.variant}: {size(need.total_bytes)}{there}: {', '.join(parts)}"

    def warning(self) -> str | None:
        """Return a warning if it does not fit; None if it does, or nothing is known."""
        if self.total_bytes is not None and self.need.anonymous_bytes > self.total_bytes:
            return (
                f"{self.variant} needs {size(self.need.anonymous_bytes)} that the kernel cannot"
                f" drop, the board has {size(self.total_bytes)}: expect it to be killed"
            )
        need, there = self.need.resident_bytes, self.memory_bytes
        if there is None or surely_fits(need, there):
            return None
        if self.need.anonymous_bytes > there:
            return (
                f"{self.variant} needs {size(self.need.anonymous_bytes)} that the kernel cannot"
                f" drop, {size(there)} is available: it may be killed"
            )
        again = f"re-read {size(self.bytes_per_token)} from storage for every token{self._pace()}"
        if not near_border(need, there):
            return f"{self.variant} will not fit in {size(there)}: expect to {again}"
        text = (
            f"{self.variant} needs {size(need)} of {size(there)}, within {UNSURE:.0%} of what fits"
        )
        if self.resident_seconds is None:
            return f"{text}: it may {again}"
        return f"{text}: expect {duration(self.resident_seconds * 1e9)} a token, or to {again}"

    def _pace(self) -> str:
        if self.seconds_per_token is None or self.storage_bytes_per_second is None:
            return ""
        return (
            f", about {duration(self.seconds_per_token * 1e9)} a token at"
            f" {size(self.storage_bytes_per_second)}/s"
        )


#: Tokens that one trial of a variant computes, by its parameter and with or without a warm-up.
TokenCountsOf = Callable[[Variant, int | None, bool], TokenCounts | None]


@dataclass(frozen=True)
class Forecast:
    """Everything known beforehand about a recipe's variants on a board, by slug.

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
    fits: tuple[Fit, ...] = ()

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

        It never takes longer than that, because the measured arithmetic is that of decoding.
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
        counts = self.token_counts(trial.variant, trial.tokens, trial.warm_up_pass)
        if prediction is None or counts is None:
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

    Raises ConfigError when the board does not have the CPUs that the recipe asks for.
    """
    variants, notes = (planned, ()) if planned else resolve_defaults(prepared, facts)
    workloads = {}
    for variant in variants:
        model = prepared.models[variant.model_key].identity
        parameters = prepared.engine.parameters(variant.parameters)
        need = prepared.engine.memory(parameters, model, _text_bytes(prepared))
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
        Fit.of(f"{prepared.recipe.name} {slug}", work, found.get(slug), facts, rates)
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
        tuple(notes),
        fits,
    )


def resolve_defaults(prepared: Prepared, facts: BoardFacts) -> tuple[list[Variant], list[str]]:
    """Decide every open parameter of the variants; return notes on the choices.

    Raises ConfigError when the board does not have the CPUs that the recipe asks for.
    """
    variants: list[Variant] = []
    notes: list[str] = []
    facts = as_scheduled(prepared.recipe, facts)
    for variant in prepared.recipe.variants():
        resolved = prepared.engine.resolve_defaults(
            prepared.engine.parameters(variant.parameters),
            facts,
            prepared.models[variant.model_key].identity,
            _text_bytes(prepared),
        )
        decided = resolved.parameters.model_dump(mode="json", exclude_none=True)
        variants.append(replace(variant, parameters=decided))
        notes += [note for note in resolved.notes if note not in notes]
    return variants, notes


def as_scheduled(recipe: Recipe, facts: BoardFacts) -> BoardFacts:
    """Return the board as the recipe's programs see it.

    Raises ConfigError, with the line, for CPUs that the board does not give to jobs. If a board
    does not report its CPUs, they are assumed to exist; the agent refuses wrong ones.
    """
    wanted = recipe.scheduling.cpus
    if wanted is None:
        return facts
    if facts.cpus_allowed is not None:
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
    return engine.token_counts(engine.parameters(variant.parameters), _text_bytes(prepared))


def _text_bytes(prepared: Prepared) -> int:
    if prepared.prompt is not None:
        return len(prepared.prompt.encode())
    return sum(item.size_bytes for item in prepared.files.values())


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
