"""A rate that changes inside a trial, which one number does not describe."""

import math
from collections.abc import Sequence

from labctl.performance.prediction import Work
from labctl.records import BoardFacts, Check, Execution, TimingRecord
from labctl.stats import mad, median
from labctl.units import duration

#: A mean so far from the median, or a last quarter from the first one, is no steady rate.
_STEADY = 0.05
#: Fewer tokens have no quarters.
_LEAST = 8
#: Standard errors from which on a difference of quarters is no chance.
_SURE = 4
#: The standard error of a median of normal values over that of their mean.
_MEDIAN_ERROR = math.sqrt(math.pi / 2)


def drift(
    timing: TimingRecord | None, facts: BoardFacts, work: Work | None = None
) -> tuple[Check, ...]:
    """Whether a token took as long at the end as in the beginning.

    ``work``, where it is known, tells how much more each token reads because its context is longer.
    Nothing is checked of an emulator's times, nor with fewer than three single tokens.
    """
    if timing is None or not timing.mean_ns or not timing.p50_ns:
        return ()
    singles = _singles(timing)
    if len(singles) < 3 or facts.execution is Execution.EMULATED:
        return ()
    off = timing.mean_ns / timing.p50_ns - 1
    told = f"mean {duration(timing.mean_ns)}, median {duration(timing.p50_ns)} a token"
    steady = abs(off) <= _STEADY
    if len(singles) >= _LEAST:
        quarter = len(singles) // 4
        early, late = singles[:quarter], singles[-quarter:]
        grown = _grown(timing, early[quarter // 2][0], late[quarter // 2][0], work)
        changed, is_sure = _change([gap for _, gap in early], [gap for _, gap in late], grown)
        told += f"; last quarter {changed:.2f} times the first"
        if grown > 1 + _STEADY / 2:
            told += f", of which {grown:.2f} by the longer context"
        steady = steady and not (is_sure and abs(changed / grown - 1) > _STEADY)
    return (Check(name="drift", ok=steady, detail=told),)


def _singles(timing: TimingRecord) -> list[tuple[int, int]]:
    """Position and time of what is a single token."""
    merged = set(timing.merged_chunks)
    gaps = enumerate(timing.token_ns, 1)
    return [(n, gap) for n, gap in gaps if gap > 0 and n - 1 not in merged]


def _grown(timing: TimingRecord, early: int, late: int, work: Work | None) -> float:
    """What a longer context alone does, if its cache is read as fast as weights are."""
    if work is None:
        return 1.0
    before = timing.prompt_tokens or 0
    first, last = (work.bytes_per_token + work.kv_bytes(before + n) for n in (early, late))
    return last / first


def _change(early: Sequence[int], late: Sequence[int], grown: float) -> tuple[float, bool]:
    """The later median over the earlier one, and whether it is more than their own spread."""
    first, last = median(early), median(late)
    error = _MEDIAN_ERROR * math.hypot(mad(early), mad(late)) / math.sqrt(len(early))
    return last / first, abs(last - first * grown) > _SURE * error
