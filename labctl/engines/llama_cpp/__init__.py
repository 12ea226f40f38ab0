"""llama.cpp: its programs of all versions since 2023."""

from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import LlamaBenchParameters, LlamaCppParameters
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity

__all__ = [
    "LlamaBench",
    "LlamaBenchParameters",
    "LlamaCpp",
    "LlamaCppParameters",
    "LlamaPerplexity",
]
