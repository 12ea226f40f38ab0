"""A sweep of rates to saturation, and the knee of the rates that were run.

A server *follows* a rate if all of this is true for the stage, without warm-up:

- it was finished (not cut off as overloaded),
- answers end at 95 % or more of the rate at which requests come (``departures``),
- if there are limits, 95 % or more of the requests meet them: goodput follows too.

The **knee** is the highest followed rate below every rate that is not followed.
"""

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from labctl.evaluation.serving.metrics import StageMetrics
from labctl.records import StageRecord

FOLLOWS = 0.95
#: Most rates found by doubling or halving, and most rates between the last two.
_STEPS, _REFINEMENTS = 12, 3


@dataclass(frozen=True)
class Knee:
    """Knee: ``rate`` is the highest followed rate, ``beyond`` the lowest rate not followed."""

    rate: float | None
    beyond: float | None


def follows(stage: StageRecord, metrics: StageMetrics | None) -> bool:
    """Return True if the server followed the rate of a stage, by the rule above."""
    if stage.stop != "done" or metrics is None or metrics.departures is None:
        return False
    good = 1.0 if metrics.good_share is None else metrics.good_share
    return metrics.departures >= FOLLOWS and good >= FOLLOWS


def knee(stages: Iterable[tuple[StageRecord, StageMetrics | None]]) -> Knee | None:
    """Return the knee of all stages of open loops; None if fewer than two can be judged.

    A stage that was interrupted, or lost its server, is not judged.
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
    """Yield the rates to try; the caller sends True after each followed rate, else False.

    From ``start`` rates double until one is not followed, or halve until one is. Then the geometric
    mean of the last two is tried, three times: the knee is known to 9 %.
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
