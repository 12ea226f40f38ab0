"""Checks of a trial's token times, which decide which of its times are valid.

``stamps``: possible lateness of time stamps; decides whether the 99th percentile is given.
``drift``: a single number cannot describe a rate that changes during a trial.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from labctl.records.board import BoardFacts, Execution
from labctl.records.timing import TimingRecord, TokenClock
from labctl.records.trial import NOT_JUDGED, Check, JobStatus
from labctl.stats.describe import MAD_TO_SIGMA, median
from labctl.units import duration

#: Tolerated share of the time from first to last token, or of the 99th percentile of its gaps.
_LATE = 0.01
_PRIORITY = {"fifo": "real-time priority", "other": "without real-time priority"}
#: With fewer gaps, the 99th percentile is one of the two longest gaps, or between them.
_FEWEST_FOR_P99 = 100
#: Checks that fail for late stamps or slow CPUs: on an emulated board, the host is the cause.
_OF_THE_HOST = frozenset({"stamps", "span", "clocks", "frequency"})


def latest_ns(job: JobStatus) -> int | None:
    """Return the largest lateness of one stamp; None if the agent does not report it.

    The agent waited for a CPU, did other work, or was stopped. The kernel does not count
    interrupts, or the time in which a CPU wakes from deep sleep.
    """
    waited = job.longest_stamp_wait_ns
    if waited is None:
        return None
    return max(waited, job.longest_stamp_pause_ns or 0)


def stamps_check(timing: TimingRecord, job: JobStatus) -> tuple[Check, ...]:
    """Compare the possible lateness of stamps with the time that they measure.

    No check if there are no gaps, or the agent did not report the lateness.
    """
    span = sum(timing.token_ns)
    waited, paused = job.stamp_wait_ns, job.longest_stamp_pause_ns
    if not span or job.stamp_scheduler is None or paused is None:
        return ()
    if waited is None:
        detail = f"{NOT_JUDGED}this kernel does not count how long a thread waits for a CPU"
        return (Check(name="stamps", ok=None, detail=detail),)
    ok = waited <= _LATE * span and paused <= _LATE * span
    detail = (
        f"waited {duration(waited)} for a CPU, {waited / span:.2%} of the time from first to last"
        f" token; at most {duration(job.longest_stamp_wait_ns)} at once, and {duration(paused)} of"
        f" other work; {_PRIORITY[job.stamp_scheduler]}"
    )
    return (Check(name="stamps", ok=ok, detail=detail),)


def judged_on(execution: Execution, checks: Sequence[Check]) -> tuple[Check, ...]:
    """Leave failed checks of stamps and clocks open for an emulated board: they depend on its host.

    A busy host of an emulator is not a fault of the board or the program.
    """
    if execution is not Execution.EMULATED:
        return tuple(checks)
    return tuple(
        check.model_copy(update={"ok": None, "detail": f"{check.detail}; {NOT_JUDGED}{execution}"})
        if check.ok is False and check.name in _OF_THE_HOST
        else check
        for check in checks
    )


def stamped(timing: TimingRecord, job: JobStatus) -> TimingRecord:
    """Add the clock that timed the tokens; remove an unreliable 99th percentile.

    The percentile needs enough gaps, and stamps that were late by at most 1 % of it.
    """
    clock = _clock(timing)
    p99 = timing.p99_ns
    if p99 is not None:
        late = latest_ns(job)
        if timing.clocks is not None:
            late = max(late or 0, *timing.clocks.late_ns)
        few = len(timing.token_ns) - len(timing.merged_chunks) < _FEWEST_FOR_P99
        if few or (late is not None and late > _LATE * p99):
            p99 = None
    return timing.model_copy(update={"token_clock": clock, "p99_ns": p99})


def _clock(timing: TimingRecord) -> TokenClock | None:
    if timing.token_clock is not None:
        return timing.token_clock
    if timing.ttft_ns is not None or timing.token_ns:
        return "agent"
    return "program" if timing.tests or timing.tokens_per_second is not None else None


@dataclass(frozen=True)
class Gap:
    """The time before the token at a position; the first token has none."""

    position: int
    ns: int


@dataclass(frozen=True)
class Quarter:
    """Consecutive gaps."""

    gaps: Sequence[Gap]

    @property
    def median_ns(self) -> float:
        """Time of the middle gap."""
        return median([gap.ns for gap in self.gaps])

    @property
    def position(self) -> int:
        """Position of the middle token."""
        return self.gaps[len(self.gaps) // 2].position


def single_gaps(timing: TimingRecord) -> list[Gap]:
    """Return the gaps of single tokens; gaps of several tokens do not show a token's time."""
    merged = set(timing.merged_chunks)
    gaps = enumerate(timing.token_ns, 1)
    return [Gap(n, ns) for n, ns in gaps if ns > 0 and n - 1 not in merged]


def quarters(gaps: Sequence[Gap]) -> tuple[Quarter, Quarter] | None:
    """Return the first and the last quarter; None for fewer than four gaps."""
    size = len(gaps) // 4
    return (Quarter(gaps[:size]), Quarter(gaps[-size:])) if size else None


#: Above this difference of mean and median, or of last and first quarter, the rate is not steady.
_STEADY = 0.05
#: Minimum number of tokens for quarters.
_LEAST = 8
#: Number of standard errors above which a difference of quarters is not random. With 5 % noise from
#: token to token, 1 to 2 of 100 steady trials of 8 to 15 gaps are flagged.
_SURE = 3
#: Standard error of the median divided by the standard error of the mean, for normal values.
_MEDIAN_ERROR = math.sqrt(math.pi / 2)


def drift(
    timing: TimingRecord | None, facts: BoardFacts, bytes_at: Callable[[int], float] | None = None
) -> tuple[Check, ...]:
    """Check that tokens took the same time at the end as at the beginning.

    ``bytes_at``, if known, returns the bytes that the token at a position reads, which grow with
    the context. Times of an emulator are not judged; fewer than three single tokens are not
    checked.
    """
    if timing is None or not timing.mean_ns or not timing.p50_ns:
        return ()
    singles = single_gaps(timing)
    if len(singles) < 3:
        return ()
    off = timing.mean_ns / timing.p50_ns - 1
    detail = f"mean {duration(timing.mean_ns)}, median {duration(timing.p50_ns)} a token"
    steady = abs(off) <= _STEADY
    found = quarters(singles) if len(singles) >= _LEAST else None
    if found is not None:
        first, last = found
        grown = _grown(timing, first.position, last.position, bytes_at)
        changed = last.median_ns / first.median_ns
        error = _MEDIAN_ERROR * _noise(singles) * math.sqrt(2 / len(first.gaps))
        is_sure = abs(last.median_ns - first.median_ns * grown) > _SURE * error
        detail += f"; last quarter {changed:.2f} times the first"
        if grown > 1 + _STEADY / 2:
            detail += f", of which {grown:.2f} by the longer context"
        steady = steady and not (is_sure and abs(changed / grown - 1) > _STEADY)
    if facts.execution is Execution.EMULATED:
        detail += f"; {NOT_JUDGED}{facts.execution}"
        return (Check(name="drift", ok=None, detail=detail),)
    return (Check(name="drift", ok=steady, detail=detail),)


def _grown(
    timing: TimingRecord, early: int, late: int, bytes_at: Callable[[int], float] | None
) -> float:
    """Return the growth due to the longer context alone, if cache reads are as fast as weights."""
    if bytes_at is None:
        return 1.0
    before = timing.prompt_tokens or 0
    return bytes_at(before + late) / bytes_at(before + early)


def _noise(gaps: Sequence[Gap]) -> float:
    """Estimate the standard deviation from token to token, in ns, from successive differences.

    All gaps count, because a quarter may have only three. A step, a slope or an outlier hardly
    changes the median difference.
    """
    steps = [abs(after.ns - before.ns) for before, after in pairwise(gaps)]
    return MAD_TO_SIGMA * median(steps) / math.sqrt(2)
