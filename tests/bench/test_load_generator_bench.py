"""Lateness of the load generator: its requests are sent when they are due."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labctl.evaluation.endpoints.base import Message
from labctl.evaluation.endpoints.opening import open_client
from labctl.evaluation.serving.generator import (
    MOST_OUTSTANDING,
    LoadGenerator,
    RequestOptions,
    StagePlan,
)
from labctl.evaluation.serving.metrics import measure
from labctl.evaluation.serving.workload import Asked
from labctl.records.serving import LatencyLimits, RequestRecord, StageRecord

pytestmark = pytest.mark.bench

SERVER = Path(__file__).parents[1] / "support" / "scripted_endpoint.py"
TOKENS = 20


@contextmanager
def server(tokens: int, first_s: float, token_s: float) -> Iterator[str]:
    """A process of its own that gives every question the same answer."""
    words = [sys.executable, str(SERVER), str(tokens), str(first_s), str(token_s)]
    program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin
    assert program.stdout
    try:
        yield program.stdout.readline().strip()
    finally:
        program.stdin.close()
        program.stdout.read()
        program.stdout.close()
        program.wait(60)


def load(address: str, **plan: object) -> tuple[list[RequestRecord], StageRecord]:
    rows: list[RequestRecord] = []
    found: list[StageRecord] = []

    async def run() -> None:
        client = open_client(
            api="openai-chat", address=address, served_name="m", connections=MOST_OUTSTANDING
        )
        generator = LoadGenerator(
            client,
            lambda _seed, number: Asked((Message("user", f"question {number}"),), 2, TOKENS),
            RequestOptions(timeout_s=120),
            rows.append,
        )
        asked = {"number": 1, "seed": 1, "warm_up": 0, "requests": None, "duration_s": None}
        await generator.run(StagePlan(**(asked | plan)), found.append)  # type: ignore[arg-type]
        await client.aclose()

    asyncio.run(run())
    return rows, found[0]


def test_requests_are_sent_when_they_are_due() -> None:
    """50 requests a second, at random; answers of 20 tokens in 0.4 s."""
    with server(TOKENS, 0.02, 0.02) as address:
        began = time.process_time()
        rows, stage = load(address, rate=50.0, requests=1000)
        used = time.process_time() - began
    metrics = measure(rows, LatencyLimits())
    assert metrics
    assert metrics.lateness_ns
    late, lag = metrics.lateness_ns, stage.client_lag_p99_ns
    print("\n1,000 requests, 50 a second (Poisson), 20 answers at once")
    print(f"  sent late: p50 {late.p50 / 1e6:.2f}, p99 {late.p99 / 1e6:.2f} ms")
    print(f"  CPU time of a request with {TOKENS} tokens: {used:.2f} ms")  # s / 1,000
    print(f"  timers late: p99 {(lag or 0) / 1e6:.2f} ms")
    assert metrics.completed == 1000
