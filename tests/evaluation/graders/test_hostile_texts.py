"""A model's answer is hostile input: whatever it is, a grader judges it, and in linear time."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labctl.evaluation.graders import GRADERS, make_grader

#: The library is held by the pool's limits, not by its own code.
OWN = [name for name in GRADERS if name != "math-verify"]
LONG = 200_000
#: CPU seconds for a long text. In quadratic time it would be minutes.
ENOUGH_S = 5.0

FRAGMENTS = [
    *(
        "{",
        "}",
        "{}",
        "\\",
        "\\{",
        "\\boxed{",
        "\\fbox{",
        "boxed",
        "\\boxed",
        "\\text{",
        "\\text{}",
    ),
    *("\\frac", "\\frac{", "\\frac{1}{", "\\frac1", "\\sqrt{", "^{", "\\left", "\\circ", "\\mbox{"),
    *("\\begin{array}{", "\\begin{pmatrix}", "&", "\\\\", "inf", "=", "x=", "j", "(", "((1", "1/"),
    *("1", "1,", ",111", "111,", "1.1", "a.0", "1 1/1", "-", "- ", "$", "$-", "9^9", "1e9", "9**"),
    *("he answer is", "final answer is $", "$. I hope", "final answer is", "答案是", "9*9*"),
    *("answer", "answer is (", "Answer: ", "A", "(A", "A\n", "choice", " is", "选", "\n\n", " "),
    *("one ", "thousand ", "point ", "percent", " %", "\\%", "\n", "\n ", "½", "\u043a\u0438"),
    *(
        "<think>",
        "</think>",
        "\\color{",
        "\\overline{",
        "²",
        "km/",
        "eggs ",
        ". ",
        "x = ",
        "\u2248",
    ),
    *(
        " or ",
        " and ",
        "and a half",
        "3万",
        "千",
        "1'",
        "1 000 ",
        "至少",
        "is ",
        "A, ",
        "\\boxed{A} and ",
    ),
    *("\x00", "\x1b[", "\x1b[1m", "1m", "\u0663", "\uff11", "\u2212", "\u202f111", "\ud800"),
]
hostile_texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=6), max_size=30).map("".join)


@pytest.mark.parametrize("name", OWN)
@given(text=hostile_texts, answer=st.sampled_from(["18", "1/2", "B", "(1,2)", "x", ""]))
def test_every_text_is_judged(name: str, text: str, answer: str) -> None:
    grade = make_grader(name).grade(text, answer, complete=True)

    assert grade.extracted is not None or not grade.correct
    assert grade == make_grader(name).grade(text, answer, complete=True)


@pytest.mark.parametrize("name", OWN)
@given(answer=hostile_texts)
@settings(max_examples=30)
def test_an_answer_of_the_data_set_may_be_anything(name: str, answer: str) -> None:
    grade = make_grader(name).grade(r"The answer is \boxed{18}", answer, complete=True)
    assert grade.extracted is not None or not grade.correct


def judged_in(name: str, text: str) -> float:
    grader = make_grader(name)
    began = time.process_time()
    grader.grade(text, "18", complete=True)
    return time.process_time() - began


@pytest.mark.parametrize("name", OWN)
def test_a_long_repetition_takes_linear_time(name: str) -> None:
    slow = {}
    for fragment in FRAGMENTS:
        took = judged_in(name, fragment * (LONG // 20 // len(fragment)))
        if took > ENOUGH_S / 20:  # worth the long one
            slow[fragment] = judged_in(name, fragment * (LONG // len(fragment)))

    assert {one: took for one, took in slow.items() if took > ENOUGH_S} == {}


@pytest.mark.parametrize("name", OWN)
@given(
    parts=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3),
    head=st.sampled_from(["", "\\boxed{", "the answer is ", "1", "\\frac{1", "(A"]),
)
@settings(max_examples=40, deadline=None)
def test_a_long_mixture_takes_linear_time(name: str, parts: list[str], head: str) -> None:
    repeated = "".join(parts)
    text = head + repeated * (LONG // 4 // len(repeated))

    assert judged_in(name, text) < ENOUGH_S
