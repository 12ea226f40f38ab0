import random

import numpy as np
import pytest

from labctl.stats.bootstrap import draw_means, draw_questions
from labctl.stats.paired_answers import (
    always_valid_p,
    count_wins,
    difference_shown,
    mcnemar,
    paired_difference,
    questions_for_difference,
)


@pytest.mark.parametrize(("wins", "losses"), [(9, 1), (1, 9), (0, 0), (5, 5), (40, 70), (0, 6)])
def test_mcnemar_is_the_binomial_test(wins: int, losses: int) -> None:
    from scipy.stats import binomtest

    found = mcnemar(wins, losses)
    if wins + losses:
        assert found.exact == pytest.approx(binomtest(wins, wins + losses).pvalue)
    else:
        assert found.exact == 1
    assert found.mid_p <= found.exact


def test_mid_p_counts_half_of_the_observed_table() -> None:
    # Fagerland and others 2013, table 2: 1 and 7 discordant: exact 0.0703, mid-p 0.0391
    found = mcnemar(1, 7)
    assert found.exact == pytest.approx(0.0703, abs=5e-5)
    assert found.mid_p == pytest.approx(0.0391, abs=5e-5)
    assert mcnemar(3, 3).mid_p == 1


def test_wins_are_counted_question_by_question() -> None:
    assert count_wins([0, 1, 0.5, 1], [1, 0, 0.75, 1]) == (2, 1)
    with pytest.raises(ValueError, match="longer"):
        count_wins([0], [1, 1])


def test_a_paired_interval_is_narrower_than_two_apart() -> None:
    chance = random.Random(2)
    first = [float(chance.random() < 0.5) for _ in range(400)]
    second = [1.0 if chance.random() < 0.1 else one for one in first]
    found = paired_difference(first, second)
    assert 0 < found.low < found.mean < found.high < 0.1
    assert found == paired_difference(first, second)  # the same draws


def test_a_question_with_many_samples_is_one_cluster() -> None:
    chance = random.Random(3)
    gains = [chance.choice([-1.0, 0.0, 0.0, 1.0]) for _ in range(200)]
    found = paired_difference([0.0] * 200, gains)
    half = 1.96 * float(np.std(gains)) / 200**0.5
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.05)


def test_alike_answers_never_show_a_difference() -> None:
    assert always_valid_p(0, 0) == 1
    assert not difference_shown(30, 30)
    assert difference_shown(40, 5)
    assert difference_shown(5, 40)


def test_looking_after_every_question_finds_no_difference_that_is_not_there() -> None:
    chance = random.Random(4)
    told = 0
    for _ in range(300):
        wins = 0
        for count in range(1, 301):
            wins += chance.random() < 0.5
            if difference_shown(wins, count - wins):
                told += 1
                break
    assert told <= 0.05 * 300


def test_questions_for_a_difference_are_connors() -> None:
    # (1.96 sqrt(0.3) + 1.2816 sqrt(0.29))^2 / 0.01
    assert questions_for_difference(0.1, 0.3) == 312
    assert questions_for_difference(-0.1, 0.3) == 312
    assert questions_for_difference(0.05, 0.3) > 4 * 300
    with pytest.raises(ValueError, match="difference of 0"):
        questions_for_difference(0, 0.3)
    with pytest.raises(ValueError, match=r"at 0\.05 that differ"):
        questions_for_difference(0.1, 0.05)


def test_draws_take_every_question_once_on_average() -> None:
    drawn = draw_questions(50, 4000, seed=1)
    assert drawn.shape == (4000, 50)
    assert (drawn.sum(axis=1) == 50).all()
    assert drawn.mean(axis=0) == pytest.approx(1, abs=0.1)


def test_draws_of_the_mean_of_three_repeats_have_students_spread() -> None:
    values = np.array([[10.0, 1.0], [11.0, 2.0], [12.0, 3.0]])
    drawn = draw_means(values, 40_000, seed=1)
    low, high = np.quantile(drawn[:, 0], [0.025, 0.975])
    assert (low, high) == (
        pytest.approx(11 - 4.303 / 3**0.5, abs=0.1),
        pytest.approx(13.48, abs=0.1),
    )
    assert drawn[:, 0] - 9 == pytest.approx(drawn[:, 1])  # what moves together stays together
    assert (draw_means(values[:1], 5, seed=1) == values[0]).all()
