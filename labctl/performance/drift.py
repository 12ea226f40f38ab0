"""The check ``drift``: no single number describes a rate that changes inside a trial."""

import math
from collections.abc import Sequence
from itertools import pairwise

from labctl.performance.prediction import ModelWorkload
from labctl.records import BoardFacts, Check, Execution, TimingRecord
from labctl.results.lateness import Gap, quarters, single_gaps
from labctl.stats import MAD_TO_SIGMA, median
from labctl.units import duration

#: Above this difference of mean and median, or of last and first quarter, the rate is not steady.
_STEADY = 0.05
#: Fewest tokens with quarters.
_LEAST = 8
#: Standard errors above which a difference of quarters is not random. With a noise of 5 % from
#: token to token, 1 to 2 of 100 steady trials of 8 to 15 gaps are flagged.
_SURE = 3
#: Standard error of the median of normal values divided by that of their mean.
_MEDIAN_ERROR = math.sqrt(math.pi / 2)


def drift(
    timing: TimingRecord | None, facts: BoardFacts, work: ModelWorkload | None = None
) -> tuple[Check, ...]:
    """Check that tokens took as long at the end as at the beginning.

    ``work``, if known, gives the additional reads of each token for its longer context. Times of an
    emulator, and fewer than three single tokens, are not checked.
    """
    if timing is None or not timing.mean_ns or not timing.p50_ns:
        return ()
    singles = single_gaps(timing)
    if len(singles) < 3 or facts.execution is Execution.EMULATED:
        return ()
    off = timing.mean_ns / timing.p50_ns - 1
    detail = f"mean {duration(timing.mean_ns)}, median {duration(timing.p50_ns)} a token"
    steady = abs(off) <= _STEADY
    found = quarters(singles) if len(singles) >= _LEAST else None
    if found is not None:
        first, last = found
        grown = _grown(timing, first.position, last.position, work)
        changed = last.median_ns / first.median_ns
        error = _MEDIAN_ERROR * _noise(singles) * math.sqrt(2 / len(first.gaps))
        is_sure = abs(last.median_ns - first.median_ns * grown) > _SURE * error
        detail += f"; last quarter {changed:.2f} times the first"
        if grown > 1 + _STEADY / 2:
            detail += f", of which {grown:.2f} by the longer context"
        steady = steady and not (is_sure and abs(changed / grown - 1) > _STEADY)
    return (Check(name="drift", ok=steady, detail=detail),)


def _grown(timing: TimingRecord, early: int, late: int, work: ModelWorkload | None) -> float:
    """Return the growth that a longer context alone causes, if its cache is read as fast as
    weights.
    """
    if work is None:
        return 1.0
    before = timing.prompt_tokens or 0
    first, last = (work.bytes_per_token + work.kv_bytes(before + n) for n in (early, late))
    return last / first


def _noise(gaps: Sequence[Gap]) -> float:
    """Estimate the standard deviation from token to token, in ns, from successive differences.

    All gaps count: a quarter of 12 has three, whose spread says little. A step or a slope hardly
    changes the median difference, nor does an outlier.
    """
    steps = [abs(after.ns - before.ns) for before, after in pairwise(gaps)]
    return MAD_TO_SIGMA * median(steps) / math.sqrt(2)
