import random

import pytest
from simulated_samples import Questions, covered
from simulated_stops import coverage_at_the_stop, errors_of_looks, stops_at_a_half_width

from labctl.stats.proportions import (
    bounded_interval,
    clustered_interval,
    half_width_reached,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # R. G. Newcombe 1998, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611),
     (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_wilsons_interval_is_that_of_the_paper(
    correct: int, total: int, low: float, high: float
) -> None:
    found = wilson_interval(correct, total)
    assert (found.low, found.high) == (
        pytest.approx(low, abs=5e-5),
        pytest.approx(high, abs=5e-5),
    )
    assert (found.mean, found.count, found.level) == (correct / total, total, 0.95)


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # the same table, method 4: with continuity correction
    [(81, 263, 0.2535, 0.3682), (15, 148, 0.0598, 0.1644), (0, 20, 0.0, 0.2005),
     (1, 29, 0.0018, 0.1963)],
)  # fmt: skip
def test_an_interval_that_ended_the_asking_is_corrected(
    correct: int, total: int, low: float, high: float
) -> None:
    found = wilson_interval(correct, total, stopped=True)
    assert found.low <= low + 5e-5
    assert found.high >= high - 5e-5
    assert found.high - found.low == pytest.approx(high - low, rel=0.03)


def test_all_wrong_and_all_right_stay_between_0_and_1() -> None:
    for stopped in (False, True):
        none, every = (wilson_interval(n, 10, stopped=stopped) for n in (0, 10))
        assert (none.low, every.high) == (0, 1)
        assert 0 < none.high < 0.4
        assert 0.6 < every.low < 1


@pytest.mark.parametrize(("correct", "total"), [(0, 0), (3, 2), (-1, 2)])
def test_a_share_that_cannot_be(correct: int, total: int) -> None:
    with pytest.raises(ValueError, match=r"right answers|no questions"):
        wilson_interval(correct, total)


def test_one_sample_a_question_is_wilsons_interval() -> None:
    found = clustered_interval([1.0] * 7 + [0.0] * 13, 1)
    plain = wilson_interval(7, 20)
    assert (found.low, found.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


def test_samples_that_always_agree_are_worth_one() -> None:
    same = clustered_interval([1.0] * 30 + [0.0] * 70, 8)
    plain = wilson_interval(30, 100)
    assert (same.low, same.high) == (
        pytest.approx(plain.low, abs=0.01),
        pytest.approx(plain.high, abs=0.01),
    )


def test_samples_that_are_independent_are_worth_as_many_answers() -> None:
    chance = random.Random(1)
    shares = [sum(chance.random() < 0.3 for _ in range(8)) / 8 for _ in range(400)]
    found = clustered_interval(shares, 8)
    plain = wilson_interval(found.mean * 3200, 3200)
    assert found.high - found.low == pytest.approx(plain.high - plain.low, rel=0.2)
    assert found.count == 400


def test_an_interval_that_ended_the_asking_is_wider_with_samples_too() -> None:
    shares = [1.0] * 30 + [0.0] * 70
    same, usual = (clustered_interval(shares, 8, stopped=stopped) for stopped in (True, False))
    plain = wilson_interval(30, 100, stopped=True)
    assert (same.low, same.high) == (
        pytest.approx(plain.low, abs=0.01),
        pytest.approx(plain.high, abs=0.01),
    )
    assert same.low < usual.low
    assert same.high > usual.high


@pytest.mark.parametrize("stopped", [False, True])
def test_a_bounded_mean_has_the_ends_of_the_beta_distribution(stopped: bool) -> None:
    """Of 0 and 1 alone both ends are quantiles of it; Gaffke's are those of Clopper and Pearson."""
    found = bounded_interval([1.0] * 3 + [0.0] * 17, stopped=stopped)
    expected = (0.0310, 0.3834) if stopped else (0.0379, 0.3639)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.004)
    assert (found.mean, found.count, found.level) == (0.15, 20, 0.95)


def test_a_bounded_mean_is_the_same_each_time_and_in_any_order() -> None:
    shares = [k / 16 for k in (0, 0, 1, 0, 3, 0, 0, 16, 0, 2)]
    assert bounded_interval(shares) == bounded_interval(shares[::-1])
    found = bounded_interval(shares)
    assert 0 < found.low < found.mean < found.high < 1


def test_a_bounded_mean_at_an_end_of_its_range_stays_there() -> None:
    none, every = bounded_interval([0.0] * 20), bounded_interval([1.0] * 20)
    assert (none.low, every.high) == (0, 1)
    assert 0.1 < none.high < 0.2
    assert 0.8 < every.low < 0.9
    low, high = bounded_interval([4.0], least=2, most=4).low, bounded_interval([4.0], most=9).high
    assert 2 < low < 2.2
    assert 8 < high < 9
    with pytest.raises(ValueError, match="between 0 and 1"):
        bounded_interval([0.5, 1.2])


@pytest.mark.parametrize("accuracy", [0.03, 0.1, 0.5, 0.98])
def test_few_questions_with_several_samples_are_covered(accuracy: float) -> None:
    """The whole grid is in test_soak_accuracy.py."""
    assert covered(Questions(20, 8, accuracy, 0.5), runs=250, seed=3).held >= 0.93


def test_looks_come_after_each_ten_questions() -> None:
    assert half_width_reached(210, 420, 0.05)
    assert not half_width_reached(210, 421, 0.05)
    assert half_width_reached(210, 421, 0.05, look=1)
    assert not half_width_reached(0, 0, 0.4)
    assert not half_width_reached(210, 420, 0.03)


def test_a_stopped_interval_holds_the_accuracy() -> None:
    """Exactly computed; the dense table is in test_soak_accuracy.py."""
    for accuracy in (0.02, 0.3, 0.516, 0.856):
        held, questions = coverage_at_the_stop(accuracy, 0.1)
        assert held >= 0.95
        assert questions < 120


def test_errors_of_a_thousand_simulated_evaluations() -> None:
    stops = stops_at_a_half_width(0.1, 200)
    assert errors_of_looks(0.5, stops, simulations=1000, seed=1) <= 0.06
