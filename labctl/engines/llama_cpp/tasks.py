"""The tasks of llama.cpp: its engine classes."""

from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.kl_divergence import LlamaKlDivergence
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.engines.llama_cpp.server import LlamaServer

#: Classes for the engine's entry point, the usual task first.
ENGINES = (LlamaCpp, LlamaBench, LlamaPerplexity, LlamaKlDivergence, LlamaServer)
