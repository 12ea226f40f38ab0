"""How to call inference programs and read their output."""

from labctl.engines.base import (
    TOKENS,
    WARM_UP_PASS,
    Engine,
    EngineParameters,
    Inputs,
    MemoryNeed,
    Passes,
    RawOutput,
    Settled,
    Tool,
)
from labctl.engines.progress import Headway, Seen
from labctl.engines.registry import engine_names, engine_tools, make_engine

__all__ = [
    "TOKENS",
    "WARM_UP_PASS",
    "Engine",
    "EngineParameters",
    "Headway",
    "Inputs",
    "MemoryNeed",
    "Passes",
    "RawOutput",
    "Seen",
    "Settled",
    "Tool",
    "engine_names",
    "engine_tools",
    "make_engine",
]
