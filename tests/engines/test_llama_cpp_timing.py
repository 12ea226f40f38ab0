import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_output import MS, Session, perf_new, session

from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.errors import OutputNotUnderstood
from labctl.records.timing import TimingRecord

ENGINE = LlamaCpp()
WORDS = [b" the", b" meaning", b" of", b" life", b" is", b" \xf0\x9f", b"\x92\x9b", b"\n", b"\n\n"]


def read(made: Session, *, tokens: int = 9, ignore_eos: bool = True) -> TimingRecord:
    return ENGINE.parse(made.raw(), parameters(tokens, ignore_eos=ignore_eos))


def parameters(tokens: int, *, ignore_eos: bool = True) -> LlamaCppParameters:
    return LlamaCppParameters(tokens=tokens, ignore_eos=ignore_eos)


def verdicts(timing: TimingRecord, tokens: int = 9) -> dict[str, bool | None]:
    return {check.name: check.ok for check in ENGINE.checks(timing, parameters(tokens))}


def test_every_token_has_its_time() -> None:
    timing = read(session(WORDS))
    assert timing.generated_tokens == timing.arrivals == 9
    assert timing.ttft_ns == 1000 * MS
    assert timing.token_ns == (100 * MS,) * 8
    assert (timing.p50_ns, timing.p90_ns, timing.p99_ns) == (100 * MS,) * 3
    assert timing.mean_ns == 100 * MS
    assert timing.tokens_per_second == pytest.approx(10)
    assert timing.stop_reason == "limit"
    assert timing.merged_chunks == ()
    assert verdicts(timing) == {"tokens": True, "arrivals": True, "span": True}


@pytest.mark.parametrize(
    ("said", "locked"),
    [
        (b"", True),
        (b"0.00.206.267 W warning: failed to mlock 318-byte buffer: Out of memory\nTry", False),
        (b"warning: mlock not supported on this system\n", False),
    ],
)
def test_weights_that_could_not_be_locked_are_told(said: bytes, locked: bool) -> None:
    made = session(WORDS)
    made.stderr[:0] = said
    raw = RawOutput(bytes(made.stdout), bytes(made.stderr), made.raw().timeline)
    asked = LlamaCppParameters(tokens=9, mlock=True)
    timing = ENGINE.parse(raw, asked)
    assert timing.memory_locked is locked
    assert {c.name: c.ok for c in ENGINE.checks(timing, asked)}["mlock"] is locked
    # Where it was not asked for, nothing is said of it.
    assert ENGINE.parse(raw, parameters(9)).memory_locked is None
    assert "mlock" not in verdicts(ENGINE.parse(raw, parameters(9)))


def test_last_token_may_come_with_the_final_newlines() -> None:
    made = Session()
    for number, word in enumerate([*WORDS[:-1], WORDS[-1] + b"\n\n"]):
        made.out(1000 + 100 * number, word)
    made.err(2000, session(WORDS).stderr)
    assert read(made).token_ns == (100 * MS,) * 8


def test_merged_tokens_are_flagged_and_kept_out_of_the_percentiles() -> None:
    made = Session()
    made.ready(500)
    times = [1000, 1100, 1200, 1500, 1600, 1700]
    words = [b"a", b"b", b"c", b"def", b"g", b"h"]
    for at, word in zip(times, words, strict=True):
        made.out(at, word)
    made.out(1701, b"\n\n")
    perf = perf_new(prompt_ms=500, prompt_tokens=7, eval_ms=690, runs=7, total_ms=1200)
    made.err(1702, perf.encode())
    timing = read(made, tokens=8)
    assert (timing.generated_tokens, timing.arrivals) == (8, 6)
    assert timing.merged_chunks == (2,)
    assert timing.p99_ns == 100 * MS
    assert timing.mean_ns == 100 * MS  # over all tokens, merged or not
    assert verdicts(timing, 8) == {"tokens": True, "arrivals": False, "span": True}


def test_too_few_arrivals_give_no_percentiles() -> None:
    timing = read(session([b"abc", b"defghi"], token_ms=0.2, tokens=9))
    assert (timing.p50_ns, timing.p99_ns) == (None, None)
    assert timing.span is not None
    assert not timing.span.applies
    assert verdicts(timing)["span"] is None


def test_end_of_text_is_the_arrival_of_the_last_sampled_token() -> None:
    made = session([*WORDS[:4], b" [end of text]\n"])
    timing = read(made, ignore_eos=False)
    assert timing.stop_reason == "end-of-generation"
    assert timing.generated_tokens == timing.arrivals == 5
    assert timing.token_ns == (100 * MS,) * 4


def test_end_of_text_joined_to_the_newlines_or_to_a_word() -> None:
    joined = session([*WORDS[:4], b" [end of text]\n\n\n"], tail=b"")
    assert read(joined, ignore_eos=False).arrivals == 5
    late = Session()
    late.ready(500)
    for at, text in [(1000, b"a"), (1100, b"b"), (1300, b"c [end of text]\n\n\n")]:
        late.out(at, text)
    perf = perf_new(prompt_ms=500, prompt_tokens=7, eval_ms=300, runs=3, total_ms=801)
    late.err(1300, perf.encode())
    timing = read(late, ignore_eos=False)
    assert (timing.generated_tokens, timing.arrivals) == (4, 3)
    assert timing.merged_chunks == (1,)
    assert timing.mean_ns == timing.p50_ns == 100 * MS
    assert timing.stop_reason == "end-of-generation"


def test_a_full_context_is_told() -> None:
    made = session([b"x"] * 57)  # behind a prompt of 7
    timing = ENGINE.parse(made.raw(), LlamaCppParameters(tokens=59, context=64))
    assert timing.stop_reason == "context-full"
    assert verdicts(timing)["tokens"] is False


def test_one_token_has_a_first_time_and_no_other() -> None:
    made = Session()
    made.out(700, b" the")
    made.out(700, b"\n\n")
    perf = perf_new(prompt_ms=500, prompt_tokens=7, eval_ms=0, runs=1, total_ms=501)
    made.err(701, perf.encode())
    timing = read(made, tokens=1)
    assert timing.generated_tokens == 1
    assert timing.ttft_ns == 700 * MS
    assert timing.token_ns == ()
    assert (timing.p50_ns, timing.mean_ns, timing.tokens_per_second, timing.span) == (None,) * 4


def test_clocks_that_disagree_are_told() -> None:
    made = session(WORDS, token_ms=110)
    made.stderr[:] = session(WORDS, token_ms=100).stderr
    timing = read(made)
    assert timing.span is not None
    assert timing.span.ratio == pytest.approx(880 / 801, rel=1e-3)
    assert verdicts(timing)["span"] is False


def test_more_pieces_than_tokens_are_not_believed() -> None:
    with pytest.raises(OutputNotUnderstood, match=r"9 pieces.*4 generated tokens"):
        read(session(WORDS, tokens=4))


def test_output_without_its_end_is_not_believed() -> None:
    with pytest.raises(OutputNotUnderstood, match="two newlines"):
        read(session(WORDS[:7], tail=b"?"), tokens=7)


def test_no_text_at_all_is_not_believed() -> None:
    made = Session()
    made.out(10, b"\n\n")
    made.err(11, session(WORDS).stderr)
    with pytest.raises(OutputNotUnderstood, match="no generated text"):
        read(made)


def test_a_timeline_of_other_output_is_not_believed() -> None:
    raw = session(WORDS).raw()
    other = RawOutput(raw.stdout + b"x\n\n", raw.stderr, raw.timeline)
    with pytest.raises(OutputNotUnderstood, match="covers"):
        ENGINE.parse(other, parameters(9))


@given(
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=6)), min_size=1),
    st.integers(1, 200),
    st.sampled_from([b"\n\n", b" [end of text]\n\n\n"]),
)
def test_any_output_is_read_consistently_or_refused(
    pieces: list[tuple[int, bytes]], tokens: int, tail: bytes
) -> None:
    made, clock = Session(), 0
    for wait, text in pieces:
        clock += wait
        made.out(clock, text)
    made.out(clock, tail)
    runs = max(1, tokens - 1)
    perf = perf_new(prompt_ms=5, prompt_tokens=7, eval_ms=tokens, runs=runs, total_ms=900)
    made.err(clock, perf.encode())
    try:
        timing = read(made, tokens=200)
    except OutputNotUnderstood:
        return
    assert timing.arrivals is not None
    assert timing.generated_tokens is not None
    assert 0 < timing.arrivals <= timing.generated_tokens
    assert len(timing.token_ns) == timing.arrivals - 1
    assert all(index < len(timing.token_ns) for index in timing.merged_chunks)
    if timing.ttft_ns is None:
        assert timing.arrivals < timing.generated_tokens
    else:
        assert timing.ttft_ns == pieces[0][0] * MS


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_noise_is_refused(stdout: bytes, stderr: bytes, timeline: bytes) -> None:
    with pytest.raises(OutputNotUnderstood):
        ENGINE.parse(RawOutput(stdout, stderr, timeline), parameters(9))
