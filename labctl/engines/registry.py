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
from labctl.engines.base import Engine, EngineKeys
from labctl.engines.plugins import EngineClass, load, offers, owner
from labctl.errors import ConfigError


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
    try:
        engine, keys = _resolved(choice)
    except PydanticCustomError as refused:
        problems = (refused.context or {})["problems"]  # as ``refuse`` makes it
        said = (f"{path_text(('engine', *path))}: {sentence}" for path, sentence, _ in problems)
        raise ConfigError("; ".join(said)) from None
    return engine.chosen(keys)


def check_engine(choice: EngineChoice) -> EngineKeys:
    """Read the keys of a recipe's ``engine`` as the engine's own, for ``load_recipe``.

    Raises what ``refuse`` makes, and ConfigError for a package that cannot be used.
    """
    return _resolved(choice)[1]


def _resolved(choice: EngineChoice) -> tuple[EngineClass, EngineKeys]:
    known = engine_names()
    if choice.name not in known:
        raise refuse(unknown("engine", choice.name, known), "name")
    tasks = engine_tasks(choice.name)
    task = choice.task or next(iter(tasks))
    if task not in tasks:
        raise refuse(unknown(f"{choice.name} task", task, tasks), "task")
    engine = tasks[task]
    if type(choice) is engine.keys_model:
        return engine, choice
    written = choice.model_dump(mode="json", exclude_unset=True)
    try:
        return engine, engine.keys_model.model_validate_json(json.dumps(written), strict=True)
    except ValidationError as failure:
        problems = explain(failure.errors(include_url=False), written, engine.keys_model)
        raise refuse_explained(problems) from None
