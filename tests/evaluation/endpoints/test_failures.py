"""Servers that fail, that are slow, and that mean no good."""

import asyncio
import datetime
import email.utils
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked import APIS, ask, request, with_client
from certificates import self_signed
from conditions import until
from scripted_endpoint import Answer, Asked, scripted_endpoint

from labctl.errors import ConfigError, LabctlError, OutputNotUnderstood
from labctl.evaluation.endpoints.base import EndpointClient
from labctl.evaluation.endpoints.errors import Refused, TryAgain
from labctl.evaluation.endpoints.opening import Api, open_client
from labctl.evaluation.endpoints.retries import Answered, generate_with_retries

every_api = pytest.mark.parametrize("api", APIS)
SECRET = "sk-a-secret-of-the-lab"


def asked_again(
    address: str, api: Api = "openai-chat", *, timeout: float = 10, **more: Any
) -> Answered:
    async def use(client: EndpointClient) -> Answered:
        return await generate_with_retries(client, request(api), timeout=timeout, **more)

    return with_client(address, api, use)


@every_api
@pytest.mark.parametrize(
    "failure",
    [
        Answer(status=429, headers={"Retry-After": "0"}),
        Answer(status=503, headers={"Retry-After": "0"}),
        Answer(status=500),
        Answer("one two three", reset_after=0),
        Answer("one two three", reset_after=2),
        Answer("one two three", end_after=1),
        Answer("one two three", error_after=1),
    ],
    ids=["429", "503", "500", "reset", "reset in the stream", "early end", "error in the stream"],
)
def test_what_may_pass_is_tried_again_and_counted(api: Api, failure: Answer) -> None:
    def script(asked: Asked) -> Any:
        return failure if asked.attempt == 1 else "four"

    with scripted_endpoint(script) as server:
        answered = asked_again(server.address, api, most_wait_s=0.01)
    assert (answered.generation.text, answered.attempts) == ("four", 2)


def test_attempts_end_and_the_last_error_counts_them() -> None:
    with scripted_endpoint({"": Answer(status=502, message="bad gateway")}) as server:
        with pytest.raises(TryAgain, match="status 502: bad gateway") as failed:
            asked_again(server.address, attempts=3, most_wait_s=0.01)
        assert failed.value.attempts == len(server.answered) == 3


def test_a_refusal_is_not_tried_again() -> None:
    with scripted_endpoint({"": Answer(status=400, message="exceeds the context")}) as server:
        with pytest.raises(Refused, match="status 400: exceeds the context") as refused:
            asked_again(server.address, "llama-server")
        assert refused.value.status == 400
        assert len(server.answered) == 1


def dated(seconds: float) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return email.utils.format_datetime(now + datetime.timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("told", "low", "high"),
    [
        (lambda: "7", 7, 7),
        (lambda: "1.5", 1.5, 1.5),
        (lambda: dated(30), 25, 31),
        (lambda: dated(-30), 0, 0),
        (lambda: "-5", 0, 0),
    ],
)
def test_a_server_says_when_to_come_back(told: Callable[[], str], low: float, high: float) -> None:
    with (
        scripted_endpoint({"": Answer(status=429, headers={"Retry-After": told()})}) as server,
        pytest.raises(TryAgain) as busy,
    ):
        ask(server.address, "openai-chat")
    assert busy.value.retry_after_s is not None
    assert low <= busy.value.retry_after_s <= high


@pytest.mark.parametrize("told", ["soon", "nan", "inf", ""])
def test_a_time_that_is_none_is_not_waited_for(told: str) -> None:
    with (
        scripted_endpoint({"": Answer(status=429, headers={"Retry-After": told})}) as server,
        pytest.raises(TryAgain) as busy,
    ):
        ask(server.address, "openai-chat")
    assert busy.value.retry_after_s is None


def test_the_wait_is_kept_and_capped() -> None:
    def script(asked: Asked) -> Any:
        return Answer(status=429, headers={"Retry-After": waits[asked.attempt - 1]})

    waits = ["0.3", "3600", "0"]
    with scripted_endpoint(script) as server:
        with pytest.raises(TryAgain):
            asked_again(server.address, attempts=3, most_wait_s=0.5)
        first, second, third = (asked.arrived_ns for asked in server.answered)
    assert second - first >= 0.3e9
    assert 0.5e9 <= third - second < 60e9


@every_api
def test_a_time_out_is_told_as_one(api: Api) -> None:
    with (
        scripted_endpoint({"": Answer(hang=True)}) as server,
        pytest.raises(TryAgain, match=r"did not answer in 0\.2 s"),
    ):
        ask(server.address, api, timeout=0.2)


def test_a_trickle_ends_with_the_whole_time_and_a_silence_before() -> None:
    async def use(client: EndpointClient) -> None:
        await client.generate(request("openai-chat"), timeout=20)

    with (
        scripted_endpoint({"": Answer("word " * 60, token_s=0.05)}) as server,
        pytest.raises(TryAgain, match=r"did not answer in 0\.3 s"),
    ):
        ask(server.address, "openai-chat", timeout=0.3)
    with (
        scripted_endpoint({"": Answer("word " * 60, token_s=5)}) as server,
        pytest.raises(TryAgain, match="timed out"),
    ):
        with_client(server.address, "openai-chat", use, silence_s=0.2)


def test_a_server_that_is_not_there_may_come() -> None:
    with scripted_endpoint({"": "x"}) as server:
        gone = server.address
    with pytest.raises(TryAgain, match=r"lost http://127\.0\.0\.1:[0-9]+: Connection refused"):
        ask(gone, "llama-server", timeout=5)


@every_api
def test_a_flood_is_ended_and_no_connection_is_left(api: Api) -> None:
    with (
        scripted_endpoint({"": Answer(flood=True)}) as server,
        pytest.raises(OutputNotUnderstood, match="pieces, the limit was 64 tokens"),
    ):
        ask(server.address, api)


@every_api
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"choices": 7, "content": 7, "token": 7}',
        b"\xff",
        b'{"\\ud83d": 1',
        b"[" * 9999,
    ],
)
def test_what_is_no_answer_is_not_understood(api: Api, body: bytes) -> None:
    with (
        scripted_endpoint({"": Answer(body=body)}) as server,
        pytest.raises(OutputNotUnderstood, match="the server's answer: "),
    ):
        ask(server.address, api)


def test_half_a_surrogate_is_no_text() -> None:
    """It could not be written to a record."""
    body = b'{"choices": [{"message": {"content": "\\ud83d"}, "finish_reason": "stop"}]}'
    with (
        scripted_endpoint({"": Answer(body=body)}) as server,
        pytest.raises(OutputNotUnderstood),
    ):
        ask(server.address, "openai-chat")


def test_messages_of_servers_are_short_and_harm_no_terminal() -> None:
    with (
        scripted_endpoint({"": Answer(status=400, message="\x1b[2J" + "x" * 9999)}) as server,
        pytest.raises(Refused) as refused,
    ):
        ask(server.address, "openai-chat")
    assert "\x1b" not in refused.value.message
    assert len(refused.value.message) < 700


@every_api
def test_the_key_goes_to_its_server_alone_and_nowhere_else(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", SECRET)

    async def use(client: EndpointClient) -> str:
        return (await client.generate(request(api), timeout=10)).text

    with scripted_endpoint({"": f"your key is {SECRET}!"}) as server:
        server.key = SECRET
        assert with_client(server.address, api, use, key_env="LAB_KEY") == "your key is ***!"
        server.key = "another"
        with pytest.raises(ConfigError, match=r"status 401: no such key: Bearer \*\*\*") as wrong:
            with_client(server.address, api, use, key_env="LAB_KEY")
    assert SECRET not in f"{wrong.value!r} {wrong.value.details} {wrong.value.__cause__!r}"
    assert "key_env" in (wrong.value.hint or "")


@every_api
@pytest.mark.parametrize("key", ["x", "EMPTY", "sk-1234"])
def test_a_short_key_is_kept_out_of_messages_and_garbles_no_answer(
    api: Api, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Local servers take such ones, which are words of any answer."""
    monkeypatch.setenv("LAB_KEY", key)
    answer = f"the next {key} of EMPTY boxes; {key}, x{key}y"

    async def use(client: EndpointClient) -> str:
        return (await client.generate(request(api), timeout=10)).text

    with scripted_endpoint({"": answer}) as server:
        server.key = key
        assert with_client(server.address, api, use, key_env="LAB_KEY") == answer
        server.key = "another"
        with pytest.raises(ConfigError, match=r"status 401: no such key: Bearer \*\*\*$") as wrong:
            with_client(server.address, api, use, key_env="LAB_KEY")
    shown = f"{wrong.value.details} {wrong.value.__cause__!r} {wrong.value.message}"
    assert key not in re.split(r"[^\w-]+", shown)


def test_a_server_that_is_named_like_the_key_is_not_recorded_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAB_KEY", SECRET)

    async def use(client: EndpointClient) -> str | None:
        asked = request("openai-chat", likeliest=5)  # comes in one piece, with the header
        return (await client.generate(asked, timeout=10)).server

    named = Answer("B", top={"B": -0.1}, headers={"Server": f"for {SECRET}"})
    with scripted_endpoint({"": named}) as server:
        told = with_client(server.address, "openai-chat", use, key_env="LAB_KEY")
    assert told is not None
    assert "for ***" in told
    assert SECRET not in told


def test_a_redirect_takes_no_key_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", SECRET)

    async def use(client: EndpointClient) -> None:
        await client.generate(request("openai-chat"), timeout=10)

    with scripted_endpoint({"": "x"}) as other:
        leads = Answer(status=307, headers={"Location": f"{other.address}/v1/chat/completions"})
        with (
            scripted_endpoint({"": leads}) as server,
            pytest.raises(ConfigError, match=r"redirects to 127\.0\.0\.1:"),
        ):
            with_client(server.address, "openai-chat", use, key_env="LAB_KEY")
        assert not other.requests


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "LAB_KEY, .* is not set"),
        ("", "is not set"),
        ("a\nb", "the key in LAB_KEY contains"),
    ],
)
def test_a_key_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, value: str | None, said: str
) -> None:
    monkeypatch.delenv("LAB_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("LAB_KEY", value)
    with pytest.raises(ConfigError, match=said) as refused:
        open_client(api="openai-chat", address="http://127.0.0.1:1", key_env="LAB_KEY")
    assert value is None or not value or value not in refused.value.message


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:80",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://me:pw@host",
        "http://h?a=b",
    ],
)
def test_an_address_that_cannot_be_used(address: str) -> None:
    with pytest.raises(ConfigError, match="the address of ") as refused:
        open_client(api="openai-chat", address=address)
    assert "pw" not in refused.value.message


@pytest.mark.parametrize(
    "behind", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/chat/completions"]
)
def test_an_address_is_understood_as_people_write_it(behind: str) -> None:
    with scripted_endpoint({"": "x"}) as server:
        assert ask(server.address + behind, "openai-chat").text == "x"
        assert {asked.path for asked in server.requests} == {"/v1/models", "/v1/chat/completions"}


def test_a_path_that_is_not_there_is_the_users() -> None:
    with scripted_endpoint({"": "x"}) as server:
        with pytest.raises(ConfigError, match="/other lists no model") as wrong:
            ask(server.address + "/other", "openai-completions")
        assert "check the address" in (wrong.value.hint or "")
        with pytest.raises(ConfigError, match="status 404") as wrong:
            ask(server.address + "/other", "llama-server")
        assert "check the address" in (wrong.value.hint or "")


def test_no_more_connections_than_asked_for_and_waiting_costs_no_time() -> None:
    async def use(client: EndpointClient) -> list[int]:
        many = (client.generate(request("llama-server"), timeout=2) for _ in range(44))
        return [answer.done_ns - answer.sent_ns for answer in await asyncio.gather(*many)]

    with scripted_endpoint({"": Answer("x", first_s=0.1)}) as server:
        began = time.monotonic()
        took = with_client(server.address, "llama-server", use, connections=2)
        assert time.monotonic() - began >= 2.2  # longer than each may take
        assert server.most_at_once == 2
    assert max(took) < 2e9


def test_a_server_that_closes_each_stream_loses_no_request() -> None:
    """As llama-server does, which announces to keep the connection."""

    async def use(client: EndpointClient) -> list[str]:
        asked = request("llama-server")
        return [(await client.generate(asked, timeout=10)).text for _ in range(30)]

    with scripted_endpoint({"": "x"}) as server:
        assert with_client(server.address, "llama-server", use, connections=1) == ["x"] * 30


def test_giving_up_ends_the_request_on_the_server() -> None:
    async def use(client: EndpointClient) -> None:
        task = asyncio.create_task(client.generate(request("llama-server"), timeout=60))
        await until(lambda: server.answered and server.answered[0].sent_ns)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.answered[0].broke_off)

    with scripted_endpoint({"": Answer("word " * 5000, token_s=0.01)}) as server:
        with_client(server.address, "llama-server", use)


def test_a_certificate_is_checked_until_the_user_vouches_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    bundle = self_signed(tmp_path)
    context.load_cert_chain(bundle)
    with scripted_endpoint({"": "x"}, tls=context) as server:
        with pytest.raises(LabctlError, match="certificate verify failed"):
            ask(server.address, "llama-server", timeout=5)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
        assert ask(server.address, "llama-server").text == "x"
