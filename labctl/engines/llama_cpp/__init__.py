"""llama.cpp: its programs of all versions since 2023."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.engines.llama_cpp.bench import LlamaBench
    from labctl.engines.llama_cpp.engine import LlamaCpp
    from labctl.engines.llama_cpp.kl_divergence import LlamaKlDivergence
    from labctl.engines.llama_cpp.parameters import LlamaBenchParameters, LlamaCppParameters
    from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
    from labctl.engines.llama_cpp.server import LlamaServer
    from labctl.engines.llama_cpp.tasks import ENGINES
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "bench": "LlamaBench",
            "engine": "LlamaCpp",
            "kl_divergence": "LlamaKlDivergence",
            "parameters": "LlamaBenchParameters LlamaCppParameters",
            "perplexity": "LlamaPerplexity",
            "server": "LlamaServer",
            "tasks": "ENGINES",
        },
    )

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
