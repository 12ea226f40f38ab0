"""How to call inference programs and read their output."""

from labctl.engines.base import Engine, EngineParameters, RawOutput, Settled, Tool
from labctl.engines.registry import get_engine

__all__ = ["Engine", "EngineParameters", "RawOutput", "Settled", "Tool", "get_engine"]
