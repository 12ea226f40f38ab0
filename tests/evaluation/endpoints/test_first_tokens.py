"""The first token of an answer, and the number of tokens after it, by servers' odd streams."""

from typing import Any

import pytest
from asked import ask, request, with_client
from scripted_endpoint import Answer, Asked, scripted_endpoint

from labctl.evaluation.endpoints.base import EndpointClient, Generation
from labctl.evaluation.endpoints.counting import check_count
from labctl.evaluation.endpoints.opening import Api
from labctl.evaluation.endpoints.tokens import Event, pieces_with_tokens

STEP = 0.03
MS = 1_000_000
DONE = b"data: [DONE]\n\n"


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def usage(count: int, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count, **more}}


def usage_of(count: int) -> dict[str, Any]:
    return {"usage": {"completion_tokens": count}}


def timed(*events: Any, finish: str = "length", count: int, **more: Any) -> Answer:
    """Send the events one STEP after another, and the end with the last one."""
    at = [(STEP * (number + 1), event) for number, event in enumerate(events)]
    end = STEP * len(events)
    return Answer(stream=[*at, (end, chat({}, finish)), (end, usage(count, **more)), (end, DONE)])


def asked(answer: Answer, api: Api = "openai-chat", **more: Any) -> Generation:
    with scripted_endpoint({"": answer}) as server:
        return ask(server.address, api, offsets=False, **more)


TEXTS = [chat({"content": " w"}) for _ in range(4)]
TIMINGS = {"prompt_ms": 1.0, "predicted_ms": 2.0, "predicted_n": 4, "cache_n": 6}
HIDDEN = {"completion_tokens_details": {"reasoning_tokens": 20}}


@pytest.mark.parametrize(
    ("answer", "after_first"),
    [
        (timed(*TEXTS, count=4), 3),
        (timed(chat({"content": " w" * 6}), *TEXTS, count=10), None),
        (timed(chat({"content": " w" * 20}), *TEXTS, count=5), None),  # out of proportion
        (timed(chat({"thinking": " t"}), *TEXTS, count=5), 4),
        (
            timed(
                chat({"reasoning": " t", "reasoning_details": [{"text": " t"}]}), *TEXTS, count=5
            ),
            4,
        ),
        (timed(chat({"content": "", "notes_to_self": [{"text": " t"}]}), *TEXTS, count=5), 4),
        (timed(chat({"content": [{"type": "thinking", "thinking": " t"}]}), *TEXTS, count=5), 4),
        (timed(chat({"tool_calls": [{"function": {"arguments": "{"}}]}), *TEXTS, count=5), 4),
        (timed(*TEXTS, count=24, **HIDDEN), 3),
        (timed(*TEXTS, count=24, reasoning_tokens=20), 3),
        (timed(chat({"content": " w w"}), *TEXTS, count=26, **HIDDEN), None),
        (timed(*TEXTS, count=24), None),
        (
            timed(
                *TEXTS,
                chat({"content": ""}, "length"),
                chat({"content": ""}) | usage_of(4),
                count=4,
            ),
            3,
        ),
        (timed(chat({"role": "assistant", "content": "", "channel": "final"}), *TEXTS, count=4), 3),
        (timed(*(chat({"content": " w"}) | usage_of(n) for n in (3, 4, 7)), count=7), 4),
        (timed(*(chat({"content": " w"}) | usage_of(7) for n in range(3)), count=7), 0),
        (timed(chat({"role": "assistant", "content": ""}), *TEXTS, count=4), 3),
        (timed(chat({"content": " w" * 6}, token_ids=[1] * 6), *TEXTS, count=10), None),
        (
            timed(
                chat({"content": " w" * 6}, token_ids=[1] * 6),
                *(chat({"content": " w"}, token_ids=[2]) for _ in range(4)),
                count=10,
            ),
            4,
        ),
        (
            timed(
                chat({"role": "assistant", "content": ""}, output_ids=[1, 2]),
                *(chat({"content": " w"}, output_ids=[3]) for _ in range(4)),
                count=6,
            ),
            4,
        ),
    ],
)
def test_only_tokens_known_to_come_after_the_first_piece_are_timed(
    answer: Answer, after_first: int | None
) -> None:
    assert asked(answer).tokens_after_first == after_first


def test_a_first_token_without_text_counts_and_an_announcement_does_not() -> None:
    """A server that holds back what may become a stop word sends its first tokens without text."""
    held = [chat({"content": ""}) for _ in range(3)]
    role = chat({"role": "assistant", "content": ""})
    answer = asked(timed(role, *held, chat({"content": "four"}), count=4))
    assert (len(answer.arrivals), answer.tokens_after_first) == (4, 3)
    assert 1.9 * STEP <= (answer.arrivals[0] - answer.sent_ns) / 1e9 < 4 * STEP
    # Here the events without text are not tokens: something that keeps the connection open.
    answer = asked(timed(role, *held, *TEXTS, count=4))
    assert (len(answer.arrivals), answer.tokens_after_first) == (4, 3)
    assert (answer.arrivals[0] - answer.sent_ns) / 1e9 >= 4.9 * STEP


def test_completions_hold_back_text_too() -> None:
    def piece(text: str, ids: list[int]) -> dict[str, Any]:
        return {"choices": [{"index": 0, "text": text, "token_ids": ids}]}

    stream = [(STEP * n, piece("", [n])) for n in range(1, 4)]
    stream += [(STEP * 4, piece("four", [4, 5])), (STEP * 5, usage(5)), (STEP * 5, DONE)]
    answer = asked(Answer(stream=stream), "openai-completions")
    assert (len(answer.arrivals), answer.tokens_after_first) == (4, 4)
    assert (answer.text, answer.finish) == ("four", "unknown")


def test_an_end_token_is_one_only_if_it_took_its_time() -> None:
    pieces = [Event(n * 50 * MS, 5) for n in range(10)]

    def after(done: int, stopped: bool = True) -> int | None:
        found = pieces_with_tokens(pieces, count=11, hidden=0, stopped=stopped, done_ns=done * MS)
        return found[1]

    assert after(500) == 10
    assert after(451) is None
    assert after(500, stopped=False) is None


def test_a_token_more_hardly_matters_among_hundreds() -> None:
    """A character of two tokens: whether they came first changes nothing."""
    pieces = [Event(n * 50 * MS, 5) for n in range(200)]
    found = pieces_with_tokens(pieces, count=202, hidden=0, stopped=False, done_ns=9950 * MS)
    assert found[1] == 199


@pytest.mark.parametrize("status", [400, 422, 500])
def test_loads_ask_for_counts_until_they_are_refused(status: int) -> None:
    def script(question: Asked) -> Any:
        if "continuous_usage_stats" in question.body["stream_options"]:
            return Answer(status=status, message="unknown field")
        return "four"

    async def twice(client: EndpointClient) -> list[str]:
        wanted = request("openai-chat", offsets=False, token_times=True)
        return [(await client.generate(wanted, timeout=10)).text for _ in range(2)]

    with scripted_endpoint(script) as server:
        assert with_client(server.address, "openai-chat", twice) == ["four", "four"]
        sent = ["continuous_usage_stats" in one.body["stream_options"] for one in server.answered]
    assert sent == [True, False, False]


@pytest.mark.parametrize(
    ("owner", "asked_for"),
    [
        ("vllm", {"return_token_ids": True}),
        ("sglang", {"return_token_ids": True}),
        ("lmdeploy", {"return_token_ids": True}),
        ("llamacpp", {"timings_per_token": True}),
        ("organization", {}),
    ],
)
def test_each_server_is_asked_in_its_way(owner: str, asked_for: dict[str, bool]) -> None:
    with scripted_endpoint({"": "four"}) as server:
        server.facts["/v1/models"] = {"data": [{"id": "m", "owned_by": owner}]}
        answer = ask(server.address, "openai-chat", offsets=False, token_times=True)
        body = server.answered[0].body
    keys = ("return_token_ids", "timings_per_token")
    assert {key: body[key] for key in keys if key in body} == asked_for
    assert answer.tokens_after_first == 1


def test_prompt_tokens_of_a_cache_are_known_from_usage_or_timings() -> None:
    cached = {"prompt_tokens_details": {"cached_tokens": 5}}
    told = [usage(4, **cached), usage(4) | {"timings": TIMINGS}, usage(4)]
    found = [
        asked(Answer(stream=[*((0.0, one) for one in (*TEXTS, end)), (0.0, DONE)])).cached_tokens
        for end in told
    ]
    assert found == [5, 6, None]


def test_thoughts_are_kept_and_counted() -> None:
    """The tokenizer's count of the answer alone would be no count of what was generated."""
    thoughts = [chat({"reasoning_content": " two and two"})] * 5
    events = [*thoughts, chat({"content": "four"}, "stop")]
    stream = [(0.0, event) for event in events]
    without = asked(Answer(stream=[*stream, (0.0, DONE)]))
    assert (without.text, without.thoughts) == ("four", " two and two" * 5)
    assert (without.completion_tokens, without.counted_by) == (16, "tokenizer")

    async def counted(client: EndpointClient) -> bool:
        wanted = request("openai-chat", offsets=False)
        check = await check_count(client, await client.generate(wanted, timeout=10))
        assert check is not None
        return check.agrees

    for end in (usage(17), usage(41, completion_tokens_details={"reasoning_tokens": 40})):
        shown = stream if end == usage(17) else stream[-1:]
        with scripted_endpoint({"": Answer(stream=[*shown, (0.0, end), (0.0, DONE)])}) as server:
            assert with_client(server.address, "openai-chat", counted)


@pytest.mark.parametrize("first", [0, 1])
def test_two_answers_in_a_stream_are_not_interleaved(first: int) -> None:
    def piece(index: int, text: str, finish: str | None = None) -> tuple[float, Any]:
        part = {"index": index, "delta": {"content": text}, "finish_reason": finish}
        return 0.0, {"choices": [part]}

    texts = {0: ("one", " two"), 1: ("three", " four")}
    stream = [piece(index, texts[index][n]) for n in (0, 1) for index in (first, 1 - first)]
    stream += [piece(0, "", "stop"), piece(1, "", "length"), (0.0, usage(4)), (0.0, DONE)]
    answer = asked(Answer(stream=stream), max_tokens=2)
    assert (answer.text, answer.finish, answer.completion_tokens) == ("one two", "stop", 4)
    assert answer.tokens_after_first is None


@pytest.mark.parametrize("end", [DONE, b"data: [DONE]", b"data: [DONE]\n"])
def test_an_answer_without_the_reason_of_its_end_is_kept(end: bytes) -> None:
    answer = asked(Answer(stream=[(0.0, TEXTS[0]), (0.0, usage(1)), (0.0, end)]))
    assert (answer.text, answer.finish, answer.completion_tokens) == (" w", "unknown", 1)


def test_an_event_at_the_end_of_a_stream_counts() -> None:
    last = b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 9}}'
    stream = [(0.0, TEXTS[0]), (0.0, chat({}, "stop")), (0.0, last)]
    assert asked(Answer(stream=stream)).completion_tokens == 9


def test_max_completion_tokens_is_used_where_it_is_demanded() -> None:
    def script(question: Asked) -> Any:
        if "max_tokens" in question.body:
            return Answer(status=400, message="use 'max_completion_tokens' instead of 'max_tokens'")
        return "one two three"

    async def twice(client: EndpointClient) -> list[int | None]:
        wanted = request("openai-chat", max_tokens=2, offsets=False)
        found = [await client.generate(wanted, timeout=10) for _ in range(2)]
        return [one.completion_tokens for one in found]

    with scripted_endpoint(script) as server:
        assert with_client(server.address, "openai-chat", twice) == [2, 2]
        assert ["max_tokens" in one.body for one in server.answered] == [True, False, False]


def test_as_many_likeliest_tokens_as_the_server_allows() -> None:
    def script(question: Asked) -> Any:
        if question.body["top_logprobs"] > 5:
            said = "Requested sample logprobs of 20, which is greater than max allowed: 5"
            return Answer(status=400, message=said)
        return Answer("B", top={"A": -1.0, "B": -0.5})

    async def twice(client: EndpointClient) -> list[object]:
        wanted = request("openai-chat", offsets=False, likeliest=20)
        return [(await client.generate(wanted, timeout=10)).likeliest for _ in range(2)]

    with scripted_endpoint(script) as server:
        assert all(with_client(server.address, "openai-chat", twice))
        assert [one.body["top_logprobs"] for one in server.answered] == [20, 5, 5]


@pytest.mark.parametrize("path", ["/tokenize", "/v1/encode"])
def test_a_tokenizer_is_one_by_its_answer(path: str) -> None:
    async def tokens(client: EndpointClient) -> tuple[int, ...] | None:
        await client.tokenize("It is")
        return await client.tokenize("It is")

    for found, expected in (
        ({"tokens": [3, 4]}, (3, 4)),
        ({"input_ids": [3, 4], "length": 2}, (3, 4)),
        ({"text": "It is"}, None),
        ({"tokens": ["It", " is"]}, None),
    ):
        with scripted_endpoint({"": "x"}) as server:
            server.missing |= {"/tokenize"}
            server.facts = {path: found}
            assert with_client(server.address, "openai-chat", tokens) == expected
