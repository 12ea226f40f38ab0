"""One stage of a load test against a client whose times are known."""

import asyncio
import time
from itertools import pairwise

from timed_client import TimedClient

from labctl.evaluation.serving.generator import LoadGenerator, RequestOptions, StagePlan
from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.workload import Asked
from labctl.records.serving import LatencyLimits, RequestRecord, StageRecord


class Loaded:
    """One stage, run."""

    def __init__(self, client: TimedClient, *, until_s: float | None = None, **plan: object):
        self.client = client
        self.rows: list[RequestRecord] = []
        self.record: StageRecord | None = None
        self._until_s = until_s
        asked = {"number": 1, "seed": 3, "warm_up": 0, "requests": None, "duration_s": None}
        self.plan = StagePlan(**(asked | plan))  # type: ignore[arg-type]

    async def start(self) -> None:
        until = None if self._until_s is None else time.monotonic() + self._until_s
        generator = LoadGenerator(
            self.client,
            lambda seed, number: Asked(f"question {number}", 2, 8),
            RequestOptions(timeout_s=30),
            self.rows.append,
            until=until,
        )
        await generator.run(self.plan, self._ended)

    def _ended(self, record: StageRecord) -> None:
        self.record = record

    def run(self) -> "Loaded":
        asyncio.run(self.start())
        return self

    def metrics(self, **limits: int) -> StageMetrics:
        found = measure(self.rows, LatencyLimits(**limits))
        assert found is not None
        return found


def waits(times: list[float], services: list[float]) -> list[float]:
    """Latencies in a queue of one server (D. V. Lindley, 1952), in s."""
    wait, found = 0.0, [services[0]]
    for number, (before, at) in enumerate(pairwise(times)):
        wait = max(0.0, wait + services[number] - (at - before))
        found.append(wait + services[number + 1])
    return found
