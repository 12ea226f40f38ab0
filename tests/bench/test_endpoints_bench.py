"""labctl's client beside httpx in a bare loop, and how late the client's stamps are."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from labctl.evaluation.endpoints.base import GenerationRequest
from labctl.evaluation.endpoints.opening import open_client

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3000)]

SERVER = Path(__file__).parents[1] / "support/scripted_endpoint.py"
STREAMS, REQUESTS, TOKENS, TOKEN_S = 64, 1000, 100, 0.02
Arrivals = dict[str, list[int]]


@contextmanager
def scripted_process(told: Arrivals) -> Iterator[str]:
    """A server in another process; in the end ``told`` has when it sent each question's tokens."""
    argv = [sys.executable, str(SERVER), str(TOKENS), str(TOKEN_S), str(TOKEN_S)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        output, _ = process.communicate()
        told.update(json.loads(line) for line in output.splitlines())


async def at_once(ask: Callable[[str], object]) -> None:
    """All questions, so many at a time."""
    waiting = iter(range(REQUESTS))

    async def one_after_another() -> None:
        for number in waiting:
            await ask(f"question {number}")  # type: ignore[misc]

    await asyncio.gather(*(one_after_another() for _ in range(STREAMS)))


async def by_labctl(address: str, arrivals: Arrivals) -> None:
    client = open_client(api="openai-completions", address=address, connections=STREAMS)

    async def ask(text: str) -> None:
        answer = await client.generate(GenerationRequest(text, TOKENS), timeout=600)
        arrivals[text] = list(answer.arrivals)

    await at_once(ask)
    await client.aclose()


async def bare(address: str, arrivals: Arrivals) -> None:
    more = {"limits": httpx.Limits(max_connections=STREAMS), "headers": {"Connection": "close"}}
    async with httpx.AsyncClient(base_url=address, timeout=600, **more) as client:

        async def ask(text: str) -> None:
            body = {"model": "scripted", "prompt": text, "max_tokens": TOKENS, "stream": True}
            arrivals[text] = []
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["text"]:
                        arrivals[text].append(time.monotonic_ns())

        await at_once(ask)


def test_64_streams() -> None:
    """One has 100 tokens in 2 s: 1,000 requests take 32 s at least."""
    seconds: dict[str, list[float]] = {"bare httpx": [], "labctl": []}
    cpu: dict[str, list[float]] = {"bare httpx": [], "labctl": []}
    late: dict[str, list[float]] = {"bare httpx": [], "labctl": []}
    for _ in range(2):
        for name, work in (("bare httpx", bare), ("labctl", by_labctl)):
            sent: Arrivals = {}
            arrived: Arrivals = {}
            with scripted_process(sent) as address:
                began, began_cpu = time.perf_counter(), time.process_time()
                asyncio.run(work(address, arrived))
                seconds[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - began_cpu)
            assert len(arrived) == REQUESTS
            for text, stamps in arrived.items():
                texts = sent[text][: TOKENS - 1]  # the last token ends the answer, without text
                assert len(stamps) == len(texts)
                late[name] += [(b - a) / 1e6 for a, b in zip(texts, stamps, strict=True)]
    print(f"\n{REQUESTS} requests, {STREAMS} streams, {TOKENS} tokens in {TOKENS * TOKEN_S:g} s")
    ratio = min(seconds["labctl"]) / min(seconds["bare httpx"])
    for name, took in seconds.items():
        ordered = sorted(late[name])
        p50, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
        print(
            f"  {name:12} {min(took):6.1f} s  {min(cpu[name]):5.1f} s of CPU"
            f"  stamps late by {p50:.2f} ms (p50), {p99:.2f} ms (p99)"
        )
    print(f"  labctl / bare httpx: {ratio:.2f}")
    assert ratio <= 1.1
