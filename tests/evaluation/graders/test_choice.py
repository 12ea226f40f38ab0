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
        "The answer is B, not option A.",
        "The answer is B, because option A is no city.",
        "Option A is wrong. So option B.",
        "I choose option B, not option A.",
        "The answer is (I think) B. So the answer is B.",
        "The option I would take is B. The answer is B",
    ],
)
def test_the_letter_is_found(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert grade.correct, grade


@pytest.mark.parametrize("letter", "AHIJXZ")
@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{LETTER}",
        r"\boxed{letter}",
        "The answer is LETTER.",
        "The answer is LETTER because of the rain.",
        "(LETTER) Paris",
        "So it must be:\nLETTER",
        "答案是LETTER。",
    ],
)
def test_all_letters_of_a_data_set_are_known(text: str, letter: str) -> None:
    text = text.replace("LETTER", letter).replace("letter", letter.lower())

    assert make_grader("choice").grade(text, letter, complete=True).correct


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A long story of a town.",
        "I think it is Berlin.",
        "Be careful.",
        "The answer is a town.",
        "The answer is I think Paris.",
        "The answer is U.S. Steel.",
        "The answer is X-rays.",
        "I am not sure.",
        "The answer is I'm not sure.",
    ],
)
def test_without_a_letter_there_is_no_answer(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert (grade.extracted, grade.correct, grade.notes) == (None, False, ("no-answer",))


def test_another_letter_is_wrong() -> None:
    assert not make_grader("choice").grade("The answer is C", "B", complete=True).correct
    assert not make_grader("choice").grade(r"\boxed{Paris}", "B", complete=True).correct
