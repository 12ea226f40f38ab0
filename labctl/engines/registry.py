"""Engines by the names that recipes use: those of labctl, and those of installed packages.

Names are looked at without importing any engine; a package is imported when a recipe asks for it.
"""

import json
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from labctl.config.names import listed, unknown
from labctl.config.recipe import EngineChoice
from labctl.config.yaml.document import refuse, refuse_explained
from labctl.config.yaml.messages import explain, path_text
from labctl.engines.base import Engine, EngineBase, EngineKeys
from labctl.engines.plugins import EngineClass, load, offers, owner
from labctl.engines.server import ServerEngine
from labctl.errors import ConfigError

#: What is said of an engine that is not of the kind that is wanted.
_KINDS: dict[type[Any], str] = {
    Engine: "a server, which does not end by itself: no trial can be made of it",
    ServerEngine: "no server",
}


def engine_names() -> list[str]:
    """Return the names of all engines, labctl's own first; nothing is imported."""
    return list(dict.fromkeys(entry.name for entry in offers()))


def engine_tasks(name: str) -> dict[str, EngineClass]:
    """Return the classes of an engine by task, the usual first.

    Raises ConfigError for an unknown name, and for a package that cannot be used.
    """
    found = [entry for entry in offers() if entry.name == name]
    if not found:
        raise ConfigError(unknown("engine", name, engine_names()))
    if len(found) > 1:
        owners = listed(map(owner, found), joiner="and")
        raise ConfigError(
            f"several packages offer an engine {name!r}: {owners}",
            hint="uninstall all but one of them",
        )
    return {one.task: one for one in load(found[0])}


def make_engine(choice: EngineChoice) -> Engine[Any]:
    """Make the engine that a recipe chooses. Raises ConfigError."""
    engine = _made(choice, Engine)
    assert isinstance(engine, Engine)  # as _resolved found it
    return engine


def make_server(choice: EngineChoice) -> ServerEngine[Any]:
    """Make an engine that is a server, as :func:`labctl.engines.serving.serve` starts it.

    Raises ConfigError.
    """
    engine = _made(choice, ServerEngine)
    assert isinstance(engine, ServerEngine)  # as _resolved found it
    return engine


def check_engine(choice: EngineChoice) -> EngineKeys:
    """Read the keys of a recipe's ``engine`` as the engine's own, for ``load_recipe``.

    Raises what ``refuse`` makes, and ConfigError for a package that cannot be used.
    """
    return _resolved(choice, Engine)[1]


def _made(choice: EngineChoice, kind: type[Any]) -> EngineBase[Any]:
    try:
        engine, keys = _resolved(choice, kind)
    except PydanticCustomError as refused:
        problems = (refused.context or {})["problems"]  # as ``refuse`` makes it
        messages = (f"{path_text(('engine', *path))}: {sentence}" for path, sentence, _ in problems)
        raise ConfigError("; ".join(messages)) from None
    return engine.chosen(keys)


def _resolved(choice: EngineChoice, kind: type[Any]) -> tuple[EngineClass, EngineKeys]:
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
