"""What both generations of llama.cpp really printed, running SmolLM2-135M (see the fixtures)."""

from pathlib import Path

import pytest

from labctl.engines import RawOutput
from labctl.engines.llama_cpp import LlamaCpp, LlamaCppParameters
from labctl.records import TimingRecord

ENGINE = LlamaCpp()
RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp"


def read(name: str, parameters: LlamaCppParameters) -> TimingRecord:
    timing = ENGINE.parse(RawOutput.read(RECORDED / name), parameters)
    assert all(check.ok is not False for check in ENGINE.checks(timing, parameters))
    return timing


@pytest.mark.parametrize(
    ("name", "form"), [("classic-limit", "llama_perf"), ("completion-limit", "common_perf")]
)
def test_a_fixed_number_of_tokens(name: str, form: str) -> None:
    timing = read(name, LlamaCppParameters(tokens=16))
    assert timing.perf_format == form
    assert timing.stop_reason == "limit"
    assert timing.generated_tokens == timing.arrivals == 16
    assert len(timing.token_ns) == timing.eval_runs == 15
    assert timing.prompt_tokens == 7
    assert timing.span is not None
    assert 0.98 <= timing.span.ratio <= 1


@pytest.mark.parametrize("name", ["classic-no-warmup", "completion-no-warmup"])
def test_without_warmup_both_clocks_still_agree(name: str) -> None:
    timing = read(name, LlamaCppParameters(tokens=8, warmup=False))
    assert timing.span is not None
    assert 0.98 <= timing.span.ratio <= 1


def test_the_end_of_the_text() -> None:
    timing = read("classic-end-of-text", LlamaCppParameters(tokens=60, ignore_eos=False))
    assert timing.stop_reason == "end-of-generation"
    assert timing.generated_tokens == timing.arrivals == 33


def test_a_prompt_of_one_token() -> None:
    timing = read("completion-one-token-prompt", LlamaCppParameters(tokens=6))
    assert timing.generated_tokens == timing.arrivals == 6
    assert (timing.prompt_tokens, timing.prompt_eval_ns) == (None, None)
