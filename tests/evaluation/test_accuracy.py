"""Grades put together: one accuracy for each variant, budget and grader."""

from datetime import UTC, datetime
from typing import Any

from labctl.evaluation.accuracy import AccuracyTable, accuracy_table, in_both
from labctl.records.evaluation import GenerationRecord, GradeRecord
from labctl.records.trial import Failure

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def grade(question: str, *, correct: bool = True, **more: Any) -> GradeRecord:
    facts: dict[str, Any] = {
        "variant": "m/p",
        "budget": 100,
        "grader": "boxed",
        "version": "1",
        "extracted": "18",
        "complete": True,
        "truncated_here": False,
    }
    return GradeRecord(question=question, correct=correct, **{**facts, **more})


def answer(question: str, **more: Any) -> GenerationRecord:
    facts: dict[str, Any] = {
        "variant": "m/p",
        "max_tokens": 100,
        "endpoint": "e",
        "text": "",
        "finish": "stop",
        "sent": NOW,
        "total_ns": 1,
    }
    return GenerationRecord(question=question, **{**facts, **more})


def table(
    grades: list[GradeRecord], answers: list[GenerationRecord] | None = None
) -> AccuracyTable:
    return accuracy_table(answers or [], grades, questions=("a", "b", "c"), variants=("m/p", "n/p"))


def test_cells_have_the_order_of_variants_budgets_and_questions() -> None:
    found = table(
        [
            grade("b", budget=None, variant="n/p"),
            grade("b", budget=None),
            grade("a", budget=None, correct=False),
            grade("b", budget=200),
        ]
    )

    assert [(cell.variant, cell.budget) for cell in found.cells] == [
        ("m/p", 200),
        ("m/p", None),
        ("n/p", None),
    ]
    cell = found.cell("m/p", None, "boxed")
    assert cell is not None
    assert cell.verdicts == {"a": (False,), "b": (True,)}
    assert (cell.right, cell.total, cell.share) == (1, 2, 0.5)
    assert found.cell("m/p", 100, "boxed") is None


def test_what_was_cut_or_not_answered_is_counted() -> None:
    (cell,) = table(
        [
            grade("a", complete=False, truncated_here=True, tokens=100),
            grade("b", complete=False, correct=False, extracted=None, notes=("no-answer",)),
            grade("c", correct=False, extracted=None, notes=("no-answer", "time-limit")),
        ]
    ).cells

    assert (cell.cut, cell.cut_by_labctl, cell.unanswered, cell.limited) == (2, 1, 2, 1)
    assert cell.notes == {"no-answer": 2, "time-limit": 1}
    assert cell.tokens == (100,)


def test_an_answer_under_a_real_limit_wins_over_a_cut_one() -> None:
    real, shortened = grade("a"), grade("a", correct=False, truncated_here=True)

    for order in ([real, shortened], [shortened, real]):
        (cell,) = table(order).cells
        assert cell.grades == (real,)


def test_the_version_that_was_used_last_counts() -> None:
    (cell,) = table([grade("a"), grade("b"), grade("a", version="2", correct=False)]).cells

    assert (cell.version, cell.right, cell.total) == ("2", 0, 1)


def test_samples_of_a_question_are_one_cluster() -> None:
    (cell,) = table([grade("a", sample=2, correct=False), grade("a"), grade("b")]).cells

    assert cell.verdicts == {"a": (True, False), "b": (True,)}


def test_failures_are_in_no_count() -> None:
    failure = Failure(kind="TryAgain", blame="infra", message="busy")
    (cell,) = table([grade("a")], [answer("a"), answer("b", failure=failure)]).cells

    assert (cell.total, cell.failed) == (1, (("b", 1),))


def test_answers_longer_than_the_prompt_allows_are_counted() -> None:
    answers = [
        answer("a", stated_budget=50, completion_tokens=51),
        answer("b", stated_budget=50, completion_tokens=50),
    ]

    (cell,) = table([grade("a"), grade("b")], answers).cells
    (untold,) = table([grade("a")], [answer("a", completion_tokens=99)]).cells

    assert (cell.overruns, untold.overruns) == (1, None)


def test_disagreements_of_graders_are_listed() -> None:
    found = table(
        [
            grade("a"),
            grade("a", grader="qwen", correct=False),
            grade("b"),
            grade("b", grader="qwen"),
        ]
    )

    (one,) = found.disagreements
    assert (one.question, one.budget) == ("a", 100)
    assert {each.grader: each.correct for each in one.grades} == {"boxed": True, "qwen": False}


def test_pairs_have_the_questions_of_both() -> None:
    found = table([grade("a"), grade("b", correct=False), grade("b", variant="n/p")])
    one, other = (found.cell(variant, 100, "boxed") for variant in found.variants)
    assert one is not None
    assert other is not None

    assert in_both(one, other) == [("b", (False,), (True,))]


def test_an_interval_is_wider_where_precision_ended_the_asking() -> None:
    for samples in (1, 2):
        grades = [
            grade(question, correct=question == "a", sample=sample)
            for question in "abc"
            for sample in range(1, samples + 1)
        ]
        plain, stopped = (
            accuracy_table([], grades, questions="abc", variants=["m/p"], stopped=one).cells[0]
            for one in (False, True)
        )
        assert plain.interval is not None
        assert stopped.interval is not None
        assert stopped.interval.low < plain.interval.low
        assert stopped.interval.high > plain.interval.high
