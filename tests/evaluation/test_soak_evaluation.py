"""An evaluation of ordinary size: 1,319 questions, four prompts, five budgets."""

import re
from pathlib import Path

import pytest
from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from scripted_answers import Asked
from scripted_endpoint import scripted_endpoint

from labctl.evaluation.run import EvaluationOutcome

QUESTIONS = 1319
LIMITS = (10, 20, 40, 80)


def words_of(number: int) -> int:
    return number * 37 % 90


def answer(asked: Asked) -> str:
    """As many words as the number says, then the right box for two of three questions."""
    number = number_of(asked)
    return boxed(2 * number if number % 3 else 0, words=words_of(number))


def right_within(limit: int | None) -> int:
    """The answers that are right and have their box within a limit."""
    numbers = [n for n in range(1, QUESTIONS + 1) if n % 3]
    return sum(limit is None or words_of(n) + 1 <= limit for n in numbers)


def outcome_of(tmp_path: Path) -> tuple[EvaluationOutcome, int]:
    lab = sums_lab(tmp_path / "lab", QUESTIONS)
    prompts = {
        f"{name}{'-told' * told}": {"layout": "plain", "system": name, "state_budget": told}
        for name in ("steps", "verify")
        for told in (False, True)
    }
    with scripted_endpoint(answer) as server:
        text = recipe_text(
            {"m": [server.address]}, prompts=prompts, budgets=[*LIMITS, "unlimited"], concurrency=16
        )
        outcome = evaluate(lab, recipe_of(text))
        return outcome, len(server.answered)


@pytest.mark.soak
def test_soak_1319_questions_4_prompts_5_budgets(tmp_path: Path) -> None:
    outcome, requests = outcome_of(tmp_path)
    assert outcome.record.planned == QUESTIONS * 12
    assert requests == QUESTIONS * 12 + 200
    assert (outcome.end.answered, outcome.end.failed) == (QUESTIONS * 12, 0)
    cells = {(cell.variant, cell.budget): cell for cell in outcome.table.cells}
    assert len(cells) == 20
    for (variant, budget), cell in cells.items():
        assert (cell.right, cell.total) == (right_within(budget), QUESTIONS), (variant, budget)
        assert bool(cell.cut_by_labctl) is (budget is not None and "told" not in variant)
    assert all(check.cutting and check.questions == 100 for check in outcome.end.truncation)
    assert len(outcome.end.truncation) == 2
    ids = [re.sub(r"\D", "", one)[:4] for one in outcome.record.dataset.questions]
    assert len(ids) == QUESTIONS
