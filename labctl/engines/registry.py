"""Registry of engines by name, of labctl and of installed packages, and the recipe schema for all.

Looking up names imports no engine. A package is imported when a recipe requests it; its engines are
then checked against the contract. The engines define the meaning of a record's parameters, the keys
in a recipe's schema, and the benchmark of ``boards probe``.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import EntryPoint
from operator import or_
from typing import Any, Literal

from pydantic import JsonValue, ValidationError, create_model
from pydantic_core import PydanticCustomError

from labctl.config.plugins import imported, installed, the_only, unusable
from labctl.config.recipe import EngineChoice, Recipe
from labctl.config.recipe_parts import Scalar
from labctl.config.yaml.document import refuse, refuse_explained
from labctl.config.yaml.messages import explain, path_text
from labctl.engines.base import USUAL_WORKLOAD, Engine, EngineBase, EngineKeys
from labctl.engines.server import ServerEngine
from labctl.errors import ConfigError
from labctl.suggestions import listed, unknown

GROUP = "labctl.engines"
#: labctl's own engines are here and not in its metadata: an uninstalled source tree has none.
_OWN = tuple(
    EntryPoint(name, value, GROUP)
    for name, value in (
        ("llama_cpp", "labctl.engines.llama_cpp.tasks:ENGINES"),
        ("mindspore_lite", "labctl.engines.openharmony:MINDSPORE_LITE"),
        ("nnrt", "labctl.engines.openharmony:NNRT"),
        ("command", "labctl.engines.command:ENGINES"),
    )
)

#: Names of labctl's own engines.
OWN_ENGINES = tuple(entry.name for entry in _OWN)

_EngineClass = type[EngineBase[Any]]


def offers() -> tuple[EntryPoint, ...]:
    """Return the entry points of an engine, labctl's own first; import nothing."""
    return (*_OWN, *installed(GROUP))


def is_own(name: str) -> bool:
    """Return True if the code of an engine is labctl's own."""
    return name in OWN_ENGINES


def load(entry: EntryPoint) -> tuple[_EngineClass, ...]:
    """Import an engine's classes. Raises ConfigError that names the distribution."""
    engines: Any = imported("engine", entry)
    problem = next(_problems(entry, engines), None)
    if problem is not None:
        raise unusable("engine", entry, problem)
    return tuple(engines)


def _problems(entry: EntryPoint, engines: object) -> Iterator[str]:
    if not isinstance(engines, tuple) or not engines or not all(map(_is_engine, engines)):
        yield f"{entry.value} is not a tuple of engine classes"
        return
    for engine in engines:
        yield from _engine_problems(entry.name, engine)
    if len({engine.task for engine in engines}) < len(engines):
        yield "two of its classes have the same task"


def _is_engine(candidate: object) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, (Engine, ServerEngine))


def _engine_problems(name: str, engine: _EngineClass) -> Iterator[str]:
    if inspect.isabstract(engine):
        missing = listed(sorted(engine.__abstractmethods__), joiner="and")
        yield f"{engine.__name__} does not define {missing}"
    for attribute in ("name", "task", "product"):
        if not isinstance(getattr(engine, attribute, None), str):
            yield f"{engine.__name__}.{attribute} is no text"
    if engine.name != name:
        yield f"{engine.__name__} calls itself {engine.name!r}"
    parameters = getattr(engine, "parameters_model", None)
    if parameters is not None:  # otherwise each recipe has its own
        for parameter in engine.roles.names():
            if parameter not in parameters.model_fields:
                yield f"{engine.__name__} gives a role to {parameter!r}, which is not a parameter"


#: Message for an engine of another kind than required.
_KINDS: dict[type[Any], str] = {
    Engine: "a server, which does not end by itself: it cannot run trials",
    ServerEngine: "no server",
}


def engine_names() -> list[str]:
    """Return the names of all engines, labctl's own first, without importing."""
    return list(dict.fromkeys(entry.name for entry in offers()))


def engine_tasks(name: str) -> dict[str, _EngineClass]:
    """Return the classes of an engine by task, the usual task first.

    Raises ConfigError for an unknown name, or a package that cannot be used.
    """
    found = [entry for entry in offers() if entry.name == name]
    if not found:
        raise ConfigError(unknown("engine", name, engine_names()))
    return {one.task: one for one in load(the_only("engine", found))}


def make_engine(choice: EngineChoice) -> Engine[Any]:
    """Make the engine that a recipe chooses. Raises ConfigError."""
    engine = _made(choice, Engine)
    assert isinstance(engine, Engine)  # as _resolved found it
    return engine


def make_server(choice: EngineChoice) -> ServerEngine[Any]:
    """Make an engine that is a server, for :func:`labctl.engines.server_lifecycle.serve`.

    Raises ConfigError.
    """
    engine = _made(choice, ServerEngine)
    assert isinstance(engine, ServerEngine)  # as _resolved found it
    return engine


def check_engine(choice: EngineChoice) -> EngineKeys:
    """Validate a recipe's ``engine`` with the engine's own keys, for ``load_recipe``.

    Raises the error of ``refuse``, and ConfigError for a package that cannot be used.
    """
    return _resolved(choice, Engine)[1]


def _made(choice: EngineChoice, kind: type[Any]) -> EngineBase[Any]:
    try:
        engine, keys = _resolved(choice, kind)
    except PydanticCustomError as refused:
        problems = (refused.context or {})["problems"]  # from ``refuse``
        messages = (f"{path_text(('engine', *path))}: {sentence}" for path, sentence, _ in problems)
        raise ConfigError("; ".join(messages)) from None
    return engine.chosen(keys)


def _resolved(choice: EngineChoice, kind: type[Any]) -> tuple[_EngineClass, EngineKeys]:
    known = engine_names()
    if choice.name not in known:
        raise refuse(unknown("engine", choice.name, known), "name")
    tasks = engine_tasks(choice.name)
    task = choice.task or next(iter(tasks))
    if task not in tasks:
        raise refuse(unknown(f"{choice.name} task", task, tasks), "task")
    engine = tasks[task]
    if not issubclass(engine, kind):
        raise refuse(f"{task} is {_KINDS[kind]}", "task")
    if type(choice) is engine.keys_model:
        return engine, choice
    written = choice.model_dump(mode="json", exclude_unset=True)
    try:
        return engine, engine.keys_model.model_validate_json(json.dumps(written), strict=True)
    except ValidationError as failure:
        problems = explain(failure.errors(include_url=False), written, engine.keys_model)
        raise refuse_explained(problems) from None


@dataclass(frozen=True)
class Benchmark:
    """Parts of a recipe: ``engine`` and ``parameters``; its record has ``tests``."""

    engine: Mapping[str, str]
    parameters: Mapping[str, Scalar]


#: Short: a phone-class CPU needs a second per token for a model of a billion weights.
COMPUTE_BENCHMARK = Benchmark(
    {"name": "llama_cpp", "task": "bench"},
    {"prompt_tokens": 64, "tokens": 16, "repetitions": 3},
)


#: Imported records and records of servers name no engine: they come from llama.cpp.
_UNNAMED = "llama_cpp"


@dataclass(frozen=True)
class Declared:
    """Meaning of parameters, of all tasks of an engine.

    ``workload``: parameters that define the work, and do not affect its speed. ``cache_types``:
    parameters with the types of the KV cache -> type if unset.
    """

    workload: frozenset[str] = frozenset(USUAL_WORKLOAD)
    cache_types: Mapping[str, str | None] = field(default_factory=dict)

    def cache_type(self, parameters: Mapping[str, JsonValue]) -> str | None:
        """Return the types of keys and values, as ``q8_0/f16``; None if unknown."""
        types = [parameters.get(name) or usual for name, usual in self.cache_types.items()]
        return "/".join(dict.fromkeys(str(one) for one in types if one)) or None


def declared(engine: str | None) -> Declared:
    """Return an engine's declarations; the usual ones if it is not installed here."""
    try:
        tasks = engine_tasks(engine or _UNNAMED).values()
    except ConfigError:
        return Declared()
    workload = {
        name
        for one in tasks
        for name in (
            *(one.roles.tokens, one.roles.prompt_tokens, one.roles.warm_up),
            *one.workload_parameters,
        )
        if name is not None
    }
    types = {name: usual for one in tasks for name, usual in one.cache_types.items()}
    return Declared(frozenset(workload), types)


def recipe_model() -> tuple[type[Recipe], list[ConfigError]]:
    """Return the model of recipes, and the reasons why unusable engines are left out.

    Servers are left out too: no recipe runs them.
    """
    blocks: list[type[EngineKeys]] = []
    unusable: list[ConfigError] = []
    for name in engine_names():
        try:
            tasks = [e for e in engine_tasks(name).values() if issubclass(e, Engine)]
        except ConfigError as error:
            unusable.append(error)
            continue
        blocks += [_block(engine, is_usual=engine is tasks[0]) for engine in tasks]
    engine: Any = reduce(or_, blocks)
    return _with(Recipe, "Recipe", engine=(engine, ...)), unusable


def _block(engine: _EngineClass, *, is_usual: bool) -> type[EngineKeys]:
    """Make the model of ``engine`` for one task; the name of the usual task is optional."""
    task: Any = Literal[engine.task]
    block: type[EngineKeys] = _with(
        engine.keys_model,
        f"{engine.name}_{engine.task}",
        name=(Literal[engine.name], ...),
        task=(task | None, None) if is_usual else (task, ...),
    )
    return block


def _with(base: Any, model_name: str, **fields: tuple[Any, Any]) -> Any:
    late = {"defer_build": True}  # no validator for each block: only the whole is described
    made = create_model(  # type: ignore[call-overload]
        model_name, __base__=base, __cls_kwargs__=late, **fields
    )
    made.__doc__ = base.__doc__
    return made
