r"""The grader ``boxed``: the last complete box, or wrong."""

import pytest

from labctl.evaluation.graders import Grade, make_grader


def boxed(text: str, answer: str = "18") -> Grade:
    return make_grader("boxed").grade(text, answer, complete=True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{18}", "18"),
        (r"so \fbox{18}", "18"),
        (r"so \\boxed{18}", "18"),
        (r"so $\boxed {18.00}$.", "18"),
        (r"\boxed{\$18}", "18"),
        (r"\boxed{18 \text{ eggs}}", "18"),
        (r"\boxed{18\ \mathrm{eggs}}", "18"),
        (r"\boxed{18 eggs per day}", "18"),
        (r"\boxed{\$18/day}", "18"),
        (r"\boxed{12 cm^{2}}", "12"),
        (r"\boxed{12\text{ cm}^2}", "12"),
        (r"\boxed{5 m}", "5"),
        (r"\boxed{18个}", "18"),
        (r"\boxed{18 (dollars)}", "18"),
        (r"\boxed{1,234}", "1234"),
        (r"\boxed{1{,}234}", "1234"),
        (r"\boxed{\text{18}}", "18"),
        (r"\boxed{\textbf{18}.}", "18"),
        (r"\boxed{x = 18}", "18"),
        (r"\boxed{9 \times 2 = 18}", "18"),
        (r"\boxed{9 \cdot 2}", "18"),
        (r"\boxed{\frac{36}{2}}", "18"),
        (r"\boxed{\frac12}", "0.5"),
        (r"\boxed{-\frac{1}{2}}", "-0.5"),
        (r"\boxed{2\frac{1}{2}}", "2.5"),
        (r"\boxed{2 1/2}", "2.5"),
        (r"\boxed{\left(3+6\right)\times 2}", "18"),
        (r"\boxed{2^{3}}", "8"),
        (r"\boxed{\sqrt{16}}", "4"),
        (r"\boxed{1.8e1}", "18"),
        (r"\boxed{2(9)}", "18"),
        (r"\boxed{\approx 18}", "18"),
        (r"\boxed{18\ldots}", "18"),
        (r"\\boxed{18 \\text{ eggs}}", "18"),  # as inside JSON
        (r"\\boxed{\\frac{36}{2}}", "18"),
        (r"\boxed{USD 18}", "18"),
        (r"\boxed{€18}", "18"),
        (r"\boxed{18°}", "18"),
        (r"\boxed{50\%}", "0.5"),
        (r"\boxed{50\%}", "50"),
        (r"\boxed{\text{Sunday}}", "sunday"),
        (r"\boxed{2x}", "2x"),
        (r"\boxed{9:30}", "9:30"),
        ("\\boxed{\u2212\uff15}", "-5"),
        (r"\boxed{18 \text{ eggs}} and \boxed{7", "18"),
        (r"\boxed{3}, then \boxed{18}", "18"),
        (r"\boxed{\boxed{18}}", "18"),
        (r"{ \boxed{18}", "18"),
        (r"} \boxed{18} }", "18"),
        (r"\boxed{\{1,2\}}", r"\{1, 2\}"),
        ("答案是\\boxed{18}。", "18"),
    ],
)
def test_the_last_complete_box_is_read(text: str, answer: str) -> None:
    assert boxed(text, answer).correct, boxed(text, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{18} no, \boxed{19}", "18"),
        (r"\boxed{18 or 20}", "18"),
        (r"\boxed{18, 20}", "18"),
        (r"\boxed{5 feet 2 inches}", "62"),
        (r"\boxed{2x}", "2"),
        (r"\boxed{18}", "81"),
        (r"\boxed{}", "18"),
        (r"\boxed{" + "9**" * 20 + "9}", "9"),
        (r"\boxed{9^{9^{9^{9}}}}", "9"),
        (r"\boxed{1/0}", "0"),
        (r"\boxed{\frac{1}{0}}", "0"),
        (r"\boxed{1e999}", "1"),
        (r"\boxed{18!}", "18"),
    ],
)
def test_another_box_is_wrong(text: str, answer: str) -> None:
    grade = boxed(text, answer)

    assert not grade.correct
    assert grade.extracted is not None


@pytest.mark.parametrize(
    "text",
    ["", "The answer is 18.", r"so \boxed{18", r"so \boxed 18", "boxed{18}", r"\boxed{\text{18}"],
)
def test_without_a_complete_box_there_is_no_answer(text: str) -> None:
    grade = boxed(text)

    assert (grade.extracted, grade.correct, grade.notes[0]) == (None, False, "no-answer")


def test_notes_tell_of_several_boxes_open_boxes_and_units() -> None:
    assert boxed(r"\boxed{18} \boxed{18}").notes == ("several-boxes",)
    assert boxed(r"\boxed{18 eggs} \boxed{2").notes == ("unclosed-box", "unit-removed")
    assert boxed(r"\boxed{50\%}", "50").notes == ("percent-removed",)
    assert boxed(r"\boxed{" + "1" * 5000 + "}").notes == ("too-long",)


@pytest.mark.parametrize(
    "text",
    [
        r"<think>perhaps \boxed{7}</think> So \boxed{18}",
        r"perhaps \boxed{7} </think> So \boxed{18}",  # the prompt had opened it
        r"<thinking>\boxed{7}</thinking>\boxed{18}<think>or \boxed{7}",
        r"<think><think>\boxed{7}</think>\boxed{18}",
        r"<reasoning>\boxed{7}</reasoning> \boxed{18}",
        r"[THINK]\boxed{7}[/THINK]\boxed{18}",
        r"\boxed{18}<|end|>",
        r"<|channel|>analysis<|message|>\boxed{7}<|end|><|channel|>final<|message|>\boxed{18}",
        r"\boxed{18} as you asked: \boxed{}",
        r"\boxed{18} as you asked: $\boxed{\text{ }}$, or \boxed{\ldots}",
        r"\boxed{18} and \boxed{18.0}",
    ],
)
def test_thoughts_and_empty_boxes_are_no_answer(text: str) -> None:
    assert boxed(text).correct


@pytest.mark.parametrize(
    "text",
    [
        r"<think>so \boxed{18}",
        r"<think>so \boxed{18}</think> I do not know.",
        r"<Think>so \boxed{18}. Wait,",
        r"<|channel|>analysis<|message|>so \boxed{18}",
        r"so \boxed{18} </think>",
    ],
)
def test_a_box_in_a_thought_is_no_answer(text: str) -> None:
    assert boxed(text) == Grade(None, correct=False, notes=("no-answer",))


@pytest.mark.parametrize("between", [" and ", "$ or $", ", ", "、", " 或 "])
def test_boxes_in_one_list_are_several_values(between: str) -> None:
    assert not boxed(rf"\boxed{{3}}{between}\boxed{{18}}").correct
    assert boxed(rf"\boxed{{3}}{between}\boxed{{18}}", "3, 18").correct
