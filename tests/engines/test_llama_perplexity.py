"""llama-perplexity, with what the version of 2026 printed for the tiny model."""

from pathlib import Path

import pytest
from records_made import model

from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.errors import ConfigError, IntegrityError, OutputNotUnderstood, ProgramFailed
from labctl.records.trial import JobStatus

ENGINE = LlamaPerplexity()
RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "perplexity"
RAW = RawOutput.read(RECORDED)
DEFAULTS = ENGINE.parameters({})
DONE = JobStatus(
    outcome="exited", exit_status=0, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
    stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1,
)  # fmt: skip


def test_the_estimate_its_error_and_the_chunks() -> None:
    (measure,) = ENGINE.parse(RAW, DEFAULTS).measures
    assert (measure.name, measure.value, measure.error) == ("perplexity", 908.4609, 75.68778)
    assert measure.values == (1101.8905, 913.3488, 875.4556, 908.4609)
    assert ENGINE.diagnose(DONE, RAW) is None


def test_older_versions_print_all_on_stdout() -> None:
    merged = RawOutput(RAW.stdout + RAW.stderr, b"", b"")
    assert ENGINE.parse(merged, DEFAULTS) == ENGINE.parse(RAW, DEFAULTS)


@pytest.mark.parametrize(("chunks", "ok"), [(4, True), (5, False), (None, None)])
def test_chunks_are_counted(chunks: int | None, ok: bool | None) -> None:
    asked = ENGINE.parameters({} if chunks is None else {"chunks": chunks})
    (check,) = ENGINE.checks(ENGINE.parse(RAW, asked), asked)
    assert check.ok is ok


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Final estimate", b"Last estimate"),
        (b"PPL = 908.4609", b"PPL = 908.4610"),
        (b"[3]", b"[4]"),
        (b"[1]1101.8905", b"[1]nan"),
        (b"[2]913.3488", b"[2]0.3488"),
        (b"[1]1101.8905,[2]913.3488,[3]875.4556,[4]908.4609,", b""),
    ],
)
def test_other_output_is_refused(old: bytes, new: bytes) -> None:
    assert old in RAW.stdout + RAW.stderr
    changed = RawOutput(RAW.stdout.replace(old, new), RAW.stderr.replace(old, new), b"")
    with pytest.raises(OutputNotUnderstood, match="llama-perplexity's output is not understood"):
        ENGINE.parse(changed, DEFAULTS)


def test_more_chunks_than_asked_are_refused() -> None:
    with pytest.raises(OutputNotUnderstood, match="4 chunks, 3 were requested"):
        ENGINE.parse(RAW, ENGINE.parameters({"chunks": 3}))


def test_a_text_too_short_fails_though_the_program_ends_well() -> None:
    failure = ENGINE.diagnose(
        DONE, RawOutput(b"", (RECORDED / "too-short.stderr").read_bytes(), b"")
    )
    assert isinstance(failure, ProgramFailed)
    assert "the text is too short" in failure.message


@pytest.mark.parametrize("kept", [b"[1]1101.8905,[2]913.3488,", b"", RAW.stdout])
def test_an_estimate_that_was_lost_at_the_end_is_no_result_of_the_model(kept: bytes) -> None:
    """The program's log is printed by a thread that it does not wait for."""
    stderr = RAW.stderr.partition(b"Final estimate")[0]
    failure = ENGINE.diagnose(DONE, RawOutput(kept, stderr, b""))
    assert isinstance(failure, IntegrityError)
    assert "does not flush its log" in failure.message


@pytest.mark.parametrize(
    ("stdout", "log", "words"),
    [
        (b"[1]nan,[2]nan,", b"E Unexpected negative standard deviation of log(prob)", "chunk 1 on"),
        (b"[1]9.5,[2]-nan,", b"Unexpected negative standard deviation of log(prob)", "chunk 2 on"),
        (b"[1]nan,", b"Final estimate: PPL = nan +/- nan", "from chunk 1 on"),
        (b"", b"Final estimate: PPL = -nan +/- -nan", "are NaN"),
    ],
)
def test_a_model_that_gives_no_numbers_is_said_to_be_broken(
    stdout: bytes, log: bytes, words: str
) -> None:
    stderr = RAW.stderr.partition(b"Final estimate")[0] + log + b"\n"
    for raw in (RawOutput(stdout, stderr, b""), RawOutput(stdout + stderr, b"", b"")):
        failure = ENGINE.diagnose(DONE, raw)
        assert isinstance(failure, ProgramFailed)
        assert "NaN" in failure.message
        assert words in failure.message
        assert "quantization is most likely broken" in str(failure.hint)


def test_a_line_of_a_log_is_not_called_nan() -> None:
    for line in (b"[1]INFO: loaded", b"[42]infer: 3 threads", b"[7]Nano board"):
        assert ENGINE.diagnose(DONE, RawOutput(RAW.stdout, line + b"\n" + RAW.stderr, b"")) is None


def test_an_unread_text_is_not_called_nan() -> None:
    raw = RawOutput(b"", b"error: failed to open file '/d/text'\n", b"")
    failure = ENGINE.diagnose(DONE, raw)
    assert failure is not None
    assert "the text was not read" in failure.message
    assert "NaN" not in failure.message


def test_output_of_another_form_is_the_programs_fault() -> None:
    raw = RawOutput(b"perplexity=908\n", b"computing\n", b"")
    assert ENGINE.diagnose(DONE, raw) is None
    with pytest.raises(OutputNotUnderstood):
        ENGINE.parse(raw, DEFAULTS)


def argv(profile: str, **parameters: object) -> str:
    inputs = Inputs("/b/p", "/b/m.gguf", files={"text": "/b/t"})
    tool = Tool("llama-perplexity", profile)
    return " ".join(ENGINE.command(tool, ENGINE.parameters(parameters), inputs))


def test_the_command_of_each_version() -> None:
    common = "/b/p -m /b/m.gguf -f /b/t --no-escape -c 512 --chunks -1 -b 2048 -ub 512"
    common += " -ctk f16 -ctv f16 -t 4"
    assert argv("classic", threads=4) == common
    assert argv("new", threads=4) == f"{common} -fit off --no-warmup"
    assert "-c 64 --chunks 3" in argv("new", context=64, chunks=3)
    assert "--no-repack" in argv("classic", repack=False)


def test_it_needs_a_text() -> None:
    assert ENGINE.files == ("text",)
    with pytest.raises(ConfigError, match="needs a text"):
        ENGINE.command(Tool("llama-perplexity", "new"), DEFAULTS, Inputs("/b/p", "/b/m.gguf"))


def test_memory_counts_chunks_that_are_read_side_by_side() -> None:
    need = ENGINE.memory(ENGINE.parameters({"context": 512}), model(kv_bytes_per_position=10))
    assert need.kv_bytes == 10 * 2048
