"""llama.cpp: its text-completion programs of all versions since 2023."""

from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import LlamaCppParameters

__all__ = ["LlamaCpp", "LlamaCppParameters"]
