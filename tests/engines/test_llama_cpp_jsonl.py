"""Completions with ``--log-jsonl``: the program stamps its tokens, and the agent does."""

from itertools import accumulate
from pathlib import Path

import pytest
from llama_output import MS, Session, completion, completion_jsonl, entry

from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.engines.progress import Seen
from labctl.errors import ConfigError, IntegrityError, OutputNotUnderstood, ProgramFailed
from labctl.records.telemetry import StreamSoFar
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check, JobStatus

ENGINE = LlamaCpp()
NEW, CLASSIC = Tool("llama-completion", "completion"), Tool("llama-cli", "classic")
RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp"
MADE = [1000.0 + 100 * number for number in range(9)]


def parameters(tokens: int = 9, *, log_jsonl: bool = True) -> LlamaCppParameters:
    return LlamaCppParameters(tokens=tokens, ignore_eos=False, log_jsonl=log_jsonl)


def read(made: Session | RawOutput, tokens: int = 9) -> tuple[TimingRecord, dict[str, Check]]:
    raw = made.raw() if isinstance(made, Session) else made
    timing = ENGINE.parse(raw, parameters(tokens))
    return timing, {check.name: check for check in ENGINE.checks(timing, parameters(tokens))}


def ended(status: int) -> JobStatus:
    return JobStatus(
        outcome="exited", exit_status=status, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
        stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1,
    )  # fmt: skip


def test_only_versions_that_know_it_are_asked_for_it() -> None:
    inputs = Inputs("/b/p", "/b/m.gguf", "hello")
    assert "--log-jsonl" in ENGINE.command(NEW, parameters(), inputs)
    assert "--log-jsonl" not in ENGINE.command(NEW, parameters(log_jsonl=False), inputs)
    with pytest.raises(
        ConfigError, match=r"log_jsonl: this version of llama.cpp has no --log-jsonl"
    ):
        ENGINE.command(CLASSIC, parameters(), inputs)


def test_it_is_a_condition_and_without_it_old_records_compare() -> None:
    assert ENGINE.comparability(NEW, parameters())["log_jsonl"] is True
    assert ENGINE.comparability(NEW, parameters(log_jsonl=False))["log_jsonl"] is False


def test_the_figures_are_those_of_the_agent_as_from_plain_output() -> None:
    timing, found = read(completion_jsonl(MADE))
    plain = ENGINE.parse(completion(MADE).raw(), parameters(log_jsonl=False))
    assert plain.clocks is None
    assert timing.model_copy(update={"clocks": None}) == plain
    assert {name: check.ok for name, check in found.items()} == {
        "tokens": None, "arrivals": True, "span": True, "clocks": True,
    }  # fmt: skip
    assert "agent 800 ms, program 800 ms" in found["clocks"].detail


def test_what_really_was_printed() -> None:
    timing, found = read(RawOutput.read(RECORDED / "completion-jsonl"), 12)
    assert (timing.generated_tokens, timing.arrivals, timing.stop_reason) == (12, 12, "limit")
    assert timing.perf_format == "common_perf"
    assert timing.clocks is not None
    assert len(timing.clocks.late_ns) == 12
    assert timing.span is not None
    assert 0.98 <= timing.span.ratio <= 1.01
    assert found["clocks"].ok is not None


def test_stamps_that_are_late_at_an_end_are_named() -> None:
    timing, found = read(completion_jsonl(MADE, late_ms={8: 33}))
    assert timing.tokens_per_second == pytest.approx(8 / 0.833)
    assert not found["clocks"].ok
    assert "agent 833 ms, program 800 ms" in found["clocks"].detail
    assert "the last token's stamp is 33.0 ms late" in found["clocks"].detail
    first = read(completion_jsonl(MADE, late_ms={0: 20}))[1]["clocks"]
    assert not first.ok
    assert "the first token's stamp is 20.0 ms late" in first.detail


@pytest.mark.parametrize(("late_ms", "ok"), [(0.9, True), (1.1, False)])
def test_one_late_stamp_inside_moves_two_gaps(late_ms: float, ok: bool) -> None:
    found = read(completion_jsonl(MADE, late_ms={4: late_ms}))[1]["clocks"]
    assert found.ok is ok
    assert "latest stamp: token 5, by " in found.detail
    assert f"{0 if ok else 1} of 9 late by more than 1.00 ms" in found.detail


def test_of_slow_tokens_one_hundredth_of_a_token_is_permitted() -> None:
    slow = [1000 + 400 * number for number in range(9)]
    assert read(completion_jsonl(slow, late_ms={4: 3.9}))[1]["clocks"].ok
    assert not read(completion_jsonl(slow, late_ms={4: 4.1}))[1]["clocks"].ok


def test_tokens_that_were_read_together_are_counted_where_they_are() -> None:
    timing, found = read(completion_jsonl(MADE, together=(0, 4)))
    assert (timing.generated_tokens, timing.arrivals) == (9, 7)
    assert (timing.unseen_first, timing.unseen_last, timing.ttft_ns) == (1, 0, None)
    assert timing.merged_chunks == (2,)
    assert timing.mean_ns == 100 * MS
    assert not found["clocks"].ok
    assert "the first token was read together with the next one" in found["clocks"].detail
    last = read(completion_jsonl(MADE, together=(7,)))[1]["clocks"]
    assert "the last token was read together with the one before" in last.detail


def test_a_token_without_text_is_seen() -> None:
    timing, found = read(completion_jsonl(MADE, silent=(0, 3, 8)))
    assert timing.arrivals == timing.generated_tokens == 9
    assert timing.token_ns == (100 * MS,) * 8
    assert found["clocks"].ok


def test_the_end_of_the_text_is_one_token() -> None:
    timing, _ = read(completion_jsonl(MADE, end_of_text=True), 20)
    assert timing.stop_reason == "end-of-generation"
    assert timing.arrivals == timing.generated_tokens == 9


@pytest.mark.parametrize("step_ms", [50, -5000])
def test_a_wall_clock_that_was_set_is_told(step_ms: float) -> None:
    timing, found = read(completion_jsonl(MADE, step_ms=step_ms))
    assert timing.mean_ns == 100 * MS
    assert not found["clocks"].ok
    assert ("was set" in found["clocks"].detail) == (step_ms < 0)


def test_one_token_has_no_span_to_compare() -> None:
    assert read(completion_jsonl([1000.0]), 1)[1]["clocks"].ok is None


def test_other_output_is_refused() -> None:
    for other in (b"a warning\n", b'{"type":"log","time":1}\n', b"[1]\n"):
        made = completion_jsonl(MADE)
        made.out(9000, other)
        with pytest.raises(OutputNotUnderstood, match="not a log entry"):
            read(made)
    with pytest.raises(OutputNotUnderstood, match="not a log entry"):
        read(completion(MADE))


def test_its_failures_are_recognised() -> None:
    made = Session()
    made.out(5, entry(5, "error", "failed to open GGUF file 'm' (No such file or directory)\n"))
    failure = ENGINE.diagnose(ended(1), made.raw())
    assert isinstance(failure, ProgramFailed)
    assert "the model is not on the board" in failure.message


@pytest.mark.parametrize("upto", [b'"msg":" word"', b"common_perf_print:        eval time"])
def test_a_log_that_was_not_printed_to_its_end_is_no_result(upto: bytes) -> None:
    raw = completion_jsonl(MADE).raw()
    assert ENGINE.diagnose(ended(0), raw) is None
    cut = raw.stdout[: raw.stdout.index(upto) + 3]
    failure = ENGINE.diagnose(ended(0), RawOutput(cut, b"", b""))
    assert isinstance(failure, IntegrityError)


@pytest.mark.parametrize(
    ("lines", "phase", "done"),
    [(0, "loading", 0), (7, "loading", 0), (11, "reading the prompt", 0), (14, "generating", 3),
     (33, "generating", 9)],
)  # fmt: skip
def test_progress_counts_the_lines_after_the_prompt(lines: int, phase: str, done: int) -> None:
    nothing = StreamSoFar(pieces=0, lines=0, bytes=0)
    stdout = StreamSoFar(pieces=lines, lines=lines, bytes=99 * lines, first_ns=1, last_ns=2)
    progress = ENGINE.progress(Seen(stdout, nothing), parameters())
    assert (progress.phase, progress.done, progress.total) == (phase, done, 9)
    assert progress.per_second is None  # its first line is none of a token


def test_the_lines_before_the_first_token_are_as_many_as_progress_takes_off() -> None:
    lines = (RECORDED / "completion-jsonl" / "stdout").read_bytes().splitlines()
    first = next(n for n, line in enumerate(lines) if b'"level":"none"' in line)
    nothing = StreamSoFar(pieces=0, lines=0, bytes=0)
    seen = StreamSoFar(pieces=9, lines=first + 1, bytes=99)
    assert ENGINE.progress(Seen(seen, nothing), parameters()).done == 1


def test_gaps_of_both_clocks_are_in_the_record() -> None:
    made = list(accumulate([100.0, 50, 100, 100], initial=1000.0))
    timing, _ = read(completion_jsonl(made, late_ms={2: 2}), 5)
    assert timing.clocks is not None
    assert timing.clocks.program_ns == (100 * MS, 50 * MS, 100 * MS, 100 * MS)
    assert timing.clocks.late_ns == (0, 0, 2 * MS, 0, 0)
    assert timing.token_ns == (100 * MS, 52 * MS, 98 * MS, 100 * MS)
