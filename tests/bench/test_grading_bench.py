"""Speed of grading: 26,000 answers, in worker processes and in a bare loop."""

import random
import time

import pytest

from labctl.evaluation.graders import GRADERS, make_grader
from labctl.evaluation.graders.pool import GraderPool, GradingItem

pytestmark = pytest.mark.bench

#: 1,319 questions, 4 prompts, 5 budgets.
ANSWERS = 26_380
ENDINGS = [
    r"The final answer is $\boxed{%s}$.",
    r"\boxed{\$%s.00}",
    r"\boxed{%s \text{ eggs}}",
    "The answer is %s.",
    "so she has %s",
]


def answers(count: int, *graders: str) -> list[GradingItem]:
    choose = random.Random(1)
    items = []
    for number in range(count):
        right = number % 1319
        steps = " ".join(
            f"She has {choose.randint(1, 99)} eggs and sells {choose.randint(1, 9)} of them."
            for _ in range(25)
        )
        found = right if choose.random() < 0.6 else right + 1
        text = f"{steps}\n{choose.choice(ENDINGS) % found}"
        items.append(GradingItem(text, str(right), complete=True, graders=graders))
    return items


@pytest.mark.parametrize("name", GRADERS)
def test_26_000_answers_are_graded(name: str) -> None:
    items = answers(ANSWERS, name)
    began = time.perf_counter()
    with GraderPool() as pool:
        right = sum(grade.correct for (grade,) in pool.grade_all(items))
    pooled = time.perf_counter() - began
    grader = make_grader(name)
    some = items[:2000]
    grader.grade(some[0].text, some[0].answer, complete=True)
    began = time.perf_counter()
    for item in some:
        grader.grade(item.text, item.answer, complete=True)
    bare = (time.perf_counter() - began) * len(items) / len(some)
    print(
        f"\n{name}: {len(items):,} answers in {pooled:.1f} s ({len(items) / pooled:,.0f} a second),"
        f" {right:,} right; a bare loop would take {bare:.1f} s"
    )


def test_the_first_grade_comes_soon() -> None:
    began = time.perf_counter()
    with GraderPool() as pool:
        list(pool.grade_all(answers(1, "boxed")))
    print(f"\nfirst grade, with the start of a worker: {time.perf_counter() - began:.2f} s")
