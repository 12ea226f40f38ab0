"""Settings that a search tries: its space without what cannot run, each resolved for the board."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import Scalar, Variant, setting_words, slug_of
from labctl.config.tuning import Tuning
from labctl.engines.base import Roles
from labctl.errors import ConfigError
from labctl.performance.prediction import Rates
from labctl.records.board import BoardFacts
from labctl.records.tuning import DroppedSetting, TuningRecord
from labctl.runs.inputs.guard import guard_parameters, refuse_other_logits
from labctl.runs.inputs.options import refuse_unknown
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.planning.forecast import (
    Forecast,
    as_scheduled,
    make_forecast,
    resolve_defaults,
    text_bytes,
)
from labctl.runs.planning.trials import PlannedTrial
from labctl.stats.proposals import MOST_WITHOUT, optuna_library
from labctl.stats.race import least_trials
from labctl.units import duration

#: Slug of the setting with the recipe's own parameters.
DEFAULT = "default"
#: Changes of a setting of a built-in space, which has no other combinations.
_MOST_CHANGES = 2
#: A shorter prompt takes too little time for its rate.
_LEAST_PROMPT = 64


def refuse_search(files: RecipeFiles, board: Board) -> None:
    """Raise ConfigError for a search that could prove nothing, before any contact."""
    recipe, engine = files.recipe, files.engine
    tuning = tuning_of(recipe)
    objectives = ("tune", "objectives")
    parameters = engine.parameters(recipe.parameters)
    if len(recipe.measured_models()) > 1:
        raise recipe.refusal(("models",), "a search has one model; other models are other answers")
    if not engine.shows_text:
        raise recipe.refusal(
            ("engine", "task"),
            f"{engine.name} ({engine.task}) shows no text, by which a search would see that a"
            " setting changes the answer; use a completion",
        )
    if (temperature := getattr(parameters, "temperature", 0)) > 0:
        raise recipe.refusal(
            ("parameters", "temperature"),
            f"the default itself fails the guard: at temperature {temperature:g} no two texts are"
            " the same; use 0",
        )
    if "energy" in tuning.objectives and board.power is None:
        raise recipe.refusal(
            objectives, f"energy: board {board.name} has no meter; add `power` to its entry"
        )
    counts = engine.token_counts(parameters, len((files.prompt or "").encode()))
    if "prefill" in tuning.objectives and counts and counts.prompt_tokens < _LEAST_PROMPT:
        raise recipe.refusal(
            objectives,
            f"prefill: the prompt has about {counts.prompt_tokens} tokens; at least"
            f" {_LEAST_PROMPT} are needed",
        )


def tuning_of(recipe: Recipe) -> Tuning:
    """Return the search that a recipe asks for."""
    if recipe.tune is None:
        raise TypeError(f"recipe {recipe.name} is no search")
    return recipe.tune


def plan_search(
    prepared: Prepared,
    facts: BoardFacts,
    rates: Rates | None,
    max_seconds: float,
    guard: Prepared | None = None,
) -> tuple[Forecast, TuningRecord]:
    """Return the settings of a search with their forecast, the default first.

    Raises ConfigError if there is nothing to choose, or the budget is below one pair.
    """
    recipe = prepared.recipe
    tuning = tuning_of(recipe)
    (resolved,), notes = resolve_defaults(prepared, facts)
    default = Variant(DEFAULT, resolved.model_key, resolved.parameters)
    impossible: list[DroppedSetting] = []
    patches, settings = {}, {}
    scheduled = as_scheduled(recipe, facts)
    if guard is not None:
        refuse_other_logits(guard, default.model_key)
        guard_trial(0, default, prepared, guard, facts)
    for slug, patch, changes in _settings(prepared, scheduled, default, impossible):
        if guard is not None:
            variant = Variant(slug, default.model_key, {**default.parameters, **changes})
            try:
                guard_trial(0, variant, prepared, guard, facts)
            except ConfigError as error:
                impossible.append(_never(slug, error.message))
                continue
        patches[slug], settings[slug] = patch, changes
    forecast = make_forecast(prepared, facts, rates, _variants(default, settings))
    forecast = replace(forecast, notes=tuple(notes))
    there = facts.memory_available_bytes
    for fit in forecast.fits:
        slug = fit.variant.removeprefix(f"{recipe.name} ")
        if slug == DEFAULT or there is None:
            continue
        parameters = prepared.engine.parameters({**default.parameters, **settings[slug]})
        locks = prepared.engine.locks_memory(parameters)
        if (fit.need.total_bytes if locks else fit.need.anonymous_bytes) > there:
            why = "memory to lock" if locks else "memory"
            impossible.append(_never(slug, f"{why}: {fit.message()}"))
            del settings[slug], patches[slug]
    if not settings:
        raise recipe.refusal(("tune", "space"), "one point: nothing to choose from on this board")
    for slug in _too_many(tuning, patches):
        why = f"not drawn: of a built-in space, {MOST_WITHOUT} settings are tried"
        impossible.append(_never(slug, why))
        del settings[slug], patches[slug]
    predicted = forecast.of(trial_of(0, default, 0, forecast.roles))
    least = least_trials({*tuning.objectives} != {"memory"})
    if predicted is not None and (needed := least * predicted.trial_ns) > 1e9 * max_seconds:
        raise recipe.refusal(
            ("max_time",),
            f"the budget is too small: the {least} trials of the smallest search take at least"
            f" {duration(needed)}; raise it, or generate fewer tokens",
        )
    record = TuningRecord(
        default=DEFAULT,
        objectives=tuple(dict.fromkeys(tuning.objectives)),
        seed=tuning.seed,
        budget_s=max_seconds,
        model=default.model_key,
        parameters=dict(default.parameters),
        settings=settings,
        patches=patches,
        impossible=tuple(impossible),
        divergence=tuning.divergence if guard is not None else None,
    )
    return forecast, record


def _too_many(tuning: Tuning, patches: Mapping[str, Mapping[str, Scalar]]) -> list[str]:
    """Return the settings that nobody asked for; raise ConfigError without a proposer for others.

    Those of a single change stay.
    """
    if len(patches) > MOST_WITHOUT and tuning.space:
        optuna_library()
        return []
    chance = random.Random(tuning.seed)  # noqa: S311 - not for secrets
    return sorted(patches, key=lambda one: (len(patches[one]), chance.random()))[MOST_WITHOUT:]


def variants_of(record: TuningRecord) -> list[Variant]:
    """Return the variants of a search, the default first."""
    return _variants(Variant(record.default, record.model, record.parameters), record.settings)


def _variants(default: Variant, settings: Mapping[str, Mapping[str, Scalar]]) -> list[Variant]:
    found = [
        Variant(slug, default.model_key, {**default.parameters, **changes})
        for slug, changes in settings.items()
    ]
    return [default, *found]


def trial_of(number: int, variant: Variant, repeat: int, roles: Roles) -> PlannedTrial:
    """Return a trial of a search: its tokens are never cut."""
    tokens = roles.workload(variant.parameters).tokens
    return PlannedTrial(number, variant, repeat, tokens, warm_up_pass=True)


def guard_slug(setting: str) -> str:
    """Return the variant of the guard's trial of a setting; its figures are no speed."""
    return f"guard-{setting}"


def guard_trial(
    number: int, variant: Variant, prepared: Prepared, guard: Prepared, facts: BoardFacts
) -> PlannedTrial:
    """Return the guard's trial of a setting. Raises ConfigError if there can be none."""
    scheduled = as_scheduled(prepared.recipe, facts)
    model = variant.model_key
    values = guard_parameters(prepared, guard, variant.parameters, model, scheduled)
    measuring = Variant(guard_slug(variant.slug), model, values)
    return PlannedTrial(number, measuring, 0, None, warm_up_pass=True, guard=True)


def _settings(
    prepared: Prepared, facts: BoardFacts, default: Variant, impossible: list[DroppedSetting]
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield slug, patch and changes of each setting that can run, once for the same effect."""
    recipe, engine = prepared.recipe, prepared.engine
    tuning = tuning_of(recipe)
    space: Mapping[str, Sequence[Any]] = tuning.space
    if not space:
        built_in = engine.tunable(facts, tuning.objectives)
        own = {key: default.parameters[key] for key in built_in if key in default.parameters}
        # With at most two changes, all other parameters have to be able to stay.
        space = {
            key: list(dict.fromkeys([*([own[key]] if key in own else []), *values]))
            for key, values in built_in.items()
        }
    most = len(space) if tuning.space else _MOST_CHANGES
    taken = {DEFAULT}
    seen = [_effect(prepared, default.parameters)]
    for values in itertools.product(*space.values()):
        chosen = dict(zip(space, values, strict=True))
        wanted = {k: v for k, v in chosen.items() if default.parameters.get(k) != v}
        if not 0 < len(wanted) <= most or tuning.forbids({**default.parameters, **chosen}):
            continue
        found = _resolved(prepared, facts, default, wanted, chosen)
        if isinstance(found, str):
            if tuning.space or len(wanted) == 1:  # nobody asked for all others
                impossible.append(_never(" ".join(setting_words(wanted)), found))
            continue
        patch, parameters = found
        if (effect := _effect(prepared, parameters)) not in seen:
            seen.append(effect)
            changes = {k: v for k, v in parameters.items() if default.parameters.get(k) != v}
            yield slug_of(setting_words(wanted), taken), patch, changes


def _effect(prepared: Prepared, values: Mapping[str, Scalar]) -> dict[str, Any]:
    parameters = prepared.engine.parameters(values)
    length = text_bytes(prepared)
    found = prepared.engine.effective(parameters, length).model_dump(mode="json")
    return dict(found)


def _resolved(
    prepared: Prepared,
    facts: BoardFacts,
    default: Variant,
    wanted: Mapping[str, Scalar],
    chosen: Mapping[str, Scalar],
) -> tuple[dict[str, Any], dict[str, Any]] | str:
    """Return patch and all parameters of a setting, or why engine or build refuse it.

    The parameters are what the recipe with the patch gives: the ``wanted`` changes, and those of
    the ``chosen`` values that would not follow, as ``threads_batch`` follows ``threads``. A value
    that labctl chose for the default is named if it has to be, as a quantized cache needs flash
    attention.
    """
    engine, recipe = prepared.engine, prepared.recipe
    stated = engine.parameters(recipe.parameters).model_dump(mode="json", exclude_none=True)
    decided = [{k: v} for k, v in default.parameters.items() if k not in {**stated, **wanted}]
    model, refusal = prepared.models[default.model_key].identity, ""
    for more in ({}, *decided):
        patch = {**wanted, **more}
        values = {**recipe.parameters, **patch}
        try:
            found = engine.resolved(prepared.tool, values, facts, model, text_bytes(prepared))
            refuse_unknown(engine, prepared, [found.parameters], adapters=len(recipe.lora))
        except ConfigError as error:
            refusal = refusal or error.message
            continue
        result = dict(found.parameters.model_dump(mode="json", exclude_none=True))
        lost = {k: v for k, v in chosen.items() if k not in patch and result.get(k) != v}
        if not lost:
            return patch, result
        return _resolved(prepared, facts, default, {**patch, **lost}, chosen)
    return refusal


def _never(setting: str, reason: str) -> DroppedSetting:
    return DroppedSetting(setting=setting, rounds=0, reason=reason)
