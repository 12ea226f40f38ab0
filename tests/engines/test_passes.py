"""What one run of each program of llama.cpp computes."""

import pytest

from labctl.config.recipe import EngineChoice
from labctl.engines import Passes, make_engine
from labctl.engines.llama_cpp import LlamaCpp
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity


def test_a_completion_reads_its_prompt_and_makes_a_token_a_pass() -> None:
    engine = LlamaCpp()
    cold = engine.parameters({"tokens": 32, "warmup": False})
    # 32 bytes are about 8 tokens, and one begins the text; its pass gives the first of the 32.
    assert engine.passes(cold, 32) == Passes(1, 9, 31, before_first=0)
    warm = engine.parameters({"tokens": 32, "warmup": True})
    assert engine.passes(warm, 32) == Passes(1, 9, 32, before_first=1)


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({"prompt_tokens": 512, "tokens": 128, "warmup": True}, Passes(6, 512, 641)),
        ({"prompt_tokens": 512, "tokens": 128, "warmup": False}, Passes(5, 512, 640)),
        ({"prompt_tokens": 0, "tokens": 16, "warmup": True}, Passes(0, 0, 81)),
        ({"prompt_tokens": 64, "tokens": 0, "warmup": True}, Passes(6, 64, 0)),
    ],
)
def test_a_bench_repeats_both_tests(asked: dict[str, int | bool], passes: Passes) -> None:
    engine = LlamaBench()
    assert engine.passes(engine.parameters(asked), 0) == passes


def test_perplexity_reads_chunks_of_its_text() -> None:
    engine = LlamaPerplexity()
    text = 1_300_000  # bytes
    assert engine.passes(engine.parameters({"context": 512}), text) == Passes(634, 512, 0)
    asked = engine.parameters({"context": 512, "chunks": 8})
    assert engine.passes(asked, text) == Passes(8, 512, 0)
    assert engine.passes(asked, 100) == Passes(1, 512, 0)


def test_nobody_knows_what_another_program_does() -> None:
    output = [{"pattern": "(?P<t>[0-9]+) ms", "values": {"t": {"metric": "total", "unit": "ms"}}}]
    program = {"program": {"board": "/bin/echo"}, "arguments": ["{model}"], "output": output}
    engine = make_engine(EngineChoice.model_validate({"name": "command", **program}))
    assert engine.passes(engine.parameters({}), 10) is None
