"""Needs of evaluations and load tests on this host: met or not."""

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from labctl.build.artifact import build_command, find_artifacts
from labctl.errors import ConfigError
from labctl.evaluation.datasets.load import local_file
from labctl.evaluation.datasets.source import DatasetSource, Shots
from labctl.evaluation.recipe_parts import EndpointSource, ServedRecipe
from labctl.runs.inputs.needs import Need, file_need, model_needs

_PRODUCT = "llama.cpp"
#: The server that labctl starts.
PROGRAM = "llama-server"


def served_needs(recipe: ServedRecipe, lab_root: Path) -> list[Need]:
    """List what an evaluation or a load test needs on this host; fetch, build and ask nothing."""
    return [
        *_servers(recipe.servers, lab_root),
        *model_needs(recipe.measured_models(), recipe.models, lab_root),
        *([] if recipe.questions is None else _questions(recipe.questions, lab_root)),
    ]


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
        here = any(PROGRAM in artifact.manifest.tools for artifact in built)
        action = None if here else build_command(target, _PRODUCT, version, [PROGRAM])
        yield Need("program", f"{PROGRAM} for {target}", here=here, action=action)


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
