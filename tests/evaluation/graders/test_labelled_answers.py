"""Answers with verdicts of two readers, and the mistakes that the documents admit on them."""

from pathlib import Path

import pytest
from labelled_answers import Share, grader, is_for_work, labelled, mistakes, row

DOCS = Path(__file__).parents[3] / "docs" / "accuracy.md"


def test_each_answer_has_two_verdicts_for_its_graders() -> None:
    answers = labelled()
    assert len({(one["text"], one["gold"]) for one in answers}) == 300
    for one in answers:
        letter = one["gold"] in "ABCDE"
        assert set(one["labels"]) == ({"choice"} if letter else {"boxed", "numeric"}), one
        for first, second in one["labels"].values():
            assert first is second, one  # where they had differed, a reason would stand beside


def test_both_halves_have_right_and_wrong_answers() -> None:
    for half in (True, False):
        found = [one for one in labelled() if is_for_work(one) is half]
        assert 120 <= len(found) <= 180
        for verdict in ("boxed", "numeric", "choice"):
            verdicts = [one["labels"][verdict][0] for one in found if verdict in one["labels"]]
            assert min(verdicts.count(True), verdicts.count(False)) >= 5


@pytest.mark.parametrize("name", ["boxed", "numeric", "choice"])
def test_the_documents_say_how_often_a_grader_is_mistaken(name: str) -> None:
    assert row(name, f"`{name}`", grader(name)) in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["boxed", "numeric", "choice"])
def test_no_wrong_answer_is_right_on_either_half(name: str) -> None:
    for work in (True, False):
        falsely_right, _ = mistakes(grader(name), name, work=work)
        assert falsely_right.count == 0


def test_a_share_of_none_has_an_upper_limit() -> None:
    assert str(Share(0, 149)) == "0 of 149 (≤ 2.0%)"  # 0.98 ** 149 is 0.049
    assert str(Share(1, 1)) == "1 of 1 (≤ 100.0%)"
