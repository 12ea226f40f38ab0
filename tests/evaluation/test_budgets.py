"""One long generation at smaller budgets, held against a server that really has the limit."""

import datetime

import pytest
from asked import request, with_client
from scripted_endpoint import Answer, scripted_endpoint

from labctl.evaluation.budgets import (
    can_cut,
    check_truncation,
    cut,
    equal_tokens,
    tokens_within,
)
from labctl.evaluation.endpoints.base import EndpointClient, Generation
from labctl.evaluation.endpoints.opening import Api
from labctl.records.evaluation import GenerationRecord
from labctl.records.trial import Failure

EURO = ["The", " price", " is", " ", b"\xe2\x82", b"\xac", "4", ".", " <", "end", ">", "x"]


def record(**more: object) -> GenerationRecord:
    told: dict[str, object] = {
        "question": "q1",
        "variant": "m/p",
        "max_tokens": 8,
        "stated_budget": None,
        "endpoint": "e",
        "text": "one two three",
        "finish": "stop",
        "completion_tokens": 4,
        "token_ends": (3, 7, 13, 13),
        "sent": datetime.datetime.now(datetime.UTC),
        "total_ns": 1,
    }
    return GenerationRecord.model_validate(told | more)


def as_record(answer: Generation, max_tokens: int | None) -> GenerationRecord:
    return record(
        max_tokens=max_tokens,
        text=answer.text,
        finish=answer.finish,
        completion_tokens=answer.completion_tokens,
        token_ends=answer.token_ends,
    )


@pytest.mark.parametrize("api", ["llama-server", "openai-chat"])
@pytest.mark.parametrize("stop", [(), ("<end>",)])
def test_a_cut_is_what_a_server_with_that_limit_answers(api: Api, stop: tuple[str, ...]) -> None:
    async def use(client: EndpointClient) -> list[Generation]:
        return [
            await client.generate(request(api, max_tokens=limit, stop=stop), timeout=10)
            for limit in range(1, 16)
        ]

    with scripted_endpoint({"": Answer(EURO)}) as server:
        limited = with_client(server.address, api, use)
    longest = as_record(limited[-1], 15)
    assert longest.finish == "stop"
    for limit, answer in enumerate(limited, 1):
        if api != "llama-server" and stop and limit in (9, 10):
            continue  # these give a part of a stop word; a whole answer does not have it
        found = cut(longest, limit)
        assert (found.text, found.finish) == (answer.text, answer.finish), limit
        assert found.tokens == answer.completion_tokens
        assert found.complete is (answer.finish == "stop")
        assert found.truncated_here is (limit < (longest.completion_tokens or 0))


def test_an_answer_without_ends_is_cut_only_where_it_was_over_before() -> None:
    unknown = record(token_ends=None)
    assert [can_cut(unknown, budget) for budget in (3, 4, 8, 9, None)] == [
        False,
        *[True] * 4,
    ]
    assert cut(unknown, 4).complete
    with pytest.raises(ValueError, match="question q1 cannot be cut at 3 tokens"):
        cut(unknown, 3)


@pytest.mark.parametrize(
    "ends", [(3, 7, 13), (3, 7, 13, 99), (7, 3, 13, 13), (-1, 3, 7, 13), (3, 7, 13, 13, 13)]
)
def test_ends_that_cannot_be_are_not_used(ends: tuple[int, ...]) -> None:
    assert not can_cut(record(token_ends=ends), 2)


def test_what_a_limit_ended_says_nothing_of_larger_ones() -> None:
    ended = record(finish="length", max_tokens=4)
    assert [can_cut(ended, budget) for budget in (2, 4, 5, None)] == [True, True, False, False]
    assert not cut(ended, 4).complete
    assert not cut(ended, 4).truncated_here


def test_an_answer_that_the_server_ended_early_stays_incomplete() -> None:
    """Its context was full before the limit."""
    full = cut(record(finish="length", max_tokens=100), 50)
    assert (full.text, full.complete, full.tokens) == ("one two three", False, 4)


def test_an_end_that_did_not_fit_leaves_the_text_whole_but_not_complete() -> None:
    found = cut(record(), 3)
    assert (found.text, found.complete, found.truncated_here) == ("one two three", False, True)


def test_a_prompt_that_states_its_budget_is_asked_at_each() -> None:
    stated = record(stated_budget=4)
    assert [can_cut(stated, budget) for budget in (4, 8, None)] == [False, True, False]


def test_a_failure_is_no_answer() -> None:
    failure = Failure(kind="TryAgain", blame="infra", message="busy")
    assert not can_cut(record(failure=failure), 8)


def test_tokens_in_a_time_are_whole_and_exact() -> None:
    assert tokens_within(300_000_000, 100_000_000) == 3  # 0.3 / 0.1 is 2.999… as a float
    assert tokens_within(60_000_000_000, 18_180_000_000) == 3
    assert tokens_within(10_000_000_000, 18_180_000_000) == 0


def test_the_experiments_grid_is_reproduced() -> None:
    times = {"time_per_token_ns": 18_180_000_000, "other_time_per_token_ns": 49_730_000_000}
    assert [equal_tokens(tokens, **times) for tokens in (100, 200, 300)] == [37, 73, 110]
    assert equal_tokens(1, **times) == 0
    assert equal_tokens(5, time_per_token_ns=1, other_time_per_token_ns=2) == 3


def test_truncation_is_held_against_real_limits() -> None:
    def pair(number: int, text: str) -> tuple[GenerationRecord, GenerationRecord]:
        name = f"q{number}"
        limited = record(
            question=name, max_tokens=2, text=text, finish="length", completion_tokens=2
        )
        return record(question=name), limited

    def checked(same: int, other: int) -> tuple[str, int]:
        pairs = [pair(number, "one two") for number in range(same)]
        pairs += [pair(number, "one tw0") for number in range(same, same + other)]
        found = check_truncation(pairs)
        assert found.compared == same + other
        return found.decision, len(found.differing)

    assert checked(100, 0) == ("cut", 0)
    assert checked(99, 1) == ("cut", 1)
    assert checked(98, 2) == ("generate", 2)
    assert checked(196, 3) == ("generate", 3)
    assert checked(99, 0) == ("too-few", 0)
    assert checked(20, 2) == ("generate", 2)
    assert checked(20, 1) == ("too-few", 1)
