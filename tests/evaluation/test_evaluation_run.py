"""Evaluations of scripted servers: exact accuracies, and what goes wrong on the way."""

from pathlib import Path

from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from scripted_answers import Asked
from scripted_endpoint import scripted_endpoint

from labctl.errors import ExitStatus
from labctl.records.events import Answers, AnyEvent, End, Evaluation


def right(asked: Asked) -> str:
    return boxed(2 * number_of(asked))


def half_right(asked: Asked) -> str:
    """Right for even numbers, and the more words the larger the number."""
    n = number_of(asked)
    return boxed(2 * n if n % 2 == 0 else 0, words=n)


def test_accuracies_are_exact_and_interleaved(tmp_path: Path) -> None:
    lab, events = sums_lab(tmp_path / "lab", 8), list[AnyEvent]()
    with scripted_endpoint(right) as good, scripted_endpoint(half_right) as half:
        recipe = recipe_of(recipe_text({"good": [good.address], "half": [half.address]}))
        outcome = evaluate(lab, recipe, events)
    found = {cell.variant: (cell.right, cell.total) for cell in outcome.table.cells}
    assert found == {"good/plain": (8, 8), "half/plain": (4, 8)}
    assert outcome.exit_status == ExitStatus.OK
    assert outcome.end.questions == 8
    assert isinstance(next(e for e in events if e.event != "note"), Evaluation)
    last = [event for event in events if isinstance(event, Answers)][-1]
    assert (last.done, last.planned) == (16, 16)
    assert isinstance(events[-1], End)


def test_one_generation_serves_all_budgets(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 12)
    with scripted_endpoint(half_right) as server:
        recipe = recipe_of(recipe_text({"half": [server.address]}, budgets=[5, 9, "unlimited"]))
        outcome = evaluate(lab, recipe)
    # The box of N has N words before it, and an end token after it.
    found = {cell.budget: cell.right for cell in outcome.table.cells}
    assert found == {5: 2, 9: 4, None: 6}
    answers = [one for one in outcome.directory.generations() if one.check is None]
    assert {one.max_tokens for one in answers} == {None}
    (check,) = outcome.end.truncation
    assert (check.questions, check.disagreements, check.cutting) == (12, 0, True)
    assert len(server.answered) == 24


def test_a_stated_budget_is_asked_for_each_time(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 3)
    prompts = {"told": {"layout": "plain", "state_budget": True}}
    with scripted_endpoint(half_right) as server:
        text = recipe_text({"half": [server.address]}, prompts=prompts, budgets=[20, 40])
        outcome = evaluate(lab, recipe_of(text))
    stated = [one.stated_budget for one in outcome.directory.generations()]
    assert sorted(filter(None, stated)) == [10, 10, 10, 20, 20, 20]
    assert outcome.end.truncation == ()
