"""What both generations of llama.cpp really printed, running SmolLM2-135M (see the fixtures)."""

from pathlib import Path

import pytest

from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.errors import IntegrityError, OutputNotUnderstood
from labctl.records.timing import TimingRecord
from labctl.records.trial import JobStatus

ENGINE = LlamaCpp()
DONE = JobStatus(
    outcome="exited", exit_status=0, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
    stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1,
)  # fmt: skip
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


def cut(raw: RawOutput, stdout: int, before: bytes) -> RawOutput:
    """As if the program had ended before its log was printed."""
    return RawOutput(raw.stdout[:stdout], raw.stderr.partition(before)[0], b"")


@pytest.mark.parametrize(
    ("stdout", "before"),
    [(0, b"sampler seed"), (20, b"common_perf"), (-1, b"common_perf"),
     (9999, b"       eval time"), (9999, b"      total time")],
)  # fmt: skip
def test_a_log_that_was_not_printed_to_its_end_is_no_result(stdout: int, before: bytes) -> None:
    raw = RawOutput.read(RECORDED / "completion-limit")
    assert before in raw.stderr
    failure = ENGINE.diagnose(DONE, cut(raw, stdout, before))
    assert isinstance(failure, IntegrityError)
    assert "does not flush its log" in failure.message


@pytest.mark.parametrize("path", sorted(RECORDED.glob("c*-*")), ids=lambda path: path.name)
def test_what_was_printed_to_its_end_is_not_cut(path: Path) -> None:
    assert ENGINE.diagnose(DONE, RawOutput.read(path)) is None


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        (b"text\n\n", b"0.00.100.000 I speed: 3 tokens/s\n"),
        (b"", b""),
        (b"text", b"sampler seed: 1\nllama_perf_context_print:  load time = 1.00 ms\n"),
    ],
)
def test_output_of_another_form_or_version_is_not_cut(stdout: bytes, stderr: bytes) -> None:
    raw = RawOutput(stdout, stderr, b"labctl-timeline 1 5\n")
    assert ENGINE.diagnose(DONE, raw) is None
    with pytest.raises(OutputNotUnderstood):
        ENGINE.parse(raw, LlamaCppParameters(tokens=16))


def test_a_prompt_of_one_token() -> None:
    timing = read("completion-one-token-prompt", LlamaCppParameters(tokens=6))
    assert timing.generated_tokens == timing.arrivals == 6
    assert (timing.prompt_tokens, timing.prompt_eval_ns) == (None, None)
