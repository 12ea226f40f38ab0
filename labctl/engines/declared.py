"""Declared meaning of the parameters in a record, by the name of its engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from labctl.engines.base import USUAL_WORKLOAD
from labctl.engines.registry import engine_tasks
from labctl.errors import ConfigError

#: Records of an import name no engine, and neither do those of servers: they are llama.cpp's.
_UNNAMED = "llama_cpp"


@dataclass(frozen=True)
class Declared:
    """Meaning of parameters, of all tasks of an engine.

    ``workload`` says what is done, and not how fast; ``cache_types`` are those with the types of
    the KV cache, with the type where one is not set.
    """

    workload: frozenset[str] = frozenset(USUAL_WORKLOAD)
    cache_types: Mapping[str, str | None] = field(default_factory=dict)

    def cache_type(self, parameters: Mapping[str, JsonValue]) -> str | None:
        """Return the types of keys and values, as ``q8_0/f16``; None if they are not known."""
        types = [parameters.get(name) or usual for name, usual in self.cache_types.items()]
        return "/".join(dict.fromkeys(str(one) for one in types if one)) or None


def declared(engine: str | None) -> Declared:
    """Return what an engine declares; for one that is not installed here, what is usual."""
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
