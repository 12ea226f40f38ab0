"""llama.cpp: its programs of all versions since 2023."""

from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.kl_divergence import LlamaKlDivergence
from labctl.engines.llama_cpp.parameters import LlamaBenchParameters, LlamaCppParameters
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.engines.llama_cpp.server import LlamaServer

#: Classes for the engine's entry point: its tasks, the usual first.
ENGINES = (LlamaCpp, LlamaBench, LlamaPerplexity, LlamaKlDivergence, LlamaServer)

__all__ = [
    "ENGINES",
    "LlamaBench",
    "LlamaBenchParameters",
    "LlamaCpp",
    "LlamaCppParameters",
    "LlamaKlDivergence",
    "LlamaPerplexity",
    "LlamaServer",
]
