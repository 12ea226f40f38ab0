"""Engines by the name that recipes use."""

from typing import Any

from labctl.config.names import did_you_mean, listed
from labctl.engines.base import Engine
from labctl.engines.llama_cpp import LlamaCpp
from labctl.errors import ConfigError

_ENGINES: dict[str, Engine[Any]] = {engine.name: engine for engine in (LlamaCpp(),)}


def get_engine(name: str) -> Engine[Any]:
    """The engine of that name. Raises ConfigError with the nearest known name."""
    try:
        return _ENGINES[name]
    except KeyError:
        raise ConfigError(
            f"unknown engine {name!r}{did_you_mean(name, _ENGINES)}",
            hint=f"this version knows {listed(_ENGINES)}",
        ) from None


def engine_names() -> list[str]:
    """The names of all engines."""
    return list(_ENGINES)
