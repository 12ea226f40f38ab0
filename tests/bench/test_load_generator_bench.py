"""What the load generator adds: the lateness of its requests, and its time beside a bare loop."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from interleaved import medians, show

from labctl.evaluation.endpoints import open_client
from labctl.evaluation.endpoints.base import Message
from labctl.evaluation.serving.generator import LoadGenerator, RequestOptions, StagePlan
from labctl.evaluation.serving.metrics import measure
from labctl.evaluation.serving.workload import Asked
from labctl.records import LatencyLimits, RequestRecord, StageRecord

pytestmark = pytest.mark.bench

SERVER = Path(__file__).parents[1] / "support" / "scripted_endpoint.py"
STREAMS, REQUESTS, TOKENS = 64, 1000, 100


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
            api="openai-chat", address=address, served_name="m", connections=STREAMS
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


def bare(address: str) -> None:
    """The same requests through httpx alone; its stamps are taken, and nothing else."""

    async def run() -> None:
        numbers = iter(range(REQUESTS))
        limits = httpx.Limits(max_connections=STREAMS)
        headers = {"Connection": "close"}
        async with httpx.AsyncClient(timeout=120, limits=limits, headers=headers) as client:

            async def stream() -> None:
                for number in numbers:
                    body = {
                        "model": "m",
                        "messages": [{"role": "user", "content": f"question {number}"}],
                        "max_tokens": TOKENS,
                        "stream": True,
                        "stream_options": {"include_usage": True},
                    }
                    address_ = f"{address}/v1/chat/completions"
                    async with client.stream("POST", address_, json=body) as answer:
                        stamps = []
                        async for line in answer.aiter_lines():
                            if line.startswith("data: {"):
                                json.loads(line[6:])
                                stamps.append(time.monotonic_ns())

            await asyncio.gather(*(stream() for _ in range(STREAMS)))

    asyncio.run(run())


def test_the_load_generator_beside_a_bare_loop() -> None:
    """64 streams, 100 tokens in 2 s, 1,000 requests."""
    with server(TOKENS, 0.02, 0.02) as address:
        found = medians(
            1,
            {
                "httpx alone": lambda: bare(address),
                "load generator": lambda: load(address, concurrency=STREAMS, requests=REQUESTS),
            },
        )
    show(f"{REQUESTS} requests, {STREAMS} streams, {TOKENS} tokens in 2 s", found, "httpx alone")
    assert found["load generator"] <= 1.1 * found["httpx alone"]


def test_requests_are_sent_when_they_are_due() -> None:
    """50 requests a second, at random; answers of 20 tokens in 0.4 s."""
    with server(20, 0.02, 0.02) as address:
        rows, stage = load(address, rate=50.0, requests=1000)
    metrics = measure(rows, LatencyLimits())
    assert metrics
    assert metrics.lateness_ns
    late, lag = metrics.lateness_ns, stage.client_lag_p99_ns
    print("\n1,000 requests, 50 a second (Poisson), 20 answers at once")
    print(f"  sent late: p50 {late.p50 / 1e6:.2f}, p99 {late.p99 / 1e6:.2f} ms")
    print(f"  timers late: p99 {(lag or 0) / 1e6:.2f} ms")
    assert metrics.completed == 1000
