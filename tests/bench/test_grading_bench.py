"""Speed of grading: 26,000 answers, in worker processes and in a bare loop."""

import random
import sys
import time

import pytest
from interleaved import medians, show

from labctl import process
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
        grades = [grade for (grade,) in pool.grade_all(items)]
    pooled = time.perf_counter() - began
    grader = make_grader(name)
    some = items[:2000]
    grader.grade(some[0].text, some[0].answer, complete=True)
    began = time.perf_counter()
    alone = [grader.grade(item.text, item.answer, complete=True) for item in some]
    bare = (time.perf_counter() - began) * len(items) / len(some)
    print(
        f"\n{name}: {len(items):,} answers in {pooled:.1f} s ({len(items) / pooled:,.0f} a second),"
        f" {sum(one.correct for one in grades):,} right; a bare loop would take {bare:.1f} s"
    )
    assert grades[: len(some)] == alone
    # The processes may cost as much as the quickest grader's work; two of them share that.
    assert pooled <= 3 * bare


def test_the_first_grade_comes_soon() -> None:
    def first_grade() -> None:
        with GraderPool() as pool:
            assert len(list(pool.grade_all(answers(1, "boxed")))) == 1

    def start() -> None:
        words = [sys.executable, "-c", "import labctl.evaluation.graders.worker"]
        assert process.run(words, timeout=60).exit_status == 0

    found = medians(7, {"first grade": first_grade, "start of a worker": start})
    show("first grade", found, "start of a worker")
    assert found["first grade"] <= 2.5 * found["start of a worker"]
