"""Needs of a recipe on this host (programs, models and files), met or not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from labctl.build.artifact import build_command
from labctl.build.plan import BuildRequest
from labctl.config.models import ModelSource
from labctl.config.recipe import Recipe
from labctl.config.target import load_target
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError, LabctlError
from labctl.models.lock import reference, state_of
from labctl.runs.inputs.programs import missing_agent, missing_builds, needed_program


@dataclass(frozen=True)
class Need:
    """One thing that a recipe needs.

    ``kind`` is program, model or file. ``action`` says how to get a missing thing; the user must
    act unless it is ``automatic``: a run fetches and makes models by itself.
    """

    kind: str
    name: str
    here: bool
    action: str | None = None
    automatic: bool = False

    def __str__(self) -> str:
        state = "here" if self.here else self.action or "missing"
        return f"{self.kind} {self.name}: {state}"


def recipe_needs(recipe: Recipe, lab_root: Path) -> list[Need]:
    """List a recipe's needs on this host; nothing is fetched or built, artifacts are hashed."""
    models = model_needs(recipe.measured_models(), recipe.models, lab_root)
    return [*_programs(recipe, lab_root), *models, *_files(recipe, lab_root)]


def _programs(recipe: Recipe, lab_root: Path) -> Iterator[Need]:
    try:
        missing = missing_builds(recipe, lab_root)
        target = load_target(recipe.target, lab_root)
        if agent := missing_agent(target.machine, target, lab_root):
            missing.append(agent)
        name = needed_program(recipe, lab_root)
    except ConfigError as error:
        yield Need("program", recipe.engine.name, here=False, action=error.message)
        return
    program = make_engine(recipe.engine).program
    if program is not None and program.file is not None:
        yield file_need("program", program.file, lab_root)
    elif name is not None and not any(name in (request.tools or ()) for request in missing):
        yield Need("program", name, here=True)
    for request in missing:
        yield Need("program", _name(request), here=False, action=_command(request))


def _name(request: BuildRequest) -> str:
    tools = f" ({', '.join(request.tools)})" if request.tools else ""
    return f"{request.product}{tools} for {request.target}"


def _command(request: BuildRequest) -> str:
    tools = request.tools or ()
    return build_command(request.target, request.product, request.version, tools)


def model_needs(
    keys: Iterable[str], sources: Mapping[str, ModelSource], lab_root: Path
) -> Iterator[Need]:
    """Yield the need of each model."""
    for key in keys:
        try:
            here = state_of(key, sources, lab_root).path is not None
        except LabctlError as error:
            yield Need("model", key, here=False, action=error.message)
            continue
        if here:
            yield Need("model", key, here=True)
        else:
            yield _absent(key, key, sources, lab_root)


def _absent(
    name: str, key: str, sources: Mapping[str, ModelSource], lab_root: Path, made: str = ""
) -> Need:
    """Say how to get a missing model; ``made`` is made from ``key`` for it."""
    source = sources[key]
    if source.derive is not None:
        base = source.derive.source
        return _absent(name, base, sources, lab_root, f"{source.derive.quantization} is made of ")
    if source.lab is not None:
        action = f"labctl models fetch {source.lab}"
        return Need("model", name, here=False, action=action, automatic=True)
    if source.file is not None and not (lab_root / source.file).is_file():
        return Need("model", name, here=False, action=f"{made}the file {source.file}, missing")
    action = f"{made}{reference(source)}, fetched by the run"
    if source.file is not None:
        action = f"{made}{source.file} by the run"
    return Need("model", name, here=False, action=action, automatic=True)


def _files(recipe: Recipe, lab_root: Path) -> Iterator[Need]:
    if recipe.prompt_file is not None:
        yield file_need("file", recipe.prompt_file, lab_root)
    for path in recipe.files.values():
        yield file_need("file", path, lab_root)


def file_need(kind: str, path: str, lab_root: Path) -> Need:
    """Return the need of a file that the user must provide."""
    here = (lab_root / path).is_file()
    return Need(kind, path, here=here, action=None if here else f"put it at {lab_root / path}")
