"""The knee of a sweep: the highest rate that the server follows."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from simulated_servers import batching, offered_stage, one_slot, rows_of, stage_of, swept

from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.sweep import Knee, behind, follows, knee
from labctl.records.serving import LatencyLimits
from labctl.records.trial import Failure

NO_LIMITS = LatencyLimits()
#: Requests a second: 16 answers of 64 tokens in a step of 36 ms each.
OF_A_BATCH = 16 / (64 * 0.036)


def loaded(
    rate: float, capacity: float, limits: LatencyLimits = NO_LIMITS, requests: int = 200
) -> StageMetrics | None:
    """A server of one slot, and requests at equal times."""
    times = [number / rate for number in range(requests)]
    return measure(rows_of(times, one_slot(1 / capacity)(times)), limits)


def check_sweeps(seeds: range, outside: int) -> None:
    """The knee is never above the capacity, and seldom far below; ``beyond`` is above."""
    servers = ((one_slot(0.1), 10.0), (batching(16, 64, 0.02, 0.001), OF_A_BATCH))
    for server, capacity in servers:
        found = [swept(server, 100, seed) for seed in seeds]
        rates = [(one.rate or 0) / capacity for one in found]
        beyond = [(one.beyond or 0) / capacity for one in found]
        assert max(rates) <= 1.001
        assert sum(one < 1 - INTERVAL for one in rates) <= outside
        assert sum(not 1 < one < MOST_BEYOND for one in beyond) <= outside


def most_of(count: int, share: float) -> int:
    """Return the number that 95 of 100 samples of ``count`` do not exceed, if ``share`` is true."""
    total = 0.0
    for found in range(count):
        total += math.comb(count, found) * share**found * (1 - share) ** (count - found)
        if total >= 0.95:
            return found
    return count


#: As docs/serving.md has it: 95 of 100 sweeps.
INTERVAL, OUTSIDE = 0.15, 0.05
#: The lowest rate that is not followed, as a share of the capacity.
MOST_BEYOND = 1.5


def test_sweeps_in_simulated_time_find_the_capacity() -> None:
    check_sweeps(range(60), outside=most_of(60, OUTSIDE))


@pytest.mark.soak
def test_the_interval_of_the_knee_holds_over_a_hundred_seeds() -> None:
    check_sweeps(range(100), outside=5)


@pytest.mark.soak
def test_the_interval_of_the_knee_holds_over_many_seeds() -> None:
    check_sweeps(range(1000, 1600), outside=most_of(600, OUTSIDE))


def test_the_offered_rate_is_judged_and_not_the_named_one() -> None:
    """25 Poisson requests named 0.5/s were offered at another rate."""
    stage, metrics = offered_stage(one_slot(0.1), 0.5, 25, seed=1000)
    assert metrics
    assert metrics.sending_ns
    assert metrics.offered_per_second == pytest.approx(24 / (metrics.sending_ns / 1e9))
    assert follows(stage, metrics, 0.1e9) is None  # fewer than 30 requests
    lots, found = offered_stage(one_slot(0.1), 5.0, 100, seed=7)
    assert follows(lots, found, 0.1e9)
    beyond = (stage_of(100.0), loaded(100.0, 10.0))
    told = knee([(lots, found), beyond])
    assert told
    assert found
    assert told.rate == pytest.approx(min(found.offered_per_second or 0, 10.0))


def test_a_stage_shorter_than_ten_latencies_has_no_verdict() -> None:
    """30 requests of 2 s at 12/s: all are sent before the first answer."""
    times = [number / 12 for number in range(30)]
    metrics = measure(rows_of(times, [at + 2 for at in times]), LatencyLimits())
    assert follows(stage_of(12.0), metrics, 2e9) is None
    rows = [(stage_of(12.0), metrics), (stage_of(24.0), metrics)]
    assert knee(rows) is None


def of_latencies(latencies: Sequence[float]) -> StageMetrics | None:
    """Requests at 10/s, one after the other, each answered after its latency."""
    times = [number / 10 for number in range(len(latencies))]
    ends = [at + latency for at, latency in zip(times, latencies, strict=True)]
    return measure(rows_of(times, ends), NO_LIMITS)


def signs(metrics: StageMetrics | None) -> tuple[bool, bool, bool]:
    """Whether each sign alone puts the server behind: its ends, the outstanding, the growth."""
    assert metrics
    alone = (
        replace(metrics, outstanding=0, growth=0.0),
        replace(metrics, departures=1.0, growth=0.0),
        replace(metrics, departures=1.0, outstanding=0),
    )
    ends, outstanding, growth = (follows(stage_of(10.0), one, 0.1e9) is False for one in alone)
    return ends, outstanding, growth


def test_ends_that_come_slower_than_starts_are_no_following() -> None:
    """9 % more than one slot carries. Half of the queue is usual by then, so the rest is short."""
    metrics = loaded(10.9, 10.0, requests=400)
    assert signs(metrics) == (True, False, False)
    assert follows(stage_of(10.9), metrics, 0.1e9) is False


def test_requests_outstanding_at_the_end_are_no_following() -> None:
    """The last tenth is held back, and then answered all at once."""
    metrics = of_latencies([0.1] * 360 + [4.5 - number / 10 for number in range(40)])
    assert signs(metrics) == (False, True, False)
    assert follows(stage_of(10.0), metrics, 0.1e9) is False


def test_a_latency_that_grows_is_no_following() -> None:
    """Late ones wait much longer; the very last, which are answered before others, do not."""
    metrics = of_latencies([0.1] * 300 + [3.9] * 60 + [0.1] * 40)
    assert signs(metrics) == (False, False, True)
    assert follows(stage_of(10.0), metrics, 0.1e9) is False


def test_a_server_is_behind_by_all_requests_at_most() -> None:
    """60 requests in a second, each of which takes longer by 100 ms than the one before."""
    metrics = loaded(60, 10.0, requests=60)
    assert metrics
    assert (metrics.growth or 0) > 1
    assert behind(metrics, 0.1e9) == 1


def test_a_steady_latency_is_followed_however_long() -> None:
    """Many are outstanding at each moment, in a server of many slots; none of it is a queue."""
    metrics = of_latencies([3.0] * 400)
    assert metrics
    assert metrics.outstanding == 30
    assert follows(stage_of(10.0), metrics, 3e9) is True


def test_a_stage_of_failures_alone_is_no_following() -> None:
    times = [number / 10 for number in range(100)]
    failure = Failure(blame="job", kind="refused", message="503")
    rows = [
        one.model_copy(update={"failure": failure, "arrivals_ns": ()})
        for one in rows_of(times, times)
    ]
    metrics = measure(rows, NO_LIMITS)
    assert follows(stage_of(10.0), metrics, 0.1e9) is False
    # Without any answer of the test, nobody knows how long a stage has to be.
    assert follows(stage_of(10.0), metrics, None) is None


def test_too_few_requests_have_no_verdict() -> None:
    assert follows(stage_of(10.0), of_latencies([0.1] * 29), 0.1e9) is None
    assert follows(stage_of(10.0), of_latencies([0.1] * 30), 0.1e9) is True


def test_constant_arrivals_have_the_smaller_allowance() -> None:
    """7 % behind: a burst of Poisson arrivals may leave as much."""
    metrics = loaded(10.7, 10.0, requests=400)
    poisson, constant = (
        stage_of(10.7).model_copy(update={"arrivals": name}) for name in ("poisson", "constant")
    )
    assert follows(poisson, metrics, 0.1e9) is True
    assert follows(constant, metrics, 0.1e9) is False


def test_the_knee_is_at_most_the_best_throughput() -> None:
    fast, slow = (stage_of(9.9), loaded(9.9, 9.6)), (stage_of(20.0), loaded(20.0, 9.6))
    found = knee([fast, slow])
    assert found
    assert found.rate == pytest.approx(9.6, rel=0.01)


def test_a_limit_of_latency_bounds_the_goodput() -> None:
    """Each answer takes 100 ms or more: a limit of 90 ms is never kept."""
    limits = LatencyLimits(latency_ns=90_000_000)
    rows = [(stage_of(rate), loaded(rate, 10.0, limits)) for rate in (1.0, 5.0)]
    found = knee(rows)
    assert found
    assert (found.rate, found.beyond) == (None, pytest.approx(1.0))


def test_a_rate_beyond_a_lower_one_that_failed_is_no_knee() -> None:
    good, late = loaded(1.0, 100.0), loaded(2.0, 1.0)
    fast = loaded(3.0, 100.0)
    found = knee([(stage_of(1.0), good), (stage_of(2.0), late), (stage_of(3.0), fast)])
    assert found
    assert (found.rate, found.beyond) == (pytest.approx(1, rel=0.01), pytest.approx(2))


@pytest.mark.parametrize("stop", ["interrupted", "server-lost", "max-time"])
def test_a_stage_that_was_cut_off_judges_nothing(stop: str) -> None:
    assert knee([(stage_of(1.0), loaded(1.0, 100.0)), (stage_of(2.0, stop), None)]) is None


def test_an_overloaded_stage_is_not_followed() -> None:
    good = loaded(1.0, 100.0)
    rows = [(stage_of(None), None), (stage_of(1.0), good), (stage_of(8.0, "overloaded"), None)]
    found = knee(rows)
    assert found == Knee(pytest.approx(1, rel=0.01), 8.0)
