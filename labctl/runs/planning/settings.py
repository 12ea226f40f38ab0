"""Settings that a search tries: its space without what cannot run, each resolved for the board."""

import itertools
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
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.planning.forecast import Forecast, as_scheduled, make_forecast, resolve_defaults
from labctl.runs.planning.trials import PlannedTrial
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
    prepared: Prepared, facts: BoardFacts, rates: Rates | None, max_seconds: float
) -> tuple[Forecast, TuningRecord]:
    """Return the settings of a search with their forecast, the default first.

    Raises ConfigError if there is nothing to choose, or the budget is below one pair.
    """
    recipe = prepared.recipe
    tuning = tuning_of(recipe)
    (resolved,), notes = resolve_defaults(prepared, facts)
    default = Variant(DEFAULT, resolved.model_key, resolved.parameters)
    impossible: list[DroppedSetting] = []
    settings = dict(_settings(prepared, as_scheduled(recipe, facts), default, impossible))
    forecast = make_forecast(prepared, facts, rates, _variants(default, settings))
    forecast = replace(forecast, notes=tuple(notes))
    there = facts.memory_available_bytes
    for fit in forecast.fits:
        slug = fit.variant.removeprefix(f"{recipe.name} ")
        if there is not None and slug != DEFAULT and fit.need.anonymous_bytes > there:
            impossible.append(_never(slug, f"memory: {fit.message()}"))
            del settings[slug]
    if not settings:
        raise recipe.refusal(("tune", "space"), "one point: nothing to choose from on this board")
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
        impossible=tuple(impossible),
    )
    return forecast, record


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


def _settings(
    prepared: Prepared, facts: BoardFacts, default: Variant, impossible: list[DroppedSetting]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield slug and changes of each setting that can run, once."""
    recipe, engine = prepared.recipe, prepared.engine
    tuning = tuning_of(recipe)
    space: Mapping[str, Sequence[Any]] = tuning.space
    space = space or engine.tunable(facts, tuning.objectives)
    most = len(space) if tuning.space else _MOST_CHANGES
    taken = {DEFAULT}
    seen = [dict(default.parameters)]
    for values in itertools.product(*space.values()):
        chosen = dict(zip(space, values, strict=True))
        wanted = {k: v for k, v in chosen.items() if default.parameters.get(k) != v}
        if not 0 < len(wanted) <= most or tuning.forbids({**default.parameters, **chosen}):
            continue
        found = _resolved(prepared, facts, default, wanted)
        if isinstance(found, str):
            if tuning.space:  # of the built-in space nobody asked for it
                impossible.append(_never(" ".join(setting_words(wanted)), found))
        elif found not in seen:
            seen.append(found)
            changes = {k: v for k, v in found.items() if default.parameters.get(k) != v}
            yield slug_of(setting_words(wanted), taken), changes


def _resolved(
    prepared: Prepared, facts: BoardFacts, default: Variant, wanted: Mapping[str, Scalar]
) -> dict[str, Any] | str:
    """Return all parameters of a setting, or why the engine refuses the combination."""
    engine = prepared.engine
    try:
        parameters = engine.parameters({**default.parameters, **wanted})
    except ConfigError as error:
        return error.message
    model = prepared.models[default.model_key].identity
    found = engine.resolve_defaults(parameters, facts, model).parameters
    return dict(found.model_dump(mode="json", exclude_none=True))


def _never(setting: str, reason: str) -> DroppedSetting:
    return DroppedSetting(setting=setting, rounds=0, reason=reason)
