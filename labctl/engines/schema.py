"""The schema of a recipe with the keys of every installed engine, for ``labctl schema``."""

from functools import reduce
from operator import or_
from typing import Any, Literal

from pydantic import create_model

from labctl.config.recipe import Recipe
from labctl.engines.base import Engine, EngineKeys
from labctl.engines.registry import EngineClass, engine_names, engine_tasks
from labctl.errors import ConfigError


def recipe_model() -> tuple[type[Recipe], list[ConfigError]]:
    """Return the model of recipes, and the reasons why unusable engines are left out.

    No recipe runs a server.
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


def _block(engine: EngineClass, *, is_usual: bool) -> type[EngineKeys]:
    """Make the model of ``engine`` for one task; the usual one may be left out."""
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
