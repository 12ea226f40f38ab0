"""The moments of a trial on its board's clock: its tokens, and when the board throttled."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import TrialRecord
from labctl.results.telemetry import held_down
from labctl.results.timing_checks import Gap, single_gaps


def single_tokens(trial: TrialRecord) -> list[Gap]:
    """Return the gaps of single tokens; empty if these gaps are not known."""
    timing = trial.timing
    return single_gaps(timing) if timing and timing.p50_ns is not None else []


@dataclass(frozen=True)
class Span:
    """From one moment to another, in ns of the board's monotonic clock."""

    begin_ns: int
    end_ns: int

    def meets(self, other: "Span") -> bool:
        """Return True if the spans share a moment."""
        return self.begin_ns < other.end_ns and other.begin_ns < self.end_ns


def token_spans(trial: TrialRecord) -> list[Span]:
    """Return the time before each token; the first token's time begins with the process.

    Empty if the trial has no token times.
    """
    timing, job = trial.timing, trial.job
    if timing is None or job is None or timing.ttft_ns is None:
        return []
    ends = accumulate((timing.ttft_ns, *timing.token_ns), initial=job.start_mono_ns)
    return [Span(begin, end) for begin, end in pairwise(ends)]


def throttled_spans(samples: Sequence[TelemetrySample]) -> list[Span]:
    """Return when the board throttled: from a sample that shows it to the next sample."""
    found: list[Span] = []
    for (sample, after), is_held in zip(pairwise(samples), held_down(samples), strict=False):
        if not is_held:
            continue
        begin = sample.mono_ns
        if found and found[-1].end_ns == begin:
            begin = found.pop().begin_ns
        found.append(Span(begin, after.mono_ns))
    return found
