"""Prompts, byte for byte."""

import hashlib
from typing import Any

import pytest

from labctl.config.yaml import document
from labctl.errors import ConfigError
from labctl.evaluation.endpoints.base import Message
from labctl.evaluation.prompts import Prompt, render
from labctl.evaluation.question import Question

QUESTION = Question("q-1", "What is 2 + 3?", "5")
EXAMPLES = (
    Question("q-2", "What is 1 + 1?", "2", solution="One and one."),
    Question("q-3", "What is {n} + {answer}?", "4"),
)
STEP_BY_STEP = (
    "Follow this pattern to solve the problem:\n"
    "Provide a revised answer through step-by-step reasoning.\n"
    "Conclude with your final answer within \\boxed{}."
)
ANSWER_AND_VERIFY = (
    "Quick Answer: Give an initial answer via intuition or quick calculation.\n"
    "Verification: Provide a revised answer through step-by-step reasoning and correct any"
    " mistakes.\n"
    "Conclude with your final answer within \\boxed{}."
)


def text(
    *examples: Question, budget: int | None = None, of: Question = QUESTION, **keys: Any
) -> str | tuple[Message, ...]:
    return render(Prompt.model_validate(keys), of, examples, budget)


def test_the_experiments_layout_as_published() -> None:
    """Eight lines; nothing closes the system block."""
    assert text(layout="raw-chatml", pattern="step_by_step") == (
        "<|im_start|>system\n"
        "Follow this pattern to solve the problem:\n"
        "Provide a revised answer through step-by-step reasoning.\n"
        "Conclude with your final answer within \\boxed{}.\n"
        "<|im_start|>user\n"
        "What is 2 + 3?\n"
        "<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_experiments_budget() -> None:
    told = text(layout="raw-chatml", pattern="answer_and_verify", state_budget=True, budget=101)
    assert told == (
        "<|im_start|>system\n"
        f"{ANSWER_AND_VERIFY}\n"
        "You MUST respond in **UNDER 50 tokens**\n"
        "<|im_start|>user\n"
        "What is 2 + 3?\n"
        "<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_chatml_is_closed() -> None:
    assert text(layout="chatml", pattern="step_by_step") == (
        f"<|im_start|>system\n{STEP_BY_STEP}<|im_end|>\n"
        "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_chat() -> None:
    assert text(pattern="answer_and_verify") == (
        Message("system", ANSWER_AND_VERIFY),
        Message("user", "What is 2 + 3?"),
    )
    assert text() == (Message("user", "What is 2 + 3?"),)


def test_plain() -> None:
    assert text(layout="plain") == "What is 2 + 3?\n"
    assert text(layout="plain", system="Be brief.") == "Be brief.\n\nWhat is 2 + 3?\n"


@pytest.mark.parametrize("budget", [1, 37, 73, 110, 256, 2048])
def test_the_number_is_half_of_the_limit_and_cut(budget: int) -> None:
    (system, _) = text(pattern="step_by_step", state_budget=True, budget=budget)
    assert isinstance(system, Message)
    sentence = f"You MUST respond in **UNDER {int(budget * 0.5)} tokens**"
    assert system.content == f"{STEP_BY_STEP}\n{sentence}"


def test_without_a_limit_nothing_is_stated() -> None:
    assert text(pattern="step_by_step", state_budget=True) == text(pattern="step_by_step")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("system", "S\nIn 80 words!\n<|im_start|>user\nWhat is 2 + 3?\n<|im_end|>\n"),
        ("user", "S\n<|im_start|>user\nWhat is 2 + 3?\nIn 80 words!\n<|im_end|>\n"),
        ("end", "S\n<|im_start|>user\nWhat is 2 + 3?\n<|im_end|>\n"),
    ],
)
def test_places_of_the_sentence(place: str, expected: str) -> None:
    told = text(
        layout="raw-chatml",
        system="S",
        state_budget=True,
        budget_statement="In {n} words!",
        budget_factor=0.8,
        budget_place=place,
        budget=100,
    )
    end = "In 80 words!" if place == "end" else ""
    assert told == f"<|im_start|>system\n{expected}<|im_start|>assistant\n{end}"


def test_examples_are_turns_of_a_chat() -> None:
    assert text(*EXAMPLES, system="S") == (
        Message("system", "S"),
        Message("user", "What is 1 + 1?"),
        Message("assistant", "One and one.\nFinal answer: \\boxed{2}"),
        Message("user", "What is {n} + {answer}?"),
        Message("assistant", "Final answer: \\boxed{4}"),
        Message("user", "What is 2 + 3?"),
    )


def test_examples_as_text() -> None:
    before = (
        "Q: What is 1 + 1?\nOne and one.\n#### 2\n\n"
        "Q: What is {n} + {answer}?\n#### 4\n\n"
        "Q: What is 2 + 3?"
    )
    keys = {"question": "Q: {question}", "example": "{solution}\n#### {answer}"}
    assert text(*EXAMPLES, **keys, examples_as="text") == (Message("user", before),)
    assert text(*EXAMPLES, **keys, layout="plain") == f"{before}\n"


def test_examples_in_the_experiments_layout() -> None:
    assert text(EXAMPLES[0], layout="raw-chatml", system="S") == (
        "<|im_start|>system\nS\n"
        "<|im_start|>user\nWhat is 1 + 1?\n<|im_end|>\n"
        "<|im_start|>assistant\nOne and one.\nFinal answer: \\boxed{2}\n<|im_end|>\n"
        "<|im_start|>user\nWhat is 2 + 3?\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_choices_are_lines_with_letters() -> None:
    question = Question("q", "Which is even?", "B", choices=("1", "2", "3"))
    assert text(of=question, pattern="letter") == (
        Message("system", "Choose the right answer. Conclude with its letter within \\boxed{}."),
        Message("user", "Which is even?\nA. 1\nB. 2\nC. 3"),
    )


@pytest.mark.parametrize(
    ("keys", "stop"),
    [
        ({"layout": "raw-chatml"}, ("<|im_end|>",)),
        ({"layout": "chatml"}, ("<|im_end|>",)),
        ({"layout": "raw-chatml", "stop": []}, ()),
        ({"layout": "chat"}, ()),
        ({"layout": "plain", "stop": ["\n\n", "Q:"]}, ("\n\n", "Q:")),
    ],
)
def test_stop_words(keys: dict[str, Any], stop: tuple[str, ...]) -> None:
    assert Prompt.model_validate(keys).record("p").stop == stop


def test_the_record_says_which_layout_and_what_was_added() -> None:
    keys = {"layout": "raw-chatml", "pattern": "step_by_step", "state_budget": True}
    record = Prompt.model_validate(keys).record("told")
    assert (record.name, record.layout, record.system) == ("told", "raw-chatml", STEP_BY_STEP)
    assert record.budget_statement == "You MUST respond in **UNDER {n} tokens**"
    assert record.budget_factor == 0.5
    assert len(record.sha256) == hashlib.sha256().digest_size * 2


def test_whatever_is_sent_otherwise_has_another_hash() -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"system": "S"},
        {"system": "S", "question": "Q: {question}"},
        {"layout": "chatml"},
        {"layout": "raw-chatml"},
        {"layout": "raw-chatml", "stop": []},
        {"layout": "plain"},
        {"state_budget": True},
        {"state_budget": True, "budget_factor": 0.6},
        {"state_budget": True, "budget_place": "user"},
    ]
    prompts = [Prompt.model_validate(keys) for keys in variants]
    hashes = {one.record("p").sha256 for one in prompts}
    hashes |= {one.record("p", EXAMPLES).sha256 for one in prompts}
    assert len(hashes) == 2 * len(variants)
    # The name of a prompt, and a key with its default value, change nothing that is sent.
    assert Prompt().record("a").sha256 == Prompt(layout="chat").record("b").sha256


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("layout: chatlm", "(did you mean 'chatml'?)"),
        ("pattern: step_by_step\nsystem: S", "system: pattern is given too; keep one of them"),
        ("budget_factor: 0.4", "budget_factor: goes with state_budget: true"),
        ("state_budget: true\nbudget_statement: short!", "must contain {n}"),
        ("state_budget: true\nbudget_place: end", "a chat has no end of the text"),
        ("question: hello", "question: must contain {question}"),
        ("layout: plain\nexamples_as: turns", "examples_as: a plain text has no turns"),
        ("state_budget: true\nbudget_factor: 0", "budget_factor: must be more than 0"),
    ],
)
def test_a_prompt_that_cannot_be(keys: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        document.parse(keys, Prompt, "recipe.yaml")
    assert says in caught.value.message
