"""What one run of each program of llama.cpp computes."""

import pytest

from labctl.config.recipe import EngineChoice
from labctl.engines.base import TokenCounts
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.engines.registry import make_engine


def test_a_completion_reads_its_prompt_and_makes_a_token_a_pass() -> None:
    engine = LlamaCpp()
    cold = engine.parameters({"tokens": 32, "warmup": False})
    # 32 bytes are about 8 tokens, and one begins the text; its pass gives the first of the 32.
    assert engine.token_counts(cold, 32) == TokenCounts(1, 9, 31, before_first=0)
    warm = engine.parameters({"tokens": 32, "warmup": True})
    assert engine.token_counts(warm, 32) == TokenCounts(1, 9, 32, before_first=1)


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ({"prompt_tokens": 512, "tokens": 128, "warmup": True}, TokenCounts(6, 512, 641)),
        ({"prompt_tokens": 512, "tokens": 128, "warmup": False}, TokenCounts(5, 512, 640)),
        ({"prompt_tokens": 0, "tokens": 16, "warmup": True}, TokenCounts(0, 0, 81)),
        ({"prompt_tokens": 64, "tokens": 0, "warmup": True}, TokenCounts(6, 64, 0)),
    ],
)
def test_a_bench_repeats_both_tests(asked: dict[str, int | bool], counts: TokenCounts) -> None:
    engine = LlamaBench()
    assert engine.token_counts(engine.parameters(asked), 0) == counts


def test_perplexity_reads_chunks_of_its_text() -> None:
    engine = LlamaPerplexity()
    text = 1_300_000  # bytes
    assert engine.token_counts(engine.parameters({"context": 512}), text) == TokenCounts(
        634, 512, 0
    )
    asked = engine.parameters({"context": 512, "chunks": 8})
    assert engine.token_counts(asked, text) == TokenCounts(8, 512, 0)
    assert engine.token_counts(asked, 100) == TokenCounts(1, 512, 0)


def test_nobody_knows_what_another_program_does() -> None:
    output = [{"pattern": "(?P<t>[0-9]+) ms", "values": {"t": {"metric": "total", "unit": "ms"}}}]
    program = {"program": {"board": "/bin/echo"}, "arguments": ["{model}"], "output": output}
    engine = make_engine(EngineChoice.model_validate({"name": "command", **program}))
    assert engine.token_counts(engine.parameters({}), 10) is None
