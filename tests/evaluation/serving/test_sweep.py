"""The knee of a sweep: the highest rate that the server follows."""

from datetime import UTC, datetime
from typing import Any

import pytest

from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.sweep import Knee, follows, knee, sweep_rates
from labctl.records import LatencyLimits, RequestRecord, StageRecord

MS = 1_000_000
NO_LIMITS = LatencyLimits()


def stage(rate: float | None, stop: Any = "done") -> StageRecord:
    return StageRecord(
        number=1,
        name="",
        loop="closed" if rate is None else "open",
        rate=rate,
        seed=1,
        warm_up=0,
        stop=stop,
        began=datetime.now(UTC),
    )


def loaded(rate: float, capacity: float, limits: LatencyLimits) -> StageMetrics | None:
    """A server of one slot that answers ``capacity`` requests a second; 200 requests."""
    gap, service, at, rows = round(1e9 / rate), round(1e9 / capacity), 0, []
    for number in range(200):
        at = max(at, number * gap) + service
        rows.append(
            RequestRecord(
                stage=1,
                number=number + 1,
                intended_ns=number * gap,
                sent_ns=number * gap,
                arrivals_ns=(at,),
                done_ns=at,
            )
        )
    return measure(rows, limits)


def swept(capacity: float, start: float, limits: LatencyLimits = NO_LIMITS) -> Any:
    tried = []
    rates = sweep_rates(start)
    rate = next(rates)
    while True:
        tried.append((stage(rate), loaded(rate, capacity, limits)))
        try:
            rate = rates.send(follows(*tried[-1]))
        except StopIteration:
            return tried


@pytest.mark.parametrize("start", [0.05, 5.0, 400.0])
def test_a_sweep_finds_the_capacity_from_either_side(start: float) -> None:
    found = knee(swept(12.0, start))
    assert found
    assert found.rate
    assert found.beyond
    assert found.rate <= 12.0 / 0.95
    assert found.beyond >= 12.0
    assert found.beyond / found.rate < 1.1


def test_a_limit_of_latency_bounds_the_goodput() -> None:
    """At 10 requests a second each takes 100 ms or more: a limit of 90 ms is never kept."""
    tried = swept(10.0, 1.0, LatencyLimits(latency_ns=90 * MS))
    found = knee(tried)
    assert found == Knee(None, min(one.rate for one, _ in tried))


def test_a_rate_beyond_a_lower_one_that_failed_is_no_knee() -> None:
    good = loaded(1.0, 100.0, LatencyLimits())
    late = loaded(20.0, 10.0, LatencyLimits())
    rows = [(stage(1.0), good), (stage(2.0), late), (stage(3.0), good)]
    assert knee(rows) == Knee(1.0, 2.0)
    assert knee([(stage(1.0), good), (stage(2.0), good)]) == Knee(2.0, None)


@pytest.mark.parametrize("stop", ["interrupted", "server-lost", "max-time"])
def test_a_stage_that_was_cut_off_judges_nothing(stop: str) -> None:
    good = loaded(1.0, 100.0, LatencyLimits())
    rows = [(stage(1.0), good), (stage(2.0, stop), None)]
    assert knee(rows) is None


def test_an_overloaded_stage_is_not_followed() -> None:
    good = loaded(1.0, 100.0, LatencyLimits())
    rows = [(stage(None), good), (stage(1.0), good), (stage(8.0, "overloaded"), None)]
    assert knee(rows) == Knee(1.0, 8.0)
