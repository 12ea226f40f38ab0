r"""The grader ``qwen``: what Qwen2.5-Math's evaluation extracts and how it judges.

The expected values are those that its code (parser.py at 005449c, grader.py at 29a82a8, with sympy
1.12 and word2number 1.1) gave for these texts.
"""

import pytest

from labctl.evaluation.graders import Grade, make_grader


def qwen(text: str, answer: str = "18") -> Grade:
    return make_grader("qwen").grade(text, answer, complete=True)


@pytest.mark.parametrize(
    ("text", "extracted"),
    [
        # the order of the places
        ("Final Answer: The final answer is $18$. I hope it is correct. \\boxed{7}", "18"),
        (r"The answer is 7. \boxed{18}", "18"),
        (r"\boxed{7} and \boxed{18", "18"),
        (r"\boxed{18", "18"),
        (r"\boxed 18$ eggs", "18"),
        (r"\fbox{7} The answer is 18.", "18"),
        ("The final answer is 7. The answer is 18", "18"),
        ("Her final answer is 18.", "18"),
        ("答案是18\n\n答案是7", "18"),
        ("She has 7 and sells 18 of 1,000", "1000"),
        ("20-5", "-5"),
        # what is stripped
        (r"\boxed{18\text{ eggs}}", "18"),
        (r"\boxed{18 eggs}", "18eggs"),
        (r"\boxed{18 miles}", "18"),
        (r"\boxed{\$18.00}", "18"),
        (r"\boxed{18\%}", "18"),
        (r"\boxed{x = 18}", "18"),
        (r"\boxed{\dfrac12}", r"\frac{1}{2}"),
        (r"\boxed{36/2}", r"\frac{36}{2}"),
        ("The answer is eighteen.", "18"),
        ("The answer is 18 eggs for two.", "2"),
        (r"\boxed{18^\circ}", "18"),
        (r"\boxed{.5}", "0.5"),
        (r"\boxed{1,234}", "1,234"),
    ],
)
def test_an_answer_is_extracted_as_there(text: str, extracted: str) -> None:
    assert qwen(text).extracted == extracted


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1,234}", "1234"),
        (r"\boxed{36/2}", "18"),
        (r"\boxed{9 \times 2}", "18"),
        (r"\boxed{18.001}", "18"),  # within 0.01 %
        (r"\boxed{1800}", "18"),  # a hundredfold, as 18 % and 0.18 are
        (r"\boxed{0.18}", "18"),
        (r"\boxed{(1, 2)}", "(1,2)"),
        (r"\boxed{x=5}", "5"),
        (r"\boxed{\text{(B)}}", "B"),
        (r"\boxed{18", "18"),
        (r"\boxed{2\sqrt{81}}", "18"),
        (r"\boxed{2(9)}", "18"),
        (r"\boxed{[18]}", "18"),
    ],
)
def test_it_is_right_where_it_is_right_there(text: str, answer: str) -> None:
    assert qwen(text, answer).correct


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "18"),
        ("boxed", "18"),
        (r"\boxed{}", "18"),
        (r"\boxed{18 eggs}", "18"),
        ("The answer is 18 and she keeps 2.", "18"),
        (r"\boxed{3\frac{1}{2}}", "3.5"),  # a product there
        (r"\boxed{18 or 20}", "18"),
        (r"\boxed{9*2=18}", "18"),
        (r"\boxed{(1,3)}", "(1,2)"),
        (r"\boxed{18.002}", "18"),
        (r"\boxed{18°}", "18"),
        ("The answer is **18**.", "18"),
    ],
)
def test_it_is_wrong_where_it_is_wrong_there(text: str, answer: str) -> None:
    assert not qwen(text, answer).correct


def test_algebra_is_left_to_math_verify() -> None:
    """Deliberately not as there, where sympy says that they are equal."""
    text = r"\boxed{x+x}"

    assert not qwen(text, "2x").correct
    assert make_grader("math-verify").grade(text, "2x", complete=True).correct


def test_a_text_without_end_after_the_answer_is_too_long() -> None:
    assert qwen("the answer is " + "18 " * 1000).notes == ("too-long",)
