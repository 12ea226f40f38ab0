"""Loads against a server whose times are known: what the load generator says is what was."""

import asyncio
import time
from itertools import islice, pairwise
from statistics import fmean

import pytest
from conditions import until
from loaded import Loaded, waits
from timed_client import TimedClient

from labctl.errors import HostError, ProgramFailed
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.serving.arrivals import arrival_times

#: Timers of a busy host are late.
SLACK_S = 0.03


def test_open_loop_latencies_are_those_of_the_queue() -> None:
    """One slot, 25 ms an answer, 28 requests a second: Poisson arrivals queue up."""
    loaded = Loaded(TimedClient(0.025, slots=1), rate=28.0, requests=80).run()
    intended = list(islice(arrival_times(28.0, "poisson", 3), 80))
    rows = sorted(loaded.rows, key=lambda row: row.number)
    assert [row.intended_ns for row in rows] == [round(at * 1e9) for at in intended]
    found = [(row.done_ns - (row.intended_ns or 0)) / 1e9 for row in rows]
    least = waits(intended, [0.025] * 80)
    assert max(least) > 0.1  # there was a queue
    assert all(got >= wanted - 0.001 for got, wanted in zip(found, least, strict=True))
    # A busy host serves later than asked; only then is a time longer than the theory's.
    real = waits(intended, [service + SLACK_S for service in loaded.client.services])
    assert all(got <= most + SLACK_S for got, most in zip(found, real, strict=True))
    latency = loaded.metrics().latency_ns
    assert latency is not None
    assert latency.high / 1e9 == max(found)


def test_closed_loop_latencies_are_the_streams_times_the_service() -> None:
    loaded = Loaded(TimedClient(0.02, slots=1), concurrency=5, requests=40, warm_up=5).run()
    metrics = loaded.metrics()
    assert (metrics.requests, metrics.completed, metrics.failed) == (40, 40, 0)
    service = fmean(loaded.client.services)  # 20 ms, or more on a busy host
    assert service >= 0.02
    assert metrics.requests_per_second == pytest.approx(1 / service, rel=0.3)
    assert metrics.latency_ns
    assert metrics.latency_ns.mean / 1e9 == pytest.approx(5 * service, rel=0.3)
    assert metrics.output_tokens_per_second == pytest.approx(2 / service, rel=0.3)
    assert metrics.lateness_ns is None
    assert metrics.departures is None


def test_a_stall_shows_in_the_open_loop_and_hides_in_the_closed() -> None:
    """The server begins no answer for 1 s. Real users would have sent 30 requests meanwhile."""
    stall = (0.5, 1.5)
    opened = Loaded(
        TimedClient(0.004, slots=1, stall=stall), rate=30.0, arrivals="constant", requests=75
    ).run()
    closed = Loaded(TimedClient(0.004, slots=1, stall=stall), concurrency=1, requests=150).run()
    of_open, of_closed = opened.metrics().latency_ns, closed.metrics().latency_ns
    assert of_open
    assert of_closed
    assert of_open.p99 / 1e9 > 0.9
    assert of_open.p90 / 1e9 > 0.5
    assert of_closed.p90 / 1e9 < 0.5
    assert sum(row.done_ns - row.sent_ns > 9e8 for row in closed.rows) == 1
    lateness = opened.metrics().lateness_ns
    assert lateness
    assert lateness.p99 < 5e8  # the client did not wait for the server


def test_warm_up_is_sent_and_not_counted() -> None:
    loaded = Loaded(TimedClient(0.002), rate=200.0, requests=10, warm_up=4).run()
    assert len(loaded.client.requests) == 14
    assert [row.warm_up for row in sorted(loaded.rows, key=lambda row: row.number)] == (
        [True] * 4 + [False] * 10
    )
    assert loaded.metrics().requests == 10


@pytest.mark.parametrize("loop", [{"rate": 50.0, "arrivals": "constant"}, {"concurrency": 2}])
def test_a_duration_ends_the_sending_and_all_answers_are_waited_for(
    loop: dict[str, object],
) -> None:
    loaded = Loaded(TimedClient(0.1), duration_s=0.5, warm_up=2, **loop).run()
    measured = [row for row in loaded.rows if not row.warm_up]
    assert len(measured) == 25 if "rate" in loop else 2 <= len(measured) <= 10
    assert all(row.failure is None for row in measured)
    assert loaded.record
    assert (loaded.record.stop, loaded.record.unfinished) == ("done", 0)


def test_the_end_of_max_time_cuts_off_and_counts_what_was_cut() -> None:
    loaded = Loaded(TimedClient(1.0), until_s=1.5, concurrency=2, requests=100).run()
    assert loaded.record
    assert (loaded.record.stop, loaded.record.unfinished) == ("max-time", 2)
    assert len(loaded.rows) == 2


def test_an_interrupt_keeps_what_was_measured() -> None:
    loaded = Loaded(TimedClient(0.05), concurrency=1, requests=1000)

    async def interrupted() -> None:
        task = asyncio.create_task(loaded.start())
        await until(lambda: len(loaded.rows) >= 3)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert loaded.record
    assert (loaded.record.stop, loaded.record.unfinished) == ("interrupted", 1)
    assert 3 <= len(loaded.rows) < 1000


def test_failures_are_results_while_the_server_is_there() -> None:
    refused = ProgramFailed("HTTP 400")
    client = TimedClient(0.001, fail=lambda number: refused if number % 4 else None)
    loaded = Loaded(client, rate=300.0, requests=40).run()
    metrics = loaded.metrics(latency_ns=1_000_000_000)
    assert (metrics.completed, metrics.failed, metrics.good) == (10, 30, 10)
    assert metrics.good_share == 0.25
    assert {row.failure.message for row in loaded.rows if row.failure} == {"HTTP 400"}


def test_a_dead_server_ends_the_stage() -> None:
    client = TimedClient(0.01)
    loaded = Loaded(client, rate=100.0, requests=10_000)

    async def dying() -> None:
        task = asyncio.create_task(loaded.start())
        await until(lambda: len(loaded.rows) >= 5)
        client.gone = TryAgain("cannot reach 127.0.0.1")
        await task

    with pytest.raises(HostError, match=r"the server is gone: \d+ requests in a row failed"):
        asyncio.run(dying())
    assert loaded.record
    assert loaded.record.stop == "server-lost"
    assert loaded.record.failure
    assert loaded.record.failure.blame == "infra"


def test_a_server_far_behind_is_not_buried() -> None:
    client = TimedClient(0.2, slots=1)
    loaded = Loaded(client, rate=200.0, requests=1000, most_outstanding=20).run()
    assert loaded.record
    assert loaded.record.stop == "overloaded"
    assert 18 <= loaded.record.unfinished <= 20


def test_arrivals_are_a_poisson_process_and_the_same_again() -> None:
    times = list(islice(arrival_times(4.0, "poisson", 1), 4001))
    assert times == list(islice(arrival_times(4.0, "poisson", 1), 4001))
    assert times != list(islice(arrival_times(4.0, "poisson", 2), 4001))
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.05)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance / mean**2 == pytest.approx(1, rel=0.1)  # exponential
    assert list(islice(arrival_times(4.0, "constant", 1), 3)) == [0, 0.25, 0.5]


def test_a_busy_client_sends_all_that_is_due_at_once() -> None:
    """Each turn of the event loop takes 20 ms; 200 requests a second are due: four a turn."""
    loaded = Loaded(TimedClient(0.001), rate=200.0, arrivals="constant", requests=100)

    async def busy() -> None:
        async def hog() -> None:
            while True:
                time.sleep(0.02)  # so long nothing else has its turn
                await asyncio.sleep(0)

        task = asyncio.create_task(hog())
        await loaded.start()
        task.cancel()

    asyncio.run(busy())
    lateness = loaded.metrics().lateness_ns
    assert lateness
    assert lateness.p50 < 3e8  # one a turn would be 750 ms


def test_a_client_that_sleeps_through_a_stage_knows_it_was_late() -> None:
    """It looks at its own timers once or twice only, and all pieces have one stamp."""
    loaded = Loaded(TimedClient(0.05, pieces=8, tokens=8), concurrency=1, requests=2)

    async def stalled() -> None:
        asyncio.get_running_loop().call_later(0.03, time.sleep, 0.5)
        await loaded.start()

    asyncio.run(stalled())
    assert loaded.record
    assert (loaded.record.client_lag_p99_ns or 0) > 3e8
