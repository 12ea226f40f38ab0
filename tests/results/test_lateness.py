"""What late stamps make of a trial."""

from typing import Any

import pytest
from records_made import timing

from labctl.records.board import Execution
from labctl.records.timing import BenchTest, ClockCheck, TimingRecord
from labctl.records.trial import Check, JobStatus
from labctl.results.timing_checks import judged_on, stamped, stamps_check

MS = 1_000_000


def job(**changes: Any) -> JobStatus:
    values: dict[str, Any] = {
        "outcome": "exited", "exit_status": 0, "start_mono_ns": 0, "end_mono_ns": 10**10,
        "wall_ns": 10**10, "stdout_bytes": 0, "stderr_bytes": 0, "boot_id": "b", "epoch": 1,
        "longest_stamp_pause_ns": 30_000, "stamp_scheduler": "fifo",
        "stamp_wait_ns": 200_000, "longest_stamp_wait_ns": 50_000,
    }  # fmt: skip
    return JobStatus(**{**values, **changes})


@pytest.mark.parametrize(
    ("seen", "ok"),
    [
        pytest.param({}, True, id="a quiet board"),
        pytest.param({"stamp_wait_ns": 33 * MS}, False, id="33 ms of a span of 3 s"),
        pytest.param({"stamp_wait_ns": 29 * MS}, True, id="just below 1 %"),
        pytest.param(
            {"longest_pause_ns": 1000 * MS}, True, id="it was stopped while the program was loading"
        ),
        pytest.param({"longest_stamp_pause_ns": 40 * MS}, False, id="it was stopped for a token"),
    ],
)
def test_stamps_that_may_be_late_by_more_than_one_per_cent_fail(
    seen: dict[str, int], ok: bool
) -> None:
    (check,) = stamps_check(timing([100] * 30), job(**seen))
    assert (check.name, check.ok) == ("stamps", ok)


def test_the_check_says_how_late_and_by_which_priority() -> None:
    (check,) = stamps_check(timing([100] * 30), job(stamp_wait_ns=33 * MS, stamp_scheduler="other"))
    assert check.detail == (
        "waited 33.0 ms for a CPU, 1.10% of the time from first to last token; at most 50.0 µs at"
        " once, and 30.0 µs of other work; without real-time priority"
    )


def test_what_is_not_counted_is_not_judged() -> None:
    """Kernels that do not count a thread's waits."""
    (check,) = stamps_check(timing([100] * 30), job(stamp_wait_ns=None))
    assert (check.ok, check.detail) == (
        None,
        "not judged: this kernel does not count how long a thread waits for a CPU",
    )
    assert stamps_check(timing([100] * 30), job(stamp_wait_ns=None, stamp_scheduler=None)) == ()
    assert stamps_check(TimingRecord(), job()) == ()


@pytest.mark.parametrize("execution", Execution)
@pytest.mark.parametrize("name", ["stamps", "span", "clocks", "frequency"])
def test_a_busy_host_fails_no_check_of_an_emulated_board(execution: Execution, name: str) -> None:
    """Lateness there is the emulator's host's; on boards and for this host itself it counts."""
    late = Check(name=name, ok=False, detail="waited 33.0 ms")
    count = Check(name="tokens", ok=False, detail="3 of 8 generated")
    good = Check(name=name, ok=True, detail="waited 0 ms")
    open_ = late.model_copy(update={"ok": None, "detail": "waited 33.0 ms; not judged: emulated"})
    found = judged_on(execution, (count, good, late))
    assert found == (count, good, open_ if execution is Execution.EMULATED else late)


@pytest.mark.parametrize(
    ("gaps", "merged", "seen", "kept"),
    [
        pytest.param(100, (), {}, True, id="a hundred gaps in time"),
        pytest.param(99, (), {}, False, id="fewer than a hundred"),
        pytest.param(100, (3,), {}, False, id="one of them holds two tokens"),
        pytest.param(100, (), {"longest_stamp_wait_ns": 3 * MS}, False, id="late by 3 % of it"),
        pytest.param(100, (), {"longest_stamp_pause_ns": 3 * MS}, False, id="busy for 3 % of it"),
        pytest.param(100, (), {"longest_pause_ns": 3 * MS}, True, id="busy only while loading"),
        pytest.param(100, (), {"longest_stamp_wait_ns": MS}, True, id="late by 1 %"),
        pytest.param(100, (), {"longest_stamp_wait_ns": None}, True, id="not counted"),
    ],
)
def test_a_99th_percentile_needs_gaps_enough_and_stamps_in_time(
    gaps: int, merged: tuple[int, ...], seen: dict[str, int], kept: bool
) -> None:
    before = timing([100] * gaps, p90_ns=100 * MS, p99_ns=100 * MS, merged_chunks=merged)
    after = stamped(before, job(**seen))
    assert after.p99_ns == (100 * MS if kept else None)
    assert after.p90_ns == 100 * MS


def test_a_record_says_whose_clock_its_tokens_are_from() -> None:
    assert stamped(timing([100] * 4), job()).token_clock == "agent"
    bench = BenchTest.of(prompt_tokens=0, generated_tokens=8, depth=0, samples_ns=[8 * MS])
    assert stamped(TimingRecord(tests=(bench,)), job()).token_clock == "program"
    assert stamped(TimingRecord(), job()).token_clock is None


@pytest.mark.parametrize(("late_ms", "kept"), [(1, True), (3, False)])
def test_what_the_programs_own_stamps_show_to_be_late_counts_too(late_ms: int, kept: bool) -> None:
    clocks = ClockCheck(program_ns=(100 * MS,) * 100, late_ns=(*[0] * 50, late_ms * MS, *[0] * 50))
    seen = timing([100] * 100).model_copy(update={"clocks": clocks, "p99_ns": 100 * MS})
    assert (stamped(seen, job()).p99_ns is not None) is kept
