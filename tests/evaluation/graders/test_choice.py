"""The grader ``choice``: the letter of a multiple-choice question."""

import pytest

from labctl.evaluation.graders import make_grader


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{B}",
        r"\boxed{\text{(B)}}",
        r"\boxed{b}",
        r"\boxed{\textbf{B. } Paris}",
        r"A is wrong. \boxed{A} no: \boxed{B}",
        "The answer is B.",
        "The answer is (B) Paris.",
        "Answer: **B**",
        "the correct option is B",
        "The answer is A? No. The answer is B.",
        "答案是B。",
        "答案\uff1aB",
        "故选B",
        "B",
        "B.",
        "(B)",
        "B) Paris",
        "**B**. Paris",
        "Let me think about it.\nB\n",
        "I go for (B), since (A) is no city. So (B)",
        "\uff22",
    ],
)
def test_the_letter_is_found(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert grade.correct, grade


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A long story of a town.",
        "I think it is Berlin.",
        "Be careful.",
        "The answer is a town.",
    ],
)
def test_without_a_letter_there_is_no_answer(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert (grade.extracted, grade.correct, grade.notes) == (None, False, ("no-answer",))


def test_another_letter_is_wrong() -> None:
    assert not make_grader("choice").grade("The answer is C", "B", complete=True).correct
    assert not make_grader("choice").grade(r"\boxed{Paris}", "B", complete=True).correct
