"""Read recipes of any kind from files, and list their needs.

A recipe with an ``engine`` measures times, one with a ``dataset`` asks questions, one with an
``endpoint`` alone loads a server.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import Kind, recipe_kind
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError
from labctl.runs.inputs.needs import Need, recipe_needs
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.planning import time_limits
from labctl.units import counted

if TYPE_CHECKING:
    from labctl.evaluation.recipe import EvaluationRecipe
    from labctl.evaluation.serving.recipe import LoadTestRecipe

AnyRecipe: TypeAlias = "Recipe | EvaluationRecipe | LoadTestRecipe"


def read_any(
    source: Path | Document, settings: Sequence[str] = (), *, lab_root: Path | None
) -> AnyRecipe:
    """Read a recipe of any kind, with ``key=value`` overrides applied. Raises ConfigError."""
    document = source if isinstance(source, Document) else Document.read(source)
    if recipe_kind(document) == "timing":
        return read_recipe(document, tuple(settings), lab_root=lab_root)
    return read_served(document, settings, lab_root=lab_root)


def read_served(
    document: Document, settings: Sequence[str] = (), *, lab_root: Path | None
) -> "EvaluationRecipe | LoadTestRecipe":
    """Read the recipe of an evaluation or a load test. Raises ConfigError."""
    if recipe_kind(document) == "load-test":
        from labctl.evaluation.serving.recipe import LoadTestRecipe

        return LoadTestRecipe.read(document, settings)
    from labctl.evaluation.recipe import load_evaluation

    return load_evaluation(document, settings, lab_root=lab_root)


def any_of(kind: Kind, resolved: Any) -> AnyRecipe:
    """Return a recipe of this kind from its resolved form. Raises ValidationError."""
    if kind == "load-test":
        from labctl.evaluation.serving.recipe import LoadTestRecipe

        return LoadTestRecipe.model_validate(resolved)
    if kind == "evaluation":
        from labctl.evaluation.recipe import EvaluationRecipe

        return EvaluationRecipe.model_validate(resolved)
    return Recipe.model_validate(resolved)


def check_job(recipe: AnyRecipe, name: str) -> None:
    """Raise ConfigError for a recipe that no job can run: a job uses exactly one board."""
    if not isinstance(recipe, Recipe) and (number := len(recipe.board_servers())) != 1:
        raise ConfigError(
            f"it starts {counted(number, 'server')} on boards; a job uses exactly one",
            hint=f"run it without the queue: `labctl run {name}`",
        )


def target_of(recipe: AnyRecipe) -> str | None:
    """Return the target of the board that a job's recipe uses; None: any."""
    return recipe.target if isinstance(recipe, Recipe) else recipe.board_servers()[0].target


def longest_seconds(recipe: AnyRecipe, pool: Sequence[Board]) -> float:
    """Return the longest time (s) for which a run may use one of these boards."""
    if isinstance(recipe, Recipe):
        return time_limits.longest_seconds(recipe, pool)
    return recipe.longest_seconds


def needs_of(recipe: AnyRecipe, lab_root: Path) -> list[Need]:
    """List what a recipe needs on this host; fetch, build and ask nothing."""
    if isinstance(recipe, Recipe):
        return recipe_needs(recipe, lab_root)
    from labctl.evaluation.needs import served_needs

    return served_needs(recipe, lab_root)


def recipe_document(
    name: str, path: Path, recipe: AnyRecipe, needs: Sequence[Need]
) -> dict[str, object]:
    """Return a recipe of any kind as JSON, with what it needs."""
    timing = recipe if isinstance(recipe, Recipe) else None
    return {
        "name": name,
        "path": str(path),
        "description": recipe.description,
        "kind": recipe.kind,
        "target": timing and timing.target,
        "engine": timing and timing.engine.name,
        "task": timing and timing.engine.task,
        "needs": [asdict(need) for need in needs],
    }
