"""Answers through each API, from a server whose answers are known."""

import pytest
from asked import APIS, ask, request, with_client
from scripted_endpoint import Answer, scripted_endpoint

from labctl.errors import ConfigError, OutputNotUnderstood
from labctl.evaluation.endpoints.base import EndpointClient, Message, ServerIdentity
from labctl.evaluation.endpoints.counting import CountCheck, check_count
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.opening import Api

EURO = ["The", " price", " is", " ", b"\xe2\x82", b"\xac", "4", "."]
TEXT = "The price is €4."
ENDS = (3, 9, 12, 13, 13, 14, 15, 16, 16)

every_api = pytest.mark.parametrize("api", APIS)


@every_api
def test_an_answer_comes_with_its_tokens_and_counts(api: Api) -> None:
    with scripted_endpoint({"2 + 2": Answer(EURO, first_s=0.05, token_s=0.01)}) as server:
        answer = ask(server.address, api)
    assert answer.text == TEXT
    assert answer.finish == "stop"
    assert (answer.completion_tokens, answer.counted_by) == (9, "usage")
    assert answer.prompt_tokens == 5
    assert answer.sent_ns + 50e6 <= answer.arrivals[0] < answer.arrivals[-1] <= answer.done_ns
    assert answer.sent_ns + 120e6 <= answer.arrivals[-1]
    if api == "openai-completions":  # its tokens are texts: half a code point is none
        assert answer.token_ends is None
    else:
        assert answer.token_ends == ENDS


@every_api
def test_each_limit_gives_the_text_up_to_its_token(api: Api) -> None:
    with scripted_endpoint({"2 + 2": "It is four, which is \\boxed{4}."}) as server:
        whole = ask(server.address, api)
        assert whole.token_ends is not None
        assert len(whole.token_ends) == whole.completion_tokens == 7
        for limit in range(1, 8):
            limited = ask(server.address, api, max_tokens=limit, offsets=False)
            assert limited.text == whole.text[: whole.token_ends[limit - 1]]
            assert limited.finish == ("stop" if limit == 7 else "length")
            assert limited.completion_tokens == limit


@every_api
def test_a_stop_word_ends_the_answer_and_is_not_in_it(api: Api) -> None:
    with scripted_endpoint({"2 + 2": ["four", "<", "end", ">", " more"]}) as server:
        answer = ask(server.address, api, stop=("<end>",))
    assert (answer.text, answer.finish) == ("four", "stop")
    assert answer.completion_tokens == 4
    assert answer.token_ends == (4, 4, 4, 4)


@every_api
def test_sampling_is_asked_for(api: Api) -> None:
    with scripted_endpoint({"": "x"}) as server:
        ask(
            server.address, api, temperature=0.7, top_p=0.9, seed=5, extra_body={"ignore_eos": True}
        )
        body = server.answered[0].body
    assert body["ignore_eos"] is True
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.7, 0.9, 5)
    assert body.get("cache_prompt") is (False if api == "llama-server" else None)


def test_llama_server_lays_messages_out_with_the_models_template() -> None:
    async def use(client: EndpointClient) -> str:
        asked = request("llama-server").__class__((Message("user", "2 + 2"),), 8)
        return (await client.generate(asked, timeout=10)).text

    with scripted_endpoint({"<|user|>2 + 2<|assistant|>": "four"}) as server:
        assert with_client(server.address, "llama-server", use) == "four"


@pytest.mark.parametrize(
    ("api", "prompt"),
    [("openai-chat", "text"), ("openai-completions", "messages")],
)
def test_a_prompt_in_another_form_is_refused_before_it_is_sent(api: Api, prompt: str) -> None:
    async def use(client: EndpointClient) -> None:
        form: Api = "openai-completions" if prompt == "text" else "openai-chat"
        await client.generate(request(form), timeout=10)

    with scripted_endpoint({"": "x"}) as server:
        with pytest.raises(ConfigError, match=f"api {api} takes"):
            with_client(server.address, api, use)
        assert not server.answered


def test_no_limit_is_what_the_context_has_left() -> None:
    """Completions end after 16 tokens where no limit is named."""
    with scripted_endpoint({"": "word " * 150}, context=1000) as server:
        assert ask(server.address, "openai-completions", max_tokens=None).finish == "stop"
        assert server.answered[0].body["max_tokens"] == 991
        server.missing.add("/tokenize")
        with pytest.raises(ConfigError, match="`unlimited` is not possible here"):
            ask(server.address, "openai-completions", max_tokens=None)


@pytest.mark.parametrize("api", ["openai-chat", "llama-server"])
def test_no_limit_is_none(api: Api) -> None:
    with scripted_endpoint({"": "word " * 150}) as server:
        assert ask(server.address, api, max_tokens=None).finish == "stop"
        assert server.answered[0].body.get("n_predict", -1) == -1
        assert "max_tokens" not in server.answered[0].body


def test_without_usage_the_tokenizer_counts_and_without_one_the_stream() -> None:
    answer = Answer(["It is", " four", " today"], no_usage=True, no_tokens=True)
    with scripted_endpoint({"": answer}) as server:
        counted = ask(server.address, "openai-chat")
        assert (counted.completion_tokens, counted.counted_by) == (4, "tokenizer")
        server.missing.add("/tokenize")
        counted = ask(server.address, "openai-chat")
        assert (counted.completion_tokens, counted.counted_by) == (3, "stream")
        assert counted.token_ends is None


@every_api
def test_a_count_is_held_against_the_tokenizer(api: Api) -> None:
    async def counted(client: EndpointClient) -> CountCheck | None:
        return await check_count(client, await client.generate(request(api), timeout=10))

    text = "word " * 20
    with scripted_endpoint({"": text}) as server:
        assert with_client(server.address, api, counted) == CountCheck(22, 21)
        server.missing.add("/tokenize")
        assert with_client(server.address, api, counted) is None
    assert CountCheck(22, 21).agrees
    with scripted_endpoint({"": Answer(text, usage=60, no_tokens=True)}) as server:
        found = with_client(server.address, api, counted)
    assert found is not None
    assert not found.agrees


@every_api
def test_a_server_that_does_not_keep_the_limit_is_not_measured(api: Api) -> None:
    with (
        scripted_endpoint({"": Answer("one two", usage=900)}) as server,
        pytest.raises(OutputNotUnderstood, match="generated 900 tokens, the limit was 64"),
    ):
        ask(server.address, api)


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_a_count_below_the_tokens_that_came_is_a_lie(api: Api) -> None:
    with (
        scripted_endpoint({"": Answer("one two three four", usage=2)}) as server,
        pytest.raises(OutputNotUnderstood, match="counts 2 tokens, but sent 5"),
    ):
        ask(server.address, api)


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_a_usage_of_zeros_beside_text_is_no_usage(api: Api) -> None:
    """The whole answer would count as one within the smallest budget."""
    with scripted_endpoint({"": Answer("one two three", usage=0, no_tokens=True)}) as server:
        counted = ask(server.address, api)
    assert (counted.completion_tokens, counted.counted_by) == (3, "tokenizer")


def test_a_usage_without_the_count_of_the_answer_is_none() -> None:
    body = b'{"choices": [{"index": 0, "text": "It is four", "finish_reason": "stop"}],'
    body += b'"usage": {"prompt_tokens": 3, "total_tokens": 3}}'
    with scripted_endpoint({"": Answer(body=body)}) as server:
        counted = ask(server.address, "openai-completions")
    assert (counted.completion_tokens, counted.counted_by) == (3, "tokenizer")


def test_a_count_that_is_no_count_of_tokens_gives_no_ends() -> None:
    """A count is held against the events; a billion of them fills no memory."""
    with scripted_endpoint({"": Answer("one two", usage=10**9)}) as server:
        answer = ask(server.address, "llama-server", max_tokens=None)
    assert (answer.completion_tokens, answer.token_ends) == (10**9, None)


def test_an_unknown_end_is_unknown() -> None:
    with scripted_endpoint({"": Answer("no", finish="content_filter")}) as server:
        assert ask(server.address, "openai-chat").finish == "unknown"


def test_a_server_that_refuses_to_tell_tokens_is_asked_without() -> None:
    def script(asked):  # type: ignore[no-untyped-def]
        if "logprobs" in asked.body:
            return Answer(status=400, message="logprobs are not supported")
        return "four"

    async def twice(client: EndpointClient) -> list[str]:
        return [(await client.generate(request("openai-chat"), timeout=10)).text for _ in range(2)]

    with scripted_endpoint(script) as server:
        assert with_client(server.address, "openai-chat", twice) == ["four", "four"]
        assert ["logprobs" in asked.body for asked in server.answered] == [True, False, False]


def test_a_server_that_does_not_stream_is_read_in_one_piece() -> None:
    body = b'{"choices": [{"message": {"content": "four"}, "finish_reason": "stop"}],'
    body += b'"usage": {"prompt_tokens": 3, "completion_tokens": 2}}'
    with scripted_endpoint({"": Answer(body=body)}) as server:
        answer = ask(server.address, "openai-chat")
    assert (answer.text, answer.completion_tokens, len(answer.arrivals)) == ("four", 2, 1)


def test_a_thought_and_its_answer_in_one_piece_arrive_once() -> None:
    """Two arrivals at one moment would be 0 ns a token, within every limit."""
    body = b'{"choices": [{"message": {"reasoning_content": "two and two", "content": "four"},'
    body += b'"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}'
    with scripted_endpoint({"": Answer(body=body)}) as server:
        answer = ask(server.address, "openai-chat")
    assert (answer.text, answer.completion_tokens, len(answer.arrivals)) == ("four", 9, 1)


@every_api
def test_a_server_says_what_it_is(api: Api) -> None:
    async def use(client: EndpointClient) -> tuple[ServerIdentity, object]:
        return await client.identify(), await client.tokenize("It is")

    with scripted_endpoint({"": "x"}) as server:
        identity, tokens = with_client(server.address, api, use)
        assert len(tokens or ()) == 2
        server.missing |= {"/tokenize", "/v1/models", "/props"}
        nothing, tokens = with_client(server.address, api, use, served_name="x")
    assert identity.served_names == ("scripted",)
    assert identity.context == 4096
    if api == "llama-server":
        assert identity.server == "llama-server b1-scripted"
    assert (nothing, tokens) == (ServerIdentity(), None)


def test_one_of_several_models_must_be_named() -> None:
    async def use(client: EndpointClient) -> None:
        await client.generate(request("openai-chat"), timeout=10)

    with scripted_endpoint({"": "x"}) as server:
        with_client(server.address, "openai-chat", use)
        with_client(server.address, "openai-chat", use, served_name="other")
        assert [asked.body["model"] for asked in server.answered] == ["scripted", "other"]
        server.models = ["a", "b"]
        with pytest.raises(ConfigError, match="serves a, b"):
            with_client(server.address, "openai-chat", use)


def test_another_model_than_the_named_one_is_no_answer() -> None:
    async def use(client: EndpointClient) -> None:
        await client.generate(request("llama-server"), timeout=10)

    with (
        scripted_endpoint({"": "x"}) as server,
        pytest.raises(OutputNotUnderstood, match="not big"),
    ):
        with_client(server.address, "llama-server", use, served_name="big")


@every_api
def test_an_answer_that_ends_early_is_asked_again(api: Api) -> None:
    with (
        scripted_endpoint({"": Answer("one two three", end_after=2)}) as server,
        pytest.raises(TryAgain, match="ended before it was complete"),
    ):
        ask(server.address, api)
