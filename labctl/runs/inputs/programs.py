"""The program of a recipe: its tool, its artifact, and the missing builds."""

import platform
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from labctl.build.artifact import (
    Artifact,
    build_command,
    find_artifacts,
    list_artifacts,
    other_compiler,
    read_artifact,
)
from labctl.build.plan import BuildRequest, other_source
from labctl.build.spec import find_spec
from labctl.config.models import ModelSource
from labctl.config.recipe import Recipe
from labctl.config.target import Target, load_target
from labctl.deploy.plan import AGENT_PRODUCT, Object, agent_artifact, agent_target, describe
from labctl.engines.base import Engine, EngineBase, Tool
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError, IntegrityError
from labctl.models.expected import are_ready
from labctl.models.quantizer import PRODUCT as QUANTIZER_PRODUCT
from labctl.models.quantizer import TOOL as QUANTIZER
from labctl.models.quantizer import find_quantizer
from labctl.records.run import ArtifactIdentity
from labctl.suggestions import listed


@dataclass(frozen=True)
class Program:
    """The program of a recipe."""

    tool: Tool
    #: None: labctl did not build the program.
    artifact: Artifact | None = None
    #: None: it is on the board already; the tool's name is its path.
    file: Object | None = None
    #: Notes for the user on the choice.
    notes: tuple[str, ...] = ()


def find_program(
    engine: EngineBase[Any], recipe: Recipe, lab_root: Path, *, untrusted: bool = False
) -> Program:
    """Find a recipe's program: a tool of an artifact, a file of this host, or a file on the board.

    An ``untrusted`` recipe may have a program with an untrusted source. Raises ConfigError if it is
    not built; the hint is the command that builds it.
    """
    source = engine.program
    if source is not None and source.board is not None:
        return Program(Tool(source.board, engine.task))
    if source is not None and source.file is not None:
        item = describe(lab_root / source.file, executable=True)
        return Program(Tool(item.name, engine.task), file=item)
    product = _product(engine)
    version = recipe.engine.version
    built = find_artifacts(recipe.target, product, version, lab_root=lab_root, untrusted=untrusted)
    available = {name for artifact in built for name in artifact.manifest.tools}
    try:
        tool = engine.tool(available, offered=_offered(engine, recipe, lab_root))
        artifact = next(a for a in built if tool.name in a.manifest.tools)
    except (ConfigError, StopIteration):  # engines do not know the whole command
        wanted = wanted_tool(engine, recipe, available, lab_root)
        raise _not_built(built[0], recipe, wanted.name, available) from None
    record = artifact.manifest.tools[tool.name]
    path = artifact.tool(tool.name)
    item = Object(record.sha256, record.size_bytes, path, tool.name, executable=True)
    return Program(tool, artifact, item, tuple(_notes(artifact, built[0], tool.name, lab_root)))


def find_or_name_program(engine: Engine[Any], recipe: Recipe, lab_root: Path) -> Program:
    """Do as :func:`find_program`; a program that is not built has neither artifact nor file."""
    try:
        return find_program(engine, recipe, lab_root)
    except (ConfigError, IntegrityError):
        if engine.program is not None and engine.program.product is None:
            raise
    tool = wanted_tool(engine, recipe, (), lab_root)
    return Program(tool, notes=(f"{tool.name} is not built for target {recipe.target} yet",))


def needed_program(recipe: Recipe, lab_root: Path) -> str | None:
    """Return the tool that a recipe runs; None for a file or the board's own program.

    Raises ConfigError if no build has the tool.
    """
    engine = make_engine(recipe.engine)
    if engine.program is not None and engine.program.product is None:
        return None
    return wanted_tool(engine, recipe, (), lab_root).name


def missing_builds(
    recipe: Recipe, lab_root: Path, *, with_stale: bool = False
) -> list[BuildRequest]:
    """Return the missing builds of a recipe, without the agent; nothing is built.

    They are its program and, if a model must be made, llama-quantize; ``with_stale`` also a program
    built from another source than the build spec has now. Raises ConfigError if no build has what
    the recipe needs.
    """
    requests = []
    engine = make_engine(recipe.engine)
    if engine.program is None or engine.program.product is not None:
        try:
            artifact = find_program(engine, recipe, lab_root).artifact
        except (ConfigError, IntegrityError):
            artifact = None
        if artifact is None or (with_stale and other_source(artifact, lab_root)):
            product = _product(engine)
            tools = (wanted_tool(engine, recipe, (), lab_root).name,)
            version = recipe.engine.version
            requests.append(BuildRequest(recipe.target, product, tools, version, lab_root=lab_root))
    if _quantizes(recipe, lab_root):
        requests.append(_quantizer(recipe.target, lab_root))
    return _merged(requests)


def missing_agent(
    machine: str, target: Target, lab_root: Path, *, with_stale: bool = False
) -> BuildRequest | None:
    """Return the agent's build for a machine of ``uname -m``; None if it is here and complete.

    ``with_stale``: None only if it is also of this labctl's source.
    """
    request = BuildRequest(agent_target(machine, target), AGENT_PRODUCT, lab_root=lab_root)
    try:
        agent = agent_artifact(machine, target, lab_root)
    except ConfigError:
        return request
    is_whole = agent.has([AGENT_PRODUCT])
    return None if is_whole and not (with_stale and other_source(agent, lab_root)) else request


def lacking_agent(target: Target, lab_root: Path) -> ConfigError | None:
    """Return the error if no built agent can run on a board of a target; None if one can.

    Only the board knows its machine: a virtual board runs its host's agent.
    """
    try:
        agent_artifact(target.machine, target, lab_root)
    except ConfigError as error:
        agents = (one for one in list_artifacts() if one.manifest.product == AGENT_PRODUCT)
        if not any(one.manifest.target.startswith("host-") for one in agents):
            return error
    return None


def artifact_identity(artifact: Artifact) -> ArtifactIdentity:
    """Return the artifact's identity for records."""
    manifest = artifact.manifest
    return ArtifactIdentity(
        product=manifest.product,
        version=manifest.version,
        target=manifest.target,
        key=manifest.key,
        commit=manifest.commit,
        toolchain=str(manifest.toolchain),
        tools={name: tool.sha256 for name, tool in manifest.tools.items()},
    )


def _product(engine: EngineBase[Any]) -> str:
    product = engine.product if engine.program is None else engine.program.product
    assert product is not None  # a source has exactly one of three forms
    return product


def wanted_tool(
    engine: EngineBase[Any], recipe: Recipe, available: Collection[str], lab_root: Path
) -> Tool:
    """Return the tool that the engine wants of this version, built or not."""
    everything = {*available, *_offered(engine, recipe, lab_root)}
    return engine.tool(everything, offered=everything)


def _offered(engine: EngineBase[Any], recipe: Recipe, lab_root: Path) -> tuple[str, ...]:
    """Return all tools that the recipe's version can have; empty for a user's own version."""
    spec, _ = find_spec(recipe.target, _product(engine), lab_root)
    version = spec.versions.get(recipe.engine.version or spec.default_version)
    return () if version is None else spec.tools_of(version)


def _not_built(
    newest: Artifact, recipe: Recipe, tool: str, available: Collection[str]
) -> ConfigError:
    manifest = newest.manifest
    return ConfigError(
        f"{manifest.product} {manifest} is built without {tool}; it has"
        f" {listed(sorted(available), joiner='and')}",
        hint=build_command(manifest.target, manifest.product, recipe.engine.version, [tool]),
    )


def _notes(chosen: Artifact, newest: Artifact, tool: str, lab_root: Path) -> list[str]:
    """Yield notes if an artifact is not the last one, and the notes of :func:`build_notes`."""
    manifest, notes = chosen.manifest, []
    if chosen is not newest:
        notes.append(
            f"the last build of {manifest.product} {newest.manifest} has no {tool}; the one of"
            f" {chosen.built:%Y-%m-%d %H:%M}, {manifest.toolchain.compiler}"
            f" {manifest.toolchain.version or ''} is used"
        )
    return [*notes, *build_notes(chosen, tool, lab_root)]


def agent_notes(machine: str, target: Target, lab_root: Path) -> list[str]:
    """Return notes on the agent for a board of this machine, if it is unusual."""
    try:
        agent = agent_artifact(machine, target, lab_root)
    except ConfigError as error:
        return [f"{error.message}; to build it: {error.hint}"]
    return list(build_notes(agent, AGENT_PRODUCT, lab_root))


def build_notes(artifact: Artifact, tool: str, lab_root: Path) -> Iterator[str]:
    """Yield notes if a tool has another source, or another compiler, than a build would take now.

    The source of a build from another host of the lab may exist only there.
    """
    manifest = artifact.manifest
    command = build_command(manifest.target, manifest.product, manifest.version, [tool])
    try:
        of = other_source(artifact, lab_root)
    except ConfigError as error:
        yield f"whether {tool} is of the source as it is now is not known: {error.message}"
    else:
        if of:
            yield f"{tool} was built {of}; to build that: {command}"
    if by := other_compiler(artifact):
        yield f"{tool} was built {by}; to build it with that: {command}"


@lru_cache(maxsize=16)
def known_agent_notes(agent: Path, lab_root: Path) -> tuple[str, ...]:
    """Return :func:`build_notes` of an agent's artifact, computed once per process.

    The source comes with labctl; hashing it for each run would take as long as a deploy's check.
    """
    artifact = read_artifact(agent)
    return () if artifact is None else tuple(build_notes(artifact, AGENT_PRODUCT, lab_root))


def derives_models(sources: Mapping[str, ModelSource], keys: Iterable[str]) -> bool:
    """Return True if llama-quantize makes some of these models."""
    return any(sources[key].derive is not None for key in keys)


def _quantizes(recipe: Recipe, lab_root: Path) -> bool:
    """Return True if a model must be made and llama-quantize is not built."""
    if not derives_models(recipe.models, recipe.measured_models()):
        return False
    if are_ready(recipe.models, recipe.measured_models(), lab_root):
        return False
    try:
        find_quantizer(recipe.target, lab_root)
    except ConfigError:
        return True
    return False


def _quantizer(target: str, lab_root: Path) -> BuildRequest:
    """Return llama-quantize's build: for the target if its programs run here, else this host."""
    known = load_target(target, lab_root)
    emulated = known.emulator is not None and shutil.which(known.emulator.argv[0]) is not None
    runs_on = target if known.runs_here or emulated else f"host-{platform.machine()}"
    return BuildRequest(runs_on, QUANTIZER_PRODUCT, (QUANTIZER,), lab_root=lab_root)


def _merged(requests: list[BuildRequest]) -> list[BuildRequest]:
    """Merge requests for the same source tree."""
    merged: dict[tuple[str, str, str | None], BuildRequest] = {}
    for request in requests:
        key = (request.target, request.product, request.version)
        if (before := merged.get(key)) and before.tools and request.tools:
            request = replace(before, tools=(*before.tools, *request.tools))  # noqa: PLW2901
        merged[key] = request
    return list(merged.values())
