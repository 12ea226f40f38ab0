"""Multiple choice by the probabilities of the letters."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from evaluations import evaluate, recipe_of, recipe_text
from scripted_answers import Answer, Asked
from scripted_endpoint import scripted_endpoint

from labctl.config.lab import LabFile, find_lab
from labctl.errors import ConfigError
from labctl.evaluation.likeliest import letter_logprobs
from labctl.evaluation.preview import preview
from labctl.records.events import AnyEvent
from labctl.transport.built_in import TRANSPORTS

APIS = ("openai-chat", "openai-completions", "llama-server")
RIGHT, COUNT = "J", 6


def colours_lab(root: Path) -> LabFile:
    """Questions with ten choices; the last one is right."""
    root.mkdir()
    (root / "devices.yaml").write_text("boards: {}\n")
    choices = [f"colour {n}" for n in range(10)]
    lines = [
        json.dumps({"question": f"Colour of thing {n}?", "choices": choices, "answer": RIGHT})
        for n in range(COUNT)
    ]
    (root / "colours.jsonl").write_text("\n".join(lines) + "\n")
    return find_lab(root, TRANSPORTS)


def text_of(address: str, api: str, **more: Any) -> str:
    layout = "chat" if api == "openai-chat" else "plain"
    prompts = {"letters": {"layout": layout, "choose_by": "probability", "pattern": "letter_alone"}}
    keys = {
        "dataset": {"file": "colours.jsonl", "format": "choice"},
        "prompts": prompts,
        "graders": ["choice"],
        **more,
    }
    return recipe_text({"m": [address]}, api=api, **keys)


def likely(asked: Asked) -> Answer:
    """Begin with a word; of the letters, A is likelier than each spelling of J, not than both."""
    top = {"The": -0.1, "A": -2.0, " J": -2.3, "J": -2.4, "K": -0.5, "\n": -5.0, "B": -8.0}
    if "thing 0" in asked:
        top = {"A": -0.2, "J": -3.0}
    if "thing 1" in asked:
        top = {"The": -0.2, "It": -1.0}
    return Answer("The answer is B.", top=top)


@pytest.mark.parametrize("api", APIS)
def test_the_likeliest_letter_is_taken(api: str, tmp_path: Path) -> None:
    lab = colours_lab(tmp_path / "lab")
    with scripted_endpoint(likely) as server:
        recipe = recipe_of(text_of(server.address, api, budgets=[5, "unlimited"]))
        outcome = evaluate(lab, recipe)
    assert {cell.budget: cell.right for cell in outcome.table.cells} == {5: 4, None: 4}
    answers = {one.question[:12]: one for one in outcome.directory.generations()}
    assert len(answers) == COUNT
    assert [one.text for one in answers.values()].count(RIGHT) == 4
    told = answers["colours-0003"].letter_logprobs
    assert told is not None
    assert list(told) == ["A", "B", "J"]
    assert told["J"] == pytest.approx(math.log(math.exp(-2.3) + math.exp(-2.4)))
    assert (answers["colours-0001"].text, answers["colours-0002"].text) == ("A", "")
    # One token of each question, and one question before.
    assert len(server.answered) == COUNT + 1
    assert {one.body.get("n_predict", one.body.get("max_tokens")) for one in server.answered} == {1}
    assert outcome.end.truncation == ()


#: The right letter is the seventh of the likeliest.
MANY = {f" word{n}": -0.1 * n for n in range(1, 7)} | {RIGHT: -0.7}
MANY |= {f" word{n}": -0.1 * n for n in range(8, 31)}


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_server_that_allows_fewer_is_noted_once(api: str, refuses: bool, tmp_path: Path) -> None:
    """By a refusal, as of vLLM, or silently."""
    key = "top_logprobs" if api == "openai-chat" else "logprobs"

    def limited(asked: Asked) -> Answer:
        most = asked.body[key]
        if refuses and most > 5:
            said = f"Requested sample logprobs of {most}, which is greater than max allowed: 5"
            return Answer(status=400, message=said)
        return Answer(RIGHT, top=dict(list(MANY.items())[:5]))

    lab, heard = colours_lab(tmp_path / "lab"), list[AnyEvent]()
    with scripted_endpoint(limited) as server:
        recipe = recipe_of(text_of(server.address, api))
        outcome = evaluate(lab, recipe, heard)
    (note,) = [one for one in outcome.record.plan_notes if "likeliest" in one]
    assert "endpoint m-0 reports 5 of the 20 likeliest tokens asked for" in note
    assert "an answer with no choice's letter among them counts as wrong" in note
    assert sum(note in str(event) for event in heard) == 1
    (cell,) = outcome.table.cells
    assert cell.right == 0


def test_a_server_that_allows_enough_is_not_noted(tmp_path: Path) -> None:
    lab = colours_lab(tmp_path / "lab")
    with scripted_endpoint(lambda _: Answer(RIGHT, top=MANY)) as server:
        outcome = evaluate(lab, recipe_of(text_of(server.address, "openai-chat")))
    assert outcome.record.plan_notes == ()
    assert [cell.right for cell in outcome.table.cells] == [COUNT]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("refuses", [False, True])
def test_a_server_that_tells_none_is_asked_no_question(
    api: str, refuses: bool, tmp_path: Path
) -> None:
    lab = colours_lab(tmp_path / "lab")
    said = {"status": 400, "message": "no logprobs here"} if refuses else {}
    with (
        scripted_endpoint(lambda _: Answer("B", no_tokens=True, **said)) as server,
        pytest.raises(ConfigError, match="choose_by: endpoint m-0 does not report how likely"),
    ):
        evaluate(lab, recipe_of(text_of(server.address, api)))
    assert len(server.answered) == 1
    assert "Colour of thing" not in str(server.answered[0].text)


@pytest.mark.parametrize(
    ("api", "more", "told"),
    [
        ("llama-server", {"graders": ["boxed", "choice"]}, "set graders to [choice]"),
        ("llama-server", {"dataset": {"file": "sums.jsonl"}}, "format: choice"),
        ("llama-server", {"sampling": {"temperature": 1, "samples": 2}}, "sampling.samples to 1"),
        (
            "llama-server",
            {"prompts": {"letters": {"choose_by": "probability", "pattern": "letter"}}},
            "pattern must be letter_alone or missing",
        ),
        (
            "llama-server",
            {"prompts": {"letters": {"choose_by": "probability", "state_budget": True}}},
            "no budget is needed",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(api: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        recipe_of(text_of("http://127.0.0.1:1", api, **more))
    assert told in refused.value.message


def test_the_plan_counts_one_token_for_each_question(tmp_path: Path) -> None:
    lab = colours_lab(tmp_path / "lab")
    (row,) = preview(recipe_of(text_of("http://127.0.0.1:1", "llama-server")), lab).rows
    assert (row.generations, row.limits) == (COUNT, "1")


def test_hostile_probabilities_do_no_harm() -> None:
    tokens = [("A", math.inf), ("A", 5.0), ("B", -math.inf), ("C", math.nan), ("AB", -1.0)]
    tokens += [("D", -3.4e38), ("D", -3.4e38), ("", -1.0), ("Z", -0.1)]
    found = letter_logprobs(tokens, 4)
    assert list(found) == ["A", "B", "D"]
    assert found["A"] == 0
    assert all(math.isfinite(one) for one in found.values())
