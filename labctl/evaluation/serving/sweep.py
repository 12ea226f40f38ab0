"""A sweep of rates to saturation, and the knee of those that were run.

A server *follows* a rate when all of this holds of the stage, warm-up left out:

- it came to its end (it was not cut off as overloaded),
- answers end at 95 % or more of the rate at which requests come (``departures``),
- where there are limits, 95 % or more of the requests keep them: goodput follows too.

The **knee** is the highest rate that is followed, below every rate that is not.
"""

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from labctl.evaluation.serving.metrics import StageMetrics
from labctl.records import StageRecord

FOLLOWS = 0.95
#: Of rates that are twice or half the one before, and of those between the last two.
_STEPS, _REFINEMENTS = 12, 3


@dataclass(frozen=True)
class Knee:
    """``rate``: highest that is followed; ``beyond``: lowest that is not; None: there is none."""

    rate: float | None
    beyond: float | None


def follows(stage: StageRecord, metrics: StageMetrics | None) -> bool:
    """Tell whether the server followed the rate of a stage, by the rule above."""
    if stage.stop != "done" or metrics is None or metrics.departures is None:
        return False
    good = 1.0 if metrics.good_share is None else metrics.good_share
    return metrics.departures >= FOLLOWS and good >= FOLLOWS


def knee(stages: Iterable[tuple[StageRecord, StageMetrics | None]]) -> Knee | None:
    """Return the knee of all stages of open loops; None if fewer than two came to a judgement.

    A stage that somebody interrupted, or that lost its server, judges nothing.
    """
    judged = [
        (stage.rate, follows(stage, metrics))
        for stage, metrics in stages
        if stage.rate is not None and stage.stop in ("done", "overloaded")
    ]
    if len(judged) < 2:
        return None
    beyond = min((rate for rate, followed in judged if not followed), default=None)
    kept = [rate for rate, followed in judged if followed and (beyond is None or rate < beyond)]
    return Knee(max(kept, default=None), beyond)


def sweep_rates(start: float) -> Generator[float, bool, None]:
    """Yield the rates to try, and be sent whether each was followed.

    From ``start`` rates double until one is not followed, or halve until one is; then the middle
    (in ratio) between the last two is tried, three times: the knee is known to 9 %.
    """
    good: float | None = None
    bad: float | None = None
    rate = start
    for _ in range(_STEPS):
        if (yield rate):
            good = rate
        else:
            bad = rate
        if good is not None and bad is not None:
            break
        rate = rate * 2 if bad is None else rate / 2
    if good is None or bad is None:
        return
    for _ in range(_REFINEMENTS):
        rate = math.sqrt(good * bad)
        if (yield rate):
            good = rate
        else:
            bad = rate
