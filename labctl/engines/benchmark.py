"""The engine with which a probe measures a board's arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass

from labctl.config.recipe_parts import Scalar


@dataclass(frozen=True)
class Benchmark:
    """Parts of a recipe: ``engine`` and ``parameters``; its record has ``tests``."""

    engine: Mapping[str, str]
    parameters: Mapping[str, Scalar]


#: Short: a board with a phone's CPU needs a second per token for a model of a billion weights.
COMPUTE_BENCHMARK = Benchmark(
    {"name": "llama_cpp", "task": "bench"},
    {"prompt_tokens": 64, "tokens": 16, "repetitions": 3},
)
