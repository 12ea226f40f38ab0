"""Engines by the names that recipes use."""

from collections.abc import Mapping
from typing import Any

from labctl.config.names import did_you_mean, listed
from labctl.config.recipe import EngineChoice
from labctl.engines.base import Engine
from labctl.engines.command import Command
from labctl.engines.llama_cpp import LlamaBench, LlamaCpp, LlamaPerplexity
from labctl.engines.openharmony import MindSporeBenchmark, MindSporeDemo, NnrtSample
from labctl.errors import ConfigError

#: By engine and tool; a recipe that names no tool means the first.
_ENGINES: Mapping[str, Mapping[str, type[Engine[Any]]]] = {
    "llama_cpp": {engine.intent: engine for engine in (LlamaCpp, LlamaBench, LlamaPerplexity)},
    "mindspore_lite": {engine.intent: engine for engine in (MindSporeBenchmark, MindSporeDemo)},
    "nnrt": {NnrtSample.intent: NnrtSample},
    "command": {Command.intent: Command},
}


def make_engine(choice: EngineChoice) -> Engine[Any]:
    """The engine that a recipe chooses. Raises ConfigError with the nearest known name."""
    tools = _ENGINES.get(choice.name)
    if tools is None:
        raise ConfigError(
            f"unknown engine {choice.name!r}{did_you_mean(choice.name, _ENGINES)}",
            hint=f"this version knows {listed(_ENGINES)}",
        )
    intent = choice.tool or next(iter(tools))
    if intent not in tools:
        raise ConfigError(
            f"{choice.name} cannot do {intent!r} in this version{did_you_mean(intent, tools)}",
            hint=f"it knows {listed(tools)}",
        )
    return tools[intent].chosen(choice)


def engine_names() -> list[str]:
    """The names of all engines."""
    return list(_ENGINES)


def engine_tools(name: str) -> list[str]:
    """What an engine can be asked for, the usual first."""
    return list(_ENGINES[name])
