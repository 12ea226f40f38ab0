"""What a recipe needs on this host before a board is touched: programs, models, prompt."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labctl.build import Artifact, find_artifact, find_spec
from labctl.config.lab import Board
from labctl.config.names import did_you_mean, listed, unknown
from labctl.config.parameters import parameter_problems
from labctl.config.recipe import Recipe, load_recipe
from labctl.config.target import target_names
from labctl.config.yamltext import Path as DocumentPath
from labctl.engines import Engine, Tool, engine_names, get_engine
from labctl.errors import ConfigError
from labctl.models import ModelFile, Progress, find_quantizer, resolve
from labctl.runs.gates import metric_problems


@dataclass(frozen=True)
class Prepared:
    """A recipe with everything of it that lies on this host."""

    recipe: Recipe
    engine: Engine[Any]
    artifact: Artifact
    tool: Tool
    program: Path
    models: dict[str, ModelFile]
    prompt: str


def read_recipe(
    path: Path, set_values: tuple[str, ...] = (), *, lab_root: Path | None = None
) -> Recipe:
    """Load a recipe, with what targets, engine and gates have to say. Raises ConfigError."""
    return load_recipe(path, set_values, check=lambda recipe: _problems(recipe, lab_root))


def _problems(recipe: Recipe, lab_root: Path | None) -> Iterator[tuple[DocumentPath, str]]:
    targets = target_names(lab_root)
    if recipe.target not in targets:
        yield ("target",), unknown("target", recipe.target, targets)
    yield from metric_problems(recipe)
    name, known = recipe.engine.name, engine_names()
    if name not in known:
        near = did_you_mean(name, known) or f"; known are {listed(known)}"
        yield ("engine", "name"), f"no engine {name!r}{near}"
        return
    engine = get_engine(name)
    if recipe.engine.tool not in engine.intents:
        near = did_you_mean(recipe.engine.tool, engine.intents)
        what = f"{name} cannot do {recipe.engine.tool!r} in this version{near}"
        yield ("engine", "tool"), f"{what}; it knows {listed(engine.intents)}"
    yield from parameter_problems(recipe, engine.parameters_model)


def _offered(artifact: Artifact, lab_root: Path) -> tuple[str, ...]:
    """All tools that the artifact's version can have, built or not."""
    manifest = artifact.manifest
    spec, _ = find_spec(manifest.target, manifest.product, lab_root)
    version = spec.versions.get(manifest.version)
    return tuple(manifest.tools) if version is None else spec.tools_of(version)


def prepare(recipe: Recipe, board: Board, lab_root: Path, progress: Progress) -> Prepared:
    """Find the programs, fetch or derive the models. Nothing is built.

    Raises ConfigError when the recipe is for other boards, a program is not built yet or a model
    cannot be, and what :func:`labctl.models.resolve` raises.
    """
    if recipe.target != board.target:
        raise ConfigError(
            f"recipe {recipe.name} is for target {recipe.target}, board {board.name} is a "
            f"{board.target}",
            hint=f"choose another board, or --set target={board.target}",
        )
    engine = get_engine(recipe.engine.name)
    artifact = find_artifact(
        recipe.target, engine.product, recipe.engine.version, lab_root=lab_root
    )
    tool = engine.tool(
        recipe.engine.tool, artifact.manifest.tools, offered=_offered(artifact, lab_root)
    )
    models = resolve(
        recipe.models,
        recipe.measured_models(),
        root=lab_root,
        find_quantizer=lambda: find_quantizer(recipe.target, lab_root),
        progress=progress,
    )
    return Prepared(
        recipe,
        engine,
        artifact,
        tool,
        artifact.tool(tool.name),
        models,
        recipe.prompt_text(lab_root),
    )
