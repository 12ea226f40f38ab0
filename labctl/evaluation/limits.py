"""Limits of generated tokens for each model, as written or computed from a time per token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labctl.evaluation.budgets import equal_tokens, tokens_within
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.figures.trials import token_time
from labctl.records.board import Execution
from labctl.records.trial import ModelIdentity, TrialRecord
from labctl.results.summary import good_trials
from labctl.runs.record.lookup import find_run
from labctl.stats.describe import median


@dataclass(frozen=True)
class Limits:
    """Limits of all models, ascending, None (= no limit) last.

    ``by_model`` is empty if all models have the same limits; otherwise limits at the same position
    mean the same time, ``seconds``. ``run``: id of the timing run that measured ``token_seconds``;
    ``notes``: reasons to doubt its times.
    """

    all_tokens: tuple[int | None, ...]
    by_model: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    seconds: tuple[float | None, ...] = ()
    token_seconds: dict[str, float] = field(default_factory=dict)
    run: str | None = None
    notes: tuple[str, ...] = ()


def limits_of(recipe: EvaluationRecipe, runs: Path, models: Mapping[str, ModelIdentity]) -> Limits:
    """Return the limits of a recipe; ``runs`` is the lab's folder of runs.

    Raises ConfigError, with the recipe's line, if the timing run has no time for a model, or a
    model generates no token in a time.
    """
    budgets = recipe.budgets
    if not budgets.is_timed:
        assert budgets.tokens is not None
        return Limits(budgets.tokens)
    measured_in, times = None, dict(budgets.time_per_token)
    notes: list[str] = []
    if budgets.timing_run is not None:
        measured_in, times, notes = _measured(recipe, budgets.timing_run, runs, models)
    seconds, by_model = _in_time(recipe, {key: round(one * 1e9) for key, one in times.items()})
    key = "seconds" if budgets.seconds is not None else "tokens"
    for model, limits in by_model.items():
        if 0 in limits:
            path = ("budgets", key, limits.index(0))
            raise recipe.refusal(path, f"{model} cannot generate even one token in that time")
    every = {limit for limits in by_model.values() for limit in limits}
    in_order = tuple(sorted(every, key=lambda one: (one is None, one or 0)))
    return Limits(in_order, by_model, tuple(seconds), times, measured_in, tuple(notes))


def _in_time(
    recipe: EvaluationRecipe, times_ns: Mapping[str, int]
) -> tuple[Sequence[float | None], dict[str, tuple[int | None, ...]]]:
    """Return the times (s), and the tokens that each model generates in each; None: no limit.

    ``times_ns``: time of a token, by model.
    """
    budgets, models = recipe.budgets, recipe.evaluated_models()
    if budgets.seconds is not None:
        within = [None if one is None else round(one * 1e9) for one in budgets.seconds]
        return budgets.seconds, {
            model: tuple(ns if ns is None else tokens_within(ns, times_ns[model]) for ns in within)
            for model in models
        }
    assert budgets.tokens is not None
    assert budgets.equal_to is not None
    own = times_ns[budgets.equal_to]

    def tokens(model: str, count: int | None) -> int | None:
        if count is None or model == budgets.equal_to:
            return count
        other = times_ns[model]
        return equal_tokens(count, time_per_token_ns=own, other_time_per_token_ns=other)

    seconds = [None if count is None else count * own / 1e9 for count in budgets.tokens]
    return seconds, {
        model: tuple(tokens(model, count) for count in budgets.tokens) for model in models
    }


def _measured(
    recipe: EvaluationRecipe, name: str, runs: Path, models: Mapping[str, ModelIdentity]
) -> tuple[str, dict[str, float], list[str]]:
    directory = find_run(runs, name)
    record, trials = directory.run(), good_trials(directory.trials())
    found = {}
    notes = []
    if record.facts.execution is not Execution.BOARD:
        notes.append(
            f"limits come from times of {record.id}, not measured on a board:"
            f" {record.facts.execution}"
        )
    for key in recipe.evaluated_models():
        of_model = _of_model(trials, models[key])
        if len({trial.variant for trial in of_model}) != 1:
            count = len({trial.variant for trial in of_model})
            problem = (
                f"run {record.id} has {count} variants of {key}: give time_per_token instead"
                if count
                else f"run {record.id} has no good trial of {key}"
            )
            raise recipe.refusal(("budgets", "timing_run"), problem)
        times = [time for trial in of_model if (time := token_time(trial)) is not None]
        if not times:
            problem = f"run {record.id} has no time per token of {key}"
            raise recipe.refusal(("budgets", "timing_run"), problem)
        found[key] = median(times) / 1e9
        failed = {c.name for trial in of_model for c in trial.checks if c.ok is False}
        if failed:
            names = ", ".join(sorted(failed))
            notes.append(
                f"limits of {key} come from times whose checks failed in {record.id}: {names}"
            )
    return record.id, found, notes


def _of_model(trials: Sequence[TrialRecord], model: ModelIdentity) -> list[TrialRecord]:
    """Find a model's trials by the hash of its file, or by its key if no hash is known."""
    if model.sha256:
        return [trial for trial in trials if trial.model.sha256 == model.sha256]
    return [trial for trial in trials if trial.model.key == model.key]
