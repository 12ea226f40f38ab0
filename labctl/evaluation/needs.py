"""Needs of recipes of evaluations and load tests on this host, and whether they are met."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from labctl.build.artifact import build_command, find_artifacts
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.evaluation.datasets.load import local_file
from labctl.evaluation.datasets.source import DatasetSource, Shots
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.recipe_parts import EndpointSource, EvaluatedModel
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.served import NAME
from labctl.runs.inputs.needs import Need, file_need, model_needs

AnyRecipe: TypeAlias = Recipe | EvaluationRecipe | LoadTestRecipe
_PRODUCT = "llama.cpp"
_PROGRAM = "llama-server"


def evaluation_needs(recipe: EvaluationRecipe, lab_root: Path) -> list[Need]:
    """List what an evaluation needs on this host; fetch, build and ask nothing."""
    return [
        *_answering(recipe.endpoints, recipe.models, lab_root),
        *_questions(recipe.dataset, lab_root),
    ]


def load_test_needs(recipe: LoadTestRecipe, lab_root: Path) -> list[Need]:
    """List what a load test needs on this host; fetch, build and ask nothing."""
    asked = recipe.workload.dataset
    return [
        *_answering({NAME: recipe.endpoint}, recipe.models, lab_root),
        *([] if asked is None else _questions(asked, lab_root)),
    ]


def kind_of(recipe: AnyRecipe) -> str:
    """Return ``timing``, ``evaluation`` or ``load-test``."""
    if isinstance(recipe, LoadTestRecipe):
        return "load-test"
    return "timing" if isinstance(recipe, Recipe) else "evaluation"


def recipe_document(
    name: str, path: Path, recipe: AnyRecipe, needs: Sequence[Need]
) -> dict[str, object]:
    """Return a recipe of any kind as JSON, with what it needs."""
    timing = recipe if isinstance(recipe, Recipe) else None
    return {
        "name": name,
        "path": str(path),
        "description": recipe.description,
        "kind": kind_of(recipe),
        "target": timing and timing.target,
        "engine": timing and timing.engine.name,
        "task": timing and timing.engine.task,
        "needs": [asdict(need) for need in needs],
    }


def _answering(
    endpoints: Mapping[str, EndpointSource], models: Mapping[str, EvaluatedModel], lab_root: Path
) -> list[Need]:
    """List servers, and the models of those that labctl starts."""
    started = {endpoint.model for endpoint in endpoints.values() if endpoint.start}
    files = [key for key in models if key in started]
    return [*_servers(endpoints, lab_root), *model_needs(files, models, lab_root)]


def _servers(endpoints: Mapping[str, EndpointSource], lab_root: Path) -> Iterator[Need]:
    wanted: dict[tuple[str, str | None], None] = {}
    for name, endpoint in endpoints.items():
        if endpoint.start is None:
            yield Need("server", f"{name}, {endpoint.url}", here=True)
            variable = endpoint.key_env
            if variable is not None and not os.environ.get(variable):
                yield Need("key", variable, here=False, action="set this environment variable")
        elif endpoint.start == "host":
            target = endpoint.target or f"host-{platform.machine()}"
            wanted[target, endpoint.version] = None
    for target, version in wanted:
        try:
            built = find_artifacts(target, _PRODUCT, version, lab_root=lab_root)
        except ConfigError:
            built = []
        here = any(_PROGRAM in artifact.manifest.tools for artifact in built)
        action = None if here else build_command(target, _PRODUCT, version, [_PROGRAM])
        yield Need("program", f"{_PROGRAM} for {target}", here=here, action=action)


def _questions(dataset: DatasetSource, lab_root: Path) -> Iterator[Need]:
    sources: list[DatasetSource | Shots] = [dataset]
    if dataset.shots:
        sources.append(dataset.shots)
    for source in sources:
        if source.file is not None and local_file(source.file, lab_root).is_file():
            yield Need("file", source.file, here=True)
        elif source.file is not None:
            yield file_need("file", source.file, lab_root)
        elif source.hub is not None:
            name = f"{source.hub.repository}, {source.hub.split}"
            yield Need("data set", name, here=False, action="fetched by the run", automatic=True)
