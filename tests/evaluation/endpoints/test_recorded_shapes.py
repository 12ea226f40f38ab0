"""Streams in the shapes of servers that cannot run here."""

from pathlib import Path
from typing import Any

import pytest
from asked import request, with_client
from scripted_endpoint import Answer, scripted_endpoint

from labctl.evaluation.endpoints.base import EndpointClient, Generation
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.opening import Api

SHAPES = Path(__file__).parents[2] / "fixtures/endpoints"
ENDS = (2, 5, 6, 7, 8)
IDS = (2181, 374, 220, 19, 13)
CHAT: Api = "openai-chat"
PLAIN: Api = "openai-completions"


def read(name: str, api: Api) -> Generation:
    async def use(client: EndpointClient) -> Generation:
        return await client.generate(request(api), timeout=10)

    body = (SHAPES / f"{name}.sse").read_bytes()
    told = Answer(body=body, headers={"Content-Type": "text/event-stream; charset=utf-8"})
    with scripted_endpoint({"": told}) as server:
        return with_client(server.address, api, use, served_name="m")


@pytest.mark.parametrize(
    ("name", "api", "expected"),
    [
        ("vllm_chat", CHAT, {"token_ends": (*ENDS, 8), "token_ids": (*IDS, 128009)}),
        (
            "vllm_completions",
            PLAIN,
            {"text": "It is 4", "finish": "length", "completion_tokens": 4}
            | {"token_ends": ENDS[:4], "token_ids": IDS[:4]},
        ),
        ("sglang_chat", CHAT, {"completion_tokens": 12, "prompt_tokens": 20, "cached_tokens": 16}),
        ("lmdeploy_chat", CHAT, {"completion_tokens": 5, "token_ids": IDS}),
        ("lmdeploy_completions", PLAIN, {"completion_tokens": 5, "token_ids": IDS}),
        ("mlc_chat", CHAT, {"finish": "length", "completion_tokens": 5, "token_ends": ENDS}),
        ("ray_serve_chat", CHAT, {}),
        ("openllm_chat", CHAT, {}),
        ("tgi_chat", CHAT, {"server": "3.3.0-sha"}),
    ],
)
def test_a_stream_is_read(name: str, api: Api, expected: dict[str, Any]) -> None:
    answer = read(name, api)
    usual: dict[str, Any] = {"text": "It is 4.", "finish": "stop", "prompt_tokens": 42}
    usual |= {"completion_tokens": 6, "counted_by": "usage", "token_ends": None, "token_ids": None}
    assert {key: getattr(answer, key) for key in {**usual, **expected}} == usual | expected


def test_thoughts_apart_from_the_answer_are_no_part_of_it_but_come_first() -> None:
    answer = read("sglang_chat", CHAT)
    assert answer.text == "It is 4."
    assert len(answer.arrivals) == 3


def test_an_answer_that_the_server_gives_up_is_asked_again(tmp_path: Path) -> None:
    with (
        scripted_endpoint({"": Answer("one", finish="abort")}) as server,
        pytest.raises(TryAgain, match="gave up the answer: abort"),
    ):
        with_client(server.address, CHAT, lambda c: c.generate(request(CHAT), timeout=5))
