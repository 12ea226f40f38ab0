"""Declared meaning of the parameters in a record, by the name of its engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

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

    workload: frozenset[str] = frozenset()
    cache_types: Mapping[str, str] = field(default_factory=dict)

    def cache_type(self, parameters: Mapping[str, JsonValue]) -> str | None:
        """Return the types of keys and values, as ``q8_0/f16``; None if they are not known."""
        types = [str(parameters.get(name) or usual) for name, usual in self.cache_types.items()]
        return "/".join(dict.fromkeys(types)) or None


def declared(engine: str | None) -> Declared:
    """Return what an engine declares; of one that cannot be used here, nothing is known."""
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
