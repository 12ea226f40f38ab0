"""A sweep of rates up to saturation, and the knee of the measured rates.

All rates here are *offered* rates: sent requests / time in which they were to be sent. A stage gets
a verdict if it has 30 requests or more and was sent over ten latencies or more; an overloaded stage
always gets one. The server *follows* a rate if all of this is true, without warm-up:

- the stage was finished (not ended as overloaded),
- it falls behind by at most 5 %; with Poisson arrivals by 1.5 / sqrt(requests) if that is more, but
  at most 15 %, since a burst at the end leaves so many requests in a queue. This applies to the
  rate of the ends, to the outstanding requests at the last start beyond rate x latency, and to the
  growth of the latency,
- if there are limits, at least 95 % of the requests meet them: goodput follows too.

The **knee** is the highest followed rate below every rate that is not followed, and at most the
best rate of answers in any load.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from labctl.evaluation.serving.metrics import StageMetrics
from labctl.records.serving import StageRecord

FOLLOWS = 0.95
_MOST_BEHIND = 0.15
#: A stage with fewer requests or latencies has no verdict.
FEWEST, LATENCIES = 30, 10
#: A sweep plans longer stages, since Poisson arrivals may take less time.
_PLANNED_FEWEST, _PLANNED_LATENCIES = 40, 20
#: Most rates found by doubling or halving, and most rates between the last two.
_STEPS, _REFINEMENTS = 12, 3

Measured = Sequence[tuple[StageRecord, StageMetrics | None]]


@dataclass(frozen=True)
class Knee:
    """Knee: ``rate`` is the highest followed rate, ``beyond`` the lowest rate not followed."""

    rate: float | None
    beyond: float | None


def own_latency_ns(stages: Measured) -> float | None:
    """Return the server's latency without a queue: the shortest early latency of all loads."""
    early = [found.early_latency_ns for _, found in stages if found and found.early_latency_ns]
    return min(early, default=None)


def too_short(metrics: StageMetrics, latency_ns: float | None) -> str | None:
    """Return the reason why a finished open loop is too short for a verdict, or None."""
    if metrics.requests < FEWEST:
        return f"{metrics.requests} requests are fewer than {FEWEST}"
    if latency_ns is None or metrics.sending_ns is None:
        return "nothing was answered"
    if metrics.sending_ns < LATENCIES * latency_ns:
        sent, needed = metrics.sending_ns / 1e9, LATENCIES * latency_ns / 1e9
        return f"requests came for {sent:.3g} s, ten latencies are {needed:.3g} s"
    return None


def follows(
    stage: StageRecord, metrics: StageMetrics | None, latency_ns: float | None
) -> bool | None:
    """Return True if the server followed the rate of a stage, by the rule above; None: unknown.

    ``latency_ns``: :func:`own_latency_ns` of the test.
    """
    if stage.rate is None or stage.stop not in ("done", "overloaded"):
        return None
    if stage.stop == "overloaded":
        return False
    if metrics is None or too_short(metrics, latency_ns) is not None:
        return None
    if metrics.departures is None:  # all failed
        return False
    good = 1.0 if metrics.good_share is None else metrics.good_share
    return behind(metrics, latency_ns) <= allowance(stage, metrics) and good >= FOLLOWS


def allowance(stage: StageRecord, metrics: StageMetrics) -> float:
    """Return the share by which a server may be behind and still follow."""
    if stage.arrivals == "constant":
        return 1 - FOLLOWS
    return min(_MOST_BEHIND, max(1 - FOLLOWS, 1.5 / math.sqrt(metrics.requests)))


def behind(metrics: StageMetrics, latency_ns: float | None) -> float:
    """Return the share of requests by which the server is behind: the worst of three signs."""
    assert metrics.departures is not None
    usual = max(latency_ns or 0, metrics.latency_ns.p50 if metrics.latency_ns else 0)
    typical = (metrics.offered_per_second or 0) * usual / 1e9
    waiting = ((metrics.outstanding or 0) - typical) / metrics.requests
    # The latency may grow by more than the time of sending.
    return min(1.0, max(1 - metrics.departures, waiting, metrics.growth or 0))


def knee(stages: Measured) -> Knee | None:
    """Return the knee of all open loops; None if fewer than two stages can be judged.

    Stages that were interrupted, lost their server or are too short are not judged.
    """
    latency = own_latency_ns(stages)
    judged = [
        (offered(stage, metrics), verdict)
        for stage, metrics in stages
        if (verdict := follows(stage, metrics, latency)) is not None
    ]
    if len(judged) < 2:
        return None
    beyond = min((rate for rate, followed in judged if not followed), default=None)
    kept = [rate for rate, followed in judged if followed and (beyond is None or rate < beyond)]
    if not kept:
        return Knee(None, beyond)
    best = max((found.requests_per_second for _, found in stages if found), default=math.inf)
    return Knee(min(max(kept), best), beyond)


def offered(stage: StageRecord, metrics: StageMetrics | None) -> float:
    """Return the offered rate of an open loop; the named rate if nothing was measured."""
    assert stage.rate is not None
    return (metrics and metrics.offered_per_second) or stage.rate


def planned(
    rate: float, latency_ns: float | None, requests: int | None, duration_s: float | None
) -> tuple[int | None, float | None]:
    """Return the requests and the time of a sweep's stage, enough for a verdict."""
    least_s = max(_PLANNED_FEWEST / rate, _PLANNED_LATENCIES * (latency_ns or 0) / 1e9)
    return (
        None if requests is None else max(requests, math.ceil(rate * least_s)),
        None if duration_s is None else max(duration_s, least_s),
    )


def sweep_rates(start: float) -> Generator[float, bool, None]:
    """Yield the rates to try; the caller sends True if a rate was followed, else False.

    From ``start``, rates double until a rate is not followed, or halve until a rate is followed.
    Then the geometric mean of the last two is tried, three times.
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
