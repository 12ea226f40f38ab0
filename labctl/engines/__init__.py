"""How to call inference programs and read their output."""

from labctl.engines.base import Engine, EngineParameters, MemoryNeed, RawOutput, Settled, Tool
from labctl.engines.registry import engine_names, get_engine

__all__ = [
    "Engine",
    "EngineParameters",
    "MemoryNeed",
    "RawOutput",
    "Settled",
    "Tool",
    "engine_names",
    "get_engine",
]
