"""Tokens that print nothing or are read together, at the ends of a completion and inside it.

Each is held against the times at which the tokens were made: a figure is within 1 % of what they
say, or withheld.
"""

import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_output import MS, Session, completion

from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check

ENGINE = LlamaCpp()
FORMS = ("common_perf", "llama_perf", "llama_print_timings")
#: By name: tokens that print nothing, tokens that are read with the next one.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "all seen": ((), ()),
    "silent first": ((0,), ()),
    "silent last": ((-1,), ()),
    "silent both": ((0, -1), ()),
    "silent inside": ((3,), ()),
    "merged first": ((), (0,)),
    "merged last": ((), (-2,)),
    "merged inside": ((), (4,)),
    "silent first, merged inside": ((0,), (4,)),
}


def times(count: int, step_ms: float = 100.0, **stalls_ms: float) -> list[float]:
    """When each token was made, with 2 % of jitter; ``s5``: how long the step to token 5 took."""
    noise = random.Random(count)
    steps = [step_ms * noise.uniform(0.98, 1.02) for _ in range(count - 1)]
    for name, took in stalls_ms.items():
        steps[int(name[1:]) - 1] = took
    return list(accumulate(steps, initial=1000.0))


def read(made: Session | RawOutput, count: int) -> tuple[TimingRecord, dict[str, Check]]:
    raw = made.raw() if isinstance(made, Session) else made
    parameters = LlamaCppParameters(tokens=count, ignore_eos=False)
    timing = ENGINE.parse(raw, parameters)
    return timing, {check.name: check for check in ENGINE.checks(timing, parameters)}


def true_or_withheld(timing: TimingRecord, made_ms: list[float], tolerance: float = 0.01) -> None:
    """Every figure agrees with when the tokens were made, or is not there."""
    mean_ns = (made_ms[-1] - made_ms[0]) * MS / (len(made_ms) - 1)
    if timing.tokens_per_second is not None:
        assert timing.tokens_per_second == pytest.approx(1e9 / mean_ns, rel=tolerance)
    if timing.mean_ns is not None:
        assert timing.mean_ns == pytest.approx(mean_ns, rel=tolerance)
    if timing.ttft_ns is not None:
        assert timing.ttft_ns == pytest.approx(made_ms[0] * MS, rel=tolerance)
    assert (timing.mean_ns is None) == (timing.tokens_per_second is None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("case", CASES)
def test_rates_are_true_whichever_token_is_not_seen(case: str, count: int, form: str) -> None:
    silent, together = ({index % count for index in indexes} for indexes in CASES[case])
    made_ms = times(count)
    raw = completion(made_ms, form=form, silent=silent, together=together)
    timing, checks = read(raw, count)
    true_or_withheld(timing, made_ms)
    assert timing.perf_format == form
    assert timing.tokens_per_second is not None  # the program's own words show what was not seen
    assert (timing.ttft_ns is None) == ("first" in case or "both" in case)
    assert checks["arrivals"].ok is (case == "all seen")
    assert checks["span"].ok is True
    if timing.p99_ns is not None:
        assert timing.p99_ns < 103 * MS


@pytest.mark.parametrize(
    ("case", "named"),
    [
        ("silent first", "7 arrivals for 8 tokens; not seen by themselves: the first"),
        ("silent last", "7 arrivals for 8 tokens; not seen by themselves: the last"),
        ("silent both", "6 arrivals for 8 tokens; not seen by themselves: the first, the last"),
        ("merged inside", "7 arrivals for 8 tokens; not seen by themselves: 1 in token_ns[3]"),
    ],
)
def test_what_was_not_seen_is_named(case: str, named: str) -> None:
    silent, together = ({index % 8 for index in indexes} for indexes in CASES[case])
    _, checks = read(completion(times(8), silent=silent, together=together), 8)
    assert checks["arrivals"].detail == named


@pytest.mark.parametrize("end", [0, 127])
def test_a_silent_end_hides_no_stall(end: int) -> None:
    made_ms = times(128, s40=700, s80=750)
    timing, _ = read(completion(made_ms, silent={end}), 128)
    assert timing.merged_chunks == ()
    assert timing.p99_ns is not None
    assert timing.p99_ns > 500 * MS


def test_a_silent_token_that_may_be_in_either_of_two_wide_gaps_leaves_them_both_open() -> None:
    made_ms = times(32, s20=230)
    timing, checks = read(completion(made_ms, silent={10}), 32)
    true_or_withheld(timing, made_ms)
    assert timing.tokens_per_second is not None
    assert timing.p50_ns == pytest.approx(100 * MS, rel=0.02)
    assert timing.p99_ns is None
    assert timing.merged_chunks == (9, 18)
    assert "1 in token_ns[9] or token_ns[18]" in checks["arrivals"].detail


@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("silent", [0, -1])
def test_an_end_of_which_nothing_is_known_gives_no_rate(count: int, silent: int) -> None:
    """The step that was not seen took longer, or standard error was read at the end alone."""
    index = silent % count
    slow = times(count, **{f"s{max(1, index)}": 145.0})
    timing, checks = read(completion(slow, silent={index}), count)
    true_or_withheld(timing, slow)
    if silent == 0:
        even = times(count)
        timing, checks = read(completion(even, silent={0}, ready_line=False), count)
        assert (timing.ttft_ns, timing.mean_ns, timing.tokens_per_second) == (None, None, None)
        assert "which is not known" in checks["arrivals"].detail
        assert timing.p50_ns == pytest.approx(100 * MS, rel=0.02)


def test_one_of_very_many_is_no_matter() -> None:
    """The program's own mean of all steps says so."""
    made_ms = times(200)
    timing, _ = read(completion(made_ms, silent={0}, ready_line=False), 200)
    true_or_withheld(timing, made_ms)
    assert timing.tokens_per_second is not None
    assert timing.ttft_ns is None


def test_one_of_very_many_may_hide_a_stall() -> None:
    """The step to the second token took 900 ms: without it the mean is 3.9 % too low."""
    made_ms = times(200, s1=900)
    timing, checks = read(completion(made_ms, silent={0}, ready_line=False), 200)
    assert (timing.ttft_ns, timing.mean_ns, timing.tokens_per_second) == (None, None, None)
    assert checks["arrivals"].detail.endswith("which is not known; no rate is given")


@pytest.mark.parametrize("count", [8, 32])
def test_the_end_of_the_text_in_one_piece_with_the_last_word_is_one_arrival(count: int) -> None:
    made_ms = times(count)
    timing, checks = read(completion(made_ms, together={count - 2}, end_of_text=True), count)
    true_or_withheld(timing, made_ms)
    assert timing.stop_reason == "end-of-generation"
    assert (timing.generated_tokens, timing.arrivals) == (count, count - 1)
    assert timing.tokens_per_second is not None
    assert min(timing.token_ns) > 90 * MS
    assert timing.merged_chunks == (count - 3,)
    assert checks["arrivals"].ok is False
    alone, checks = read(completion(made_ms, end_of_text=True), count)
    true_or_withheld(alone, made_ms)
    assert (alone.arrivals, checks["arrivals"].ok) == (count, True)


def test_a_silent_token_before_the_end_of_the_text_is_inside() -> None:
    made_ms = times(8)
    timing, _ = read(completion(made_ms, silent={6}, end_of_text=True), 8)
    true_or_withheld(timing, made_ms)
    assert timing.merged_chunks == (5,)
    assert timing.tokens_per_second is not None


@given(
    count=st.integers(2, 60),
    seed=st.integers(0, 10**6),
    unseen=st.sets(st.integers(0, 59), max_size=4),
    together=st.sets(st.integers(0, 57), max_size=2),
    stalls=st.dictionaries(st.integers(1, 59), st.floats(1.2, 9), max_size=2),
    end_of_text=st.booleans(),
    ready=st.booleans(),
)
def test_no_figure_is_wrong_whatever_is_not_seen(
    *,
    count: int,
    seed: int,
    unseen: set[int],
    together: set[int],
    stalls: dict[int, float],
    end_of_text: bool,
    ready: bool,
) -> None:
    noise = random.Random(seed)
    steps = [100 * stalls.get(n, 1) * noise.uniform(0.97, 1.03) for n in range(1, count)]
    made_ms = list(accumulate(steps, initial=1000.0))
    made = completion(
        made_ms, silent=unseen, together=together, end_of_text=end_of_text, ready_line=ready
    )
    if not bytes(made.stdout).strip():
        return
    timing, checks = read(made, count)
    true_or_withheld(timing, made_ms, 0.0101)
    if timing.arrivals == count:
        assert timing.tokens_per_second is not None or count == 1
    else:
        assert checks["arrivals"].ok is False
