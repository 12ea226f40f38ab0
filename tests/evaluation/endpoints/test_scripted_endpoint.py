"""The test double itself: what other tests rest on."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from scripted_endpoint import Answer, Asked, ScriptedEndpoint, scripted_endpoint

CHAT = "/v1/chat/completions"


def events(server: ScriptedEndpoint, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with httpx.stream("POST", server.address + path, json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_limit_of_tokens_is_one() -> None:
    with scripted_endpoint({"2 + 2": "It is four today."}) as server:
        body = {"prompt": "What is 2 + 2?", "n_predict": 2, "stream": True, "return_tokens": True}
        told = events(server, "/completion", body)
        whole = httpx.post(server.address + "/v1/completions", json={"prompt": "2 + 2"}).json()
        ids = httpx.post(server.address + "/tokenize", json={"content": "It is"}).json()["tokens"]
    assert [event["content"] for event in told] == ["It", " is", ""]
    assert [event["tokens"][0] for event in told[:2]] == ids
    assert told[-1]["stop_type"] == "limit"
    assert whole["choices"][0]["text"] == "It is four today."
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] == 5  # with the end token
    assert [request.text for request in server.answered] == ["What is 2 + 2?", "2 + 2"]


def test_stop_words_and_pieces_of_code_points_are_held_back() -> None:
    tokens = ["a", b"\xe2\x82", b"\xac", " <", "end", "> b"]
    with scripted_endpoint({"": tokens}) as server:
        body = {"prompt": "x", "stop": ["<end>"], "stream": True, "return_tokens": True}
        told = events(server, "/completion", body)
    assert [event["content"] for event in told] == ["a", "€", "", "", " ", ""]
    assert [event["tokens_predicted"] for event in told] == [1, 3, 4, 5, 6, 6]
    assert told[-1]["stop_type"] == "word"


def test_failures_come_as_scripted() -> None:
    def script(asked: Asked) -> Any:
        if asked.attempt == 1:
            return Answer(status=429, headers={"Retry-After": "7"})
        return Answer("one two three", reset_after=1)

    with scripted_endpoint(script) as server:
        ask = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        busy = httpx.post(server.address + CHAT, json=ask)
        assert (busy.status_code, busy.headers["Retry-After"]) == (429, "7")
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("POST", server.address + CHAT, json=ask) as answer,
        ):
            answer.read()
    assert [request.attempt for request in server.answered] == [1, 2]


def test_64_streams_keep_their_pace() -> None:
    answer = Answer([" x"] * 10, first_s=0.2, token_s=0.02)

    async def ask(client: httpx.AsyncClient) -> str:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        return (await client.post(CHAT, json=body)).text

    async def ask_all(address: str) -> list[str]:
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            return await asyncio.gather(*(ask(client) for _ in range(64)))

    with scripted_endpoint(lambda _: answer) as server:
        began = time.monotonic()
        texts = asyncio.run(ask_all(server.address))
        took = time.monotonic() - began
    assert all(text.count('" x"') == 10 for text in texts)
    assert server.most_at_once > 32
    assert 0.4 <= took < 64 * 0.4


def test_slots_make_the_others_wait() -> None:
    async def ask_both(address: str) -> None:
        async with httpx.AsyncClient(base_url=address) as client:
            await asyncio.gather(
                *(client.post("/v1/completions", json={"prompt": "x"}) for _ in range(2))
            )

    with scripted_endpoint(lambda _: Answer("a", first_s=0.1), slots=1) as server:
        asyncio.run(ask_both(server.address))
    first, second = sorted(request.done_ns or 0 for request in server.answered)
    assert second - first >= 0.09e9


def test_a_server_closes_with_streams_under_way() -> None:
    with (
        scripted_endpoint(lambda _: Answer(flood=True)) as server,
        httpx.stream(
            "POST", server.address + "/completion", json={"prompt": "x", "stream": True}
        ) as answer,
    ):
        next(answer.iter_bytes())
    assert server.answered
