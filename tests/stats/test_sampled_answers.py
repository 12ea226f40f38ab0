import itertools

import pytest

from labctl.stats.sampled_answers import majority_vote, pass_at_k, pass_at_k_interval


def test_the_answer_of_most_samples_wins() -> None:
    assert majority_vote(["12", "72", "72"]) == 1
    assert majority_vote(["5", None, None, None]) == 0
    assert majority_vote(["7", "9", "9", "7"]) == 0  # as many votes: the first
    assert majority_vote(["", "9", ""]) == 0
    assert majority_vote([None, None]) is None
    assert majority_vote([]) is None


@pytest.mark.parametrize(("correct", "samples", "k"), [(2, 5, 1), (2, 5, 3), (0, 5, 2), (4, 5, 2)])
def test_pass_at_k_is_the_share_of_all_choices(correct: int, samples: int, k: int) -> None:
    right = [True] * correct + [False] * (samples - correct)
    choices = list(itertools.combinations(right, k))
    assert pass_at_k(correct, samples, k) == pytest.approx(sum(map(any, choices)) / len(choices))


@pytest.mark.parametrize(("correct", "samples", "k"), [(1, 3, 4), (1, 3, 0), (4, 3, 1), (-1, 3, 1)])
def test_pass_at_k_of_what_cannot_be(correct: int, samples: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"samples|right answers"):
        pass_at_k(correct, samples, k)


def test_its_interval_is_over_questions() -> None:
    few = pass_at_k_interval([0, 8] * 20, [8] * 40, 4)
    many = pass_at_k_interval([0, 8] * 80, [8] * 160, 4)
    assert few.mean == many.mean == 0.5
    assert few.high - few.low == pytest.approx(2 * 1.96 * 0.5 / 40**0.5, rel=0.1)
    assert many.high - many.low == pytest.approx((few.high - few.low) / 2, rel=0.1)
    with pytest.raises(ValueError, match="two questions"):
        pass_at_k_interval([1], [4], 2)
