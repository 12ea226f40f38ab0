"""Needs of an evaluation's recipe on this host, and whether they are met."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from labctl.build import build_command, find_artifacts
from labctl.errors import ConfigError
from labctl.evaluation.datasets import DatasetSource, Shots
from labctl.evaluation.datasets.load import local_file
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.runs.inputs.needs import Need, file_need, model_needs

_PRODUCT = "llama.cpp"
_PROGRAM = "llama-server"


def evaluation_needs(recipe: EvaluationRecipe, lab_root: Path) -> list[Need]:
    """List what an evaluation needs of this host; nothing is fetched, built or asked."""
    return [
        *_servers(recipe, lab_root),
        *model_needs(_files(recipe), recipe.models, lab_root),
        *_questions(recipe, lab_root),
    ]


def _servers(recipe: EvaluationRecipe, lab_root: Path) -> Iterator[Need]:
    wanted: dict[tuple[str, str | None], None] = {}
    for name, endpoint in recipe.endpoints.items():
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


def _files(recipe: EvaluationRecipe) -> list[str]:
    """Return the models whose files have to be here: those of servers that labctl starts."""
    started = {endpoint.model for endpoint in recipe.endpoints.values() if endpoint.start}
    return [key for key in recipe.models if key in started]


def _questions(recipe: EvaluationRecipe, lab_root: Path) -> Iterator[Need]:
    sources: list[DatasetSource | Shots] = [recipe.dataset]
    if recipe.dataset.shots:
        sources.append(recipe.dataset.shots)
    for source in sources:
        if source.file is not None and local_file(source.file, lab_root).is_file():
            yield Need("file", source.file, here=True)
        elif source.file is not None:
            yield file_need("file", source.file, lab_root)
        elif source.hub is not None:
            name = f"{source.hub.repository}, {source.hub.split}"
            yield Need("data set", name, here=False, action="fetched by the run", automatic=True)
