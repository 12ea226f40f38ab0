"""llama-perplexity with logits, with what it printed for SmolLM2 in Q2_K against Q8_0."""

import dataclasses
from pathlib import Path

import pytest
from records_made import model

from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.llama_cpp.kl_divergence import LlamaKlDivergence
from labctl.errors import ConfigError, IntegrityError, OutputNotUnderstood, ProgramFailed
from labctl.records.trial import JobStatus

ENGINE = LlamaKlDivergence()
RAW = RawOutput.read(Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "kl_divergence")
OF_128 = ENGINE.parameters({"context": 128})
DONE = JobStatus(
    outcome="exited", exit_status=0, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
    stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1,
)  # fmt: skip


def test_every_estimate_with_its_error() -> None:
    measures = ENGINE.parse(RAW, OF_128).measures
    assert {one.name: (one.value, one.error) for one in measures} == {
        "perplexity": (87.414603, 18.885124),
        "perplexity_base": (67.005574, 15.591404),
        "perplexity_ratio": (1.304587, 0.081988),
        "kl_divergence": (0.469852, 0.019773),
        "probability_change_rms": pytest.approx((0.12368, 0.01001)),
        "same_top_token": pytest.approx((0.61905, 0.03065)),
        "kl_divergence_p99": (1.521525, None),
        "kl_divergence_max": (1.815205, None),
    }
    running = {one.name: one.values for one in measures}
    assert running["kl_divergence"] == (0.41973, 0.47764, 0.48549, 0.46985)
    assert running["same_top_token"] == pytest.approx((0.73016, 0.66667, 0.62963, 0.61905))
    assert ENGINE.diagnose(DONE, RAW) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Mean    KLD:   0.469852", b"Mean    KLD:   0.569852"),
        (b"Mean    KLD:", b"Average KLD:"),
        (b"   2      94.1346", b"   3      94.1346"),
        (b"0.41973 \xc2\xb1", b"        \xc2\xb1"),
        (b"99.0%   KLD:   1.521525", b"99.0%   KLD:        nan"),
        (b"Same top p: 61.905", b"Same top p: 161.905"),
        (b"Maximum KLD:   1.815205\n", b""),
    ],
)
def test_other_output_is_refused(old: bytes, new: bytes) -> None:
    assert old in RAW.stdout
    changed = dataclasses.replace(RAW, stdout=RAW.stdout.replace(old, new))
    with pytest.raises(OutputNotUnderstood, match="llama-perplexity's output is not understood"):
        ENGINE.parse(changed, OF_128)


def test_a_model_that_gives_no_numbers_is_said_to_be_broken() -> None:
    stdout = RAW.stdout.replace(b"   2      94.1346", b"   2          nan")
    failure = ENGINE.diagnose(DONE, dataclasses.replace(RAW, stdout=stdout))
    assert isinstance(failure, ProgramFailed)
    assert "NaN (not a number) from chunk 2 on" in failure.message


def test_an_error_that_is_no_number_is_not_known() -> None:
    """As llama-perplexity prints it for two equal models."""
    stdout = RAW.stdout.replace(b"1.304587 \xc2\xb1   0.081988", b"1.304587 \xc2\xb1        nan")
    found = ENGINE.parse(dataclasses.replace(RAW, stdout=stdout), OF_128).measures
    (ratio,) = [one for one in found if one.name == "perplexity_ratio"]
    assert (ratio.value, ratio.error) == (1.304587, None)


def test_logits_of_another_context_are_refused() -> None:
    with pytest.raises(ProgramFailed, match="have 128 tokens, the context is 512"):
        ENGINE.parse(RAW, ENGINE.parameters({}))


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (b"E kl_divergence: failed to open /b/l", "not a complete file of logits"),
        (
            b"E kl_divergence: /b/l does not look like a file containing log-probabilities",
            "not a complete file of logits",
        ),
        (
            b"E kl_divergence: failed reading evaluation tokens from /b/l",
            "not a complete file of logits",
        ),
        (
            b"E kl_divergence: failed reading log-probs for chunk 1",
            "not a complete file of logits",
        ),
        (
            (
                b"E kl_divergence: inconsistent vocabulary (50000 vs 49152)\n"
                b"E kl_divergence: failed reading log-probs for chunk 3"
            ),
            "the vocabularies of this model",
        ),
        (
            (
                b"E kl_divergence: l has been computed with 512, while the current context is 64."
                b" Increase it with -c and retry"
            ),
            "longer than the context",
        ),
    ],
)
def test_wrong_logits_fail_though_the_program_ends_well(said: bytes, means: str) -> None:
    """All that llama.cpp said of such files, each with status 0."""
    failure = ENGINE.diagnose(DONE, RawOutput(b"\n", said + b"\n", b""))
    assert isinstance(failure, ProgramFailed)
    assert means in failure.message
    assert failure.hint


def test_too_few_tokens_give_no_statistics() -> None:
    stdout = RAW.stdout.partition(b"\n=====")[0]
    assert isinstance(ENGINE.diagnose(DONE, RawOutput(stdout, RAW.stderr, b"")), IntegrityError)
    stderr = RAW.stderr.replace(b"over 4 chunks", b"over 1 chunks")
    failure = ENGINE.diagnose(DONE, RawOutput(stdout, stderr, b""))
    assert isinstance(failure, ProgramFailed)
    assert "fewer than 100 tokens" in failure.message


def test_the_command_of_each_version() -> None:
    inputs = Inputs("/b/p", "/b/m.gguf", files={"base_logits": "/b/l"})
    common = "/b/p -m /b/m.gguf --kl-divergence --kl-divergence-base /b/l -c 512 -b 2048 -ub 512"
    common += " -ctk f16 -ctv f16"
    asked = ENGINE.parameters({})
    assert " ".join(ENGINE.command(Tool("p", "classic"), asked, inputs)) == common
    argv = ENGINE.command(Tool("p", "new"), asked, inputs)
    assert " ".join(argv) == f"{common} -fit off --no-warmup"
    with pytest.raises(ConfigError, match="needs the logits of another model"):
        ENGINE.command(Tool("p", "new"), asked, Inputs("/b/p", "/b/m.gguf"))


def test_memory_counts_chunks_that_are_read_side_by_side() -> None:
    need = ENGINE.memory(ENGINE.parameters({"context": 512}), model(kv_bytes_per_position=10))
    assert need.kv_bytes == 10 * 2048
