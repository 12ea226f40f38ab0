"""The one estimator of a ratio: pairs, sets, sessions."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.stats.log_ratio import (
    LogRatio,
    Repeat,
    between_sessions,
    known_sessions,
    paired,
    unpaired,
    within_run,
)

speeds = st.floats(0.5, 2.0)
pairs = st.lists(st.tuples(speeds, speeds), min_size=2, max_size=12)
session = st.lists(speeds, min_size=1, max_size=5)


def test_pairs_are_free_of_what_drifts() -> None:
    found = paired([270.0, 324.0, 406.0], [100.0, 120.0, 150.0]).interval(0.95)
    assert found.count == 3
    assert found.low < 2.7022 < found.high
    assert found.relative < 0.01
    assert found.mean**2 == pytest.approx(found.low * found.high)  # symmetric in logarithms


def test_the_t_test_of_a_textbook() -> None:
    """Student's sleep data (Biometrika 6(1), 1908, as in R's `sleep`), as logarithms."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    left, right = ([math.exp(x) for x in group] for group in (first, second))
    found = paired(left, right)
    assert found.p_different() == pytest.approx(0.002833, abs=1e-6)
    assert math.log(found.interval(0.95).low) == pytest.approx(-2.4598858, abs=1e-6)
    assert unpaired(left, right).p_different() == pytest.approx(0.07918671, abs=1e-6)
    # R: t.test(extra[1:9], extra[11:20]) is Welch's.
    assert unpaired(left[:9], right).degrees == pytest.approx(16.85, abs=0.2)


@given(pairs, st.floats(0.1, 10))
def test_what_is_compared_with_what_turns_the_ratio_alone(
    values: list[tuple[float, float]], scale: float
) -> None:
    left, right = ([pair[side] for pair in values] for side in (0, 1))
    for compare in (paired, unpaired):
        one, other = compare(left, right), compare(right, left)
        assert one.ratio == pytest.approx(1 / other.ratio)
        assert one.interval(0.95).low == pytest.approx(1 / other.interval(0.95).high)
        assert one.p_different() == pytest.approx(other.p_different(), abs=1e-9)
        scaled = compare([scale * x for x in left], [scale * x for x in right])
        assert scaled.mean == pytest.approx(one.mean, abs=1e-9)
        assert scaled.error == pytest.approx(one.error, abs=1e-9)


@given(
    st.lists(session, min_size=1, max_size=3),
    st.lists(session, min_size=1, max_size=3),
    st.lists(session, min_size=5, max_size=8),
)
def test_sessions_too(
    left: list[list[float]], right: list[list[float]], history: list[list[float]]
) -> None:
    one, other = between_sessions(left, right, [history]), between_sessions(right, left, [history])
    assert one.mean == pytest.approx(-other.mean, abs=1e-9)
    assert one.error == pytest.approx(other.error)
    assert one.degrees == pytest.approx(other.degrees)


@given(pairs, st.sampled_from([0.01, 0.05, 0.2]), st.floats(0.01, 0.5))
def test_p_values_and_intervals_decide_alike(
    values: list[tuple[float, float]], error: float, margin: float
) -> None:
    found = paired([a for a, _ in values], [b for _, b in values])
    if found.error < 1e-9:
        return  # at the border, where rounding decides
    wide, narrow = found.interval(1 - error), found.interval(1 - 2 * error)
    if abs(found.p_different() - error) > 1e-9:
        assert (found.p_different() < error) is not (wide.low <= 1 <= wide.high)
    if abs(found.p_beyond(margin) - error) > 1e-9:
        within = -margin < math.log(narrow.low) and math.log(narrow.high) < margin
        assert (found.p_beyond(margin) < error) is within


@pytest.mark.parametrize(
    ("values", "references"), [([1.0, 0.0], [1.0, 1.0]), ([1.0], [1.0]), ([1.0, 1.0], [1.0])]
)
def test_too_little_has_no_ratio(values: list[float], references: list[float]) -> None:
    for compare in (paired, unpaired):
        with pytest.raises(ValueError, match=r"."):
            compare(values, references)


def repeats(positions: list[int], values: list[float]) -> list[Repeat]:
    return [Repeat(n, at, v) for n, (at, v) in enumerate(zip(positions, values, strict=True), 1)]


def test_rounds_are_pairs_only_where_the_variants_took_turns() -> None:
    """A heats up: in turns the drift cancels, one after the other it is a difference."""
    drift = [100.0, 110.0, 120.0]
    turns = within_run(repeats([1, 4, 6], drift), repeats([2, 3, 5], drift))
    assert turns is not None
    assert turns.is_paired
    assert turns.error == 0
    after = within_run(repeats([1, 2, 3], drift), repeats([4, 5, 6], drift))
    assert after is not None
    assert not after.is_paired
    assert after.error > 0.05


def test_a_round_that_lacks_one_of_the_two_is_no_pair() -> None:
    found = within_run(
        [Repeat(n, 2 * n, 2.0) for n in (1, 2, 4)], [Repeat(n, 2 * n + 1, 1.0) for n in (2, 3, 4)]
    )
    assert found is not None
    assert found.is_paired
    assert (found.count, found.ratio) == (2, 2.0)


def test_one_repeat_has_no_noise() -> None:
    assert within_run([Repeat(1, 1, 2.0)], [Repeat(1, 2, 1.0)]) is None


def test_sessions_need_others_to_tell_how_they_differ() -> None:
    few, enough = [[1.0, 1.0]] * 4, [[1.0, 1.01], [1.02, 1.01], [0.99, 1.0], [1.0, 0.98], [1.0]]
    assert known_sessions([[[1.0]], [[1.0]]]) == 0
    assert (known_sessions([few]), known_sessions([enough])) == (4, 5)
    with pytest.raises(ValueError, match="fewer than 5"):
        between_sessions([[1.0, 1.0]], [[1.1, 1.1]], [few])
    found = between_sessions([[1.1, 1.1]], [[1.0, 1.0]], [enough])
    assert found.ratio == pytest.approx(1.1)
    assert found.degrees > 3
    assert not found.is_paired


def test_repeats_that_agree_within_a_session_say_nothing_of_the_next() -> None:
    """Inside a session nothing scatters, and sessions are 2 % apart: 3 % is no difference."""
    chance = random.Random(1)
    history = [[math.exp(chance.gauss(0, 0.02))] * 5 for _ in range(10)]
    one: LogRatio = between_sessions([[1.03] * 5], [[1.0] * 5], [history])
    assert one.p_different() > 0.05
    assert unpaired([1.03] * 5, [1.0] * 5).p_different() == 0
