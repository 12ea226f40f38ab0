"""Gaps between the tokens of a trial, and lateness of their time stamps.

Decide which part of a trial's timing remains valid."""

from collections.abc import Sequence
from dataclasses import dataclass

from labctl.records import Check, Execution, JobStatus, TimingRecord
from labctl.records.timing import TokenClock
from labctl.stats import median
from labctl.units import duration

#: Tolerated share of the time from first to last token, or of the 99th percentile of its gaps.
_LATE = 0.01
_PRIORITY = {"fifo": "real-time priority", "other": "without real-time priority"}
#: With fewer gaps, the 99th percentile is one of the two longest, or lies between them.
_FEWEST_FOR_P99 = 100
#: Checks that fail if stamps are late or CPUs slow: on an emulated board the host causes this.
_OF_THE_HOST = frozenset({"stamps", "span", "clocks", "frequency"})


def latest_ns(job: JobStatus) -> int | None:
    """Largest lateness of one stamp; None if the agent does not report it.

    The agent waited for a CPU, did something else, or was stopped. The kernel does not count the
    time of interrupts, or of a CPU waking from deep sleep.
    """
    waited = job.longest_stamp_wait_ns
    if waited is None:
        return None
    return max(waited, _longest_pause_ns(job) or 0)


def _longest_pause_ns(job: JobStatus) -> int | None:
    """Return the longest pause that can have made a stamp late.

    Older agents report the longest of all, which may be from the loading of the program.
    """
    longest = job.longest_stamp_pause_ns
    return job.longest_pause_ns if longest is None else longest


def stamps_check(timing: TimingRecord, job: JobStatus) -> tuple[Check, ...]:
    """Compare the possible lateness of stamps with the time that they measure.

    None if no gaps were seen, or the agent did not report it.
    """
    span = sum(timing.token_ns)
    waited, paused = job.stamp_wait_ns, _longest_pause_ns(job)
    if not span or job.stamp_scheduler is None or paused is None:
        return ()
    if waited is None:
        detail = "this kernel does not count how long a thread waits for a CPU"
        return (Check(name="stamps", ok=None, detail=detail),)
    ok = waited <= _LATE * span and paused <= _LATE * span
    detail = (
        f"waited {duration(waited)} for a CPU, {waited / span:.2%} of the time from first to last"
        f" token; at most {duration(job.longest_stamp_wait_ns)} at once, and {duration(paused)} of"
        f" other work; {_PRIORITY[job.stamp_scheduler]}"
    )
    return (Check(name="stamps", ok=ok, detail=detail),)


def judged_on(execution: Execution, checks: Sequence[Check]) -> tuple[Check, ...]:
    """Leave failed checks of stamps and clocks open for an emulated board: its host decides them.

    A busy host of an emulator is not a fault of board or program.
    """
    if execution is not Execution.EMULATED:
        return tuple(checks)
    return tuple(
        check.model_copy(update={"ok": None, "detail": f"{check.detail}; not judged: {execution}"})
        if check.ok is False and check.name in _OF_THE_HOST
        else check
        for check in checks
    )


def stamped(timing: TimingRecord, job: JobStatus) -> TimingRecord:
    """Add the clock that timed the tokens, and remove an unreliable 99th percentile.

    It needs enough gaps, and stamps that were late by at most 1 % of it.
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
        """The middle gap's time."""
        return median([gap.ns for gap in self.gaps])

    @property
    def position(self) -> int:
        """The position of the token in the middle."""
        return self.gaps[len(self.gaps) // 2].position


def single_gaps(timing: TimingRecord) -> list[Gap]:
    """Return the gaps of one token each; gaps of several tokens do not show a token's time."""
    merged = set(timing.merged_chunks)
    gaps = enumerate(timing.token_ns, 1)
    return [Gap(n, ns) for n, ns in gaps if ns > 0 and n - 1 not in merged]


def quarters(gaps: Sequence[Gap]) -> tuple[Quarter, Quarter] | None:
    """Return the first quarter and the last; None for fewer than four gaps."""
    size = len(gaps) // 4
    return (Quarter(gaps[:size]), Quarter(gaps[-size:])) if size else None
