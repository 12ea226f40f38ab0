"""Servers in simulated time: a sweep of many seeds takes seconds, and nothing sleeps."""

import heapq
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from labctl.evaluation.serving.arrivals import arrival_times
from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.sweep import (
    Knee,
    follows,
    knee,
    own_latency_ns,
    planned,
    sweep_rates,
)
from labctl.records.serving import LatencyLimits, RequestRecord, StageRecord

#: Gives the ends of requests that come at these times, in s.
Server = Callable[[Sequence[float]], list[float]]


def one_slot(service_s: float) -> Server:
    """Answer one request after the other."""

    def serve(times: Sequence[float]) -> list[float]:
        free, ends = 0.0, []
        for at in times:
            free = max(free, at) + service_s
            ends.append(free)
        return ends

    return serve


def batching(slots: int, tokens: int, step_s: float, each_s: float) -> Server:
    """Generate a token of each running request in a step; a larger batch takes longer.

    A request begins at a step that has a slot, as in continuous batching.
    """

    def serve(times: Sequence[float]) -> list[float]:
        now, begun, ends = 0.0, 0, [0.0] * len(times)
        running: list[tuple[int, int]] = []  # the step of the end, and the request
        step = 0
        while begun < len(times) or running:
            if not running and times[begun] > now:
                now = times[begun]
            while begun < len(times) and times[begun] <= now and len(running) < slots:
                heapq.heappush(running, (step + tokens, begun))
                begun += 1
            now += step_s + each_s * len(running)
            step += 1
            while running and running[0][0] <= step:
                ends[heapq.heappop(running)[1]] = now
        return ends

    return serve


def stage_of(rate: float | None, stop: Any = "done", number: int = 1) -> StageRecord:
    return StageRecord(
        number=number,
        name="",
        loop="closed" if rate is None else "open",
        rate=rate,
        concurrency=1 if rate is None else None,
        seed=1,
        warm_up=0,
        stop=stop,
        began=datetime.now(UTC),
    )


def rows_of(
    times: Sequence[float], ends: Sequence[float], *, planned: bool = True
) -> list[RequestRecord]:
    return [
        RequestRecord(
            stage=1,
            number=number,
            intended_ns=round(at * 1e9) if planned else None,
            sent_ns=round(at * 1e9),
            arrivals_ns=(round(end * 1e9),),
            done_ns=round(end * 1e9),
        )
        for number, (at, end) in enumerate(zip(times, ends, strict=True), 1)
    ]


def offered_stage(
    server: Server, rate: float, requests: int, seed: int
) -> tuple[StageRecord, StageMetrics | None]:
    times = list(islice(arrival_times(rate, "poisson", seed), requests))
    return stage_of(rate), measure(rows_of(times, server(times)), LatencyLimits())


def one_stream(server: Server, requests: int) -> tuple[StageRecord, StageMetrics | None]:
    (alone,) = server([0.0])
    times = [number * alone for number in range(requests)]
    rows = rows_of(times, [at + alone for at in times], planned=False)
    return stage_of(None), measure(rows, LatencyLimits())


def swept(server: Server, requests: int, seed: int) -> Knee:
    """Sweep as a load test does."""
    stages = [one_stream(server, requests)]
    assert stages[0][1]
    rates = sweep_rates(stages[0][1].requests_per_second / 2)
    rate = next(rates)
    while True:
        many, _ = planned(rate, own_latency_ns(stages), requests, None)
        assert many
        stages.append(offered_stage(server, rate, many, seed * 1000 + len(stages)))
        verdict = follows(*stages[-1], own_latency_ns(stages))
        assert verdict is not None
        try:
            rate = rates.send(verdict)
        except StopIteration:
            break
    found = knee(stages)
    assert found
    return found
