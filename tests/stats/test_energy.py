"""Energy from readings, held against power that is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.stats.energy import NoEnergy, Reading, energy_of_counter, energy_of_power

S = 1_000_000_000


def readings(*pairs: tuple[float, float]) -> list[Reading]:
    return [Reading(round(at * S), value) for at, value in pairs]


def test_constant_power() -> None:
    found = energy_of_power(
        readings(*((at, 5.0) for at in range(12))), S, 9 * S, longest_gap_ns=3 * S
    )
    assert (found.joules, found.mean_watts, found.peak_watts) == (40, 5, 5)
    assert found.coverage == 1


def test_a_ramp_is_cut_at_both_ends() -> None:
    """Power of t watts: the integral from 0.5 s to 4.5 s is 10 J."""
    found = energy_of_power(
        readings(*((at, float(at)) for at in range(7))), S // 2, 9 * S // 2, longest_gap_ns=3 * S
    )
    assert found.joules == pytest.approx(10)
    assert found.peak_watts == 4


@given(
    st.lists(st.floats(0.01, 0.4), min_size=30, max_size=60),
    st.floats(0, 20),
    st.floats(0.5, 2.5),
    st.floats(3.5, 6),
)
def test_linear_power_is_exact_however_it_is_read(
    steps: list[float], watts: float, start: float, end: float
) -> None:
    moments = [0.0]
    while moments[-1] < 7:
        moments.append(moments[-1] + steps[len(moments) % len(steps)])
    found = energy_of_power(
        readings(*((at, watts + at) for at in moments)),
        round(start * S), round(end * S), longest_gap_ns=S,
    )  # fmt: skip
    assert found.joules == pytest.approx((end - start) * (watts + (start + end) / 2), rel=1e-6)


def test_a_gap_is_told_and_too_many_are_refused() -> None:
    """Of 100 s, 4 s (then 10 s) lie between readings that are too far apart."""
    beats = [(at, 2.0) for at in range(101) if not 50 < at < 54]
    found = energy_of_power(readings(*beats), 0, 100 * S, longest_gap_ns=3 * S)
    assert found.coverage == pytest.approx(0.96)
    assert found.joules == pytest.approx(200)
    beats = [(at, 2.0) for at in range(101) if not 50 < at < 60]
    with pytest.raises(NoEnergy, match="90% of the time lies between readings that are at most 3"):
        energy_of_power(readings(*beats), 0, 100 * S, longest_gap_ns=3 * S)


def test_what_lies_outside_does_not_count() -> None:
    beats = [(-1, 900.0), (0, 2.0), (1, 2.0), (2, 2.0), (3, 2.0), (4, 900.0)]
    assert energy_of_power(readings(*beats), 0, 3 * S, longest_gap_ns=S).joules == 6


def test_few_readings_say_nothing() -> None:
    beats = readings((0, 2.0), (1, 2.0), (2, 2.0), (3, 2.0))
    for energy in (energy_of_power, energy_of_counter):
        with pytest.raises(NoEnergy, match=r"2 readings in 1\.5 s; 3 are the least"):
            energy(beats, S // 2 + S // 4, 9 * S // 4, longest_gap_ns=S)
        with pytest.raises(NoEnergy, match="0 readings"):
            energy([], 0, S, longest_gap_ns=S)
        with pytest.raises(NoEnergy):
            energy(beats, S, S, longest_gap_ns=S)


def test_a_program_that_began_before_the_meter_was_asked() -> None:
    beats = [(at, 2.0) for at in range(10, 20)]
    with pytest.raises(NoEnergy, match="47% of the time"):
        energy_of_power(readings(*beats), 0, 19 * S, longest_gap_ns=S)


def test_a_counter_of_joules() -> None:
    beats = readings(*((at, 1000 + 5.0 * at) for at in range(12)))
    found = energy_of_counter(beats, 3 * S // 2, 19 * S // 2, longest_gap_ns=S)
    assert found.joules == pytest.approx(40)
    assert (found.mean_watts, found.peak_watts) == (pytest.approx(5), None)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([5.0, 6.0, 1.0, 2.0, 3.0], "the counter went back"),
        ([5.0] * 5, "did not move"),
        ([5.0, 5.0, 5.0, 9.0, 9.0], "moves in steps of 4 J, too coarse for 4 J"),
    ],
)
def test_a_counter_that_cannot_be_used(values: list[float], why: str) -> None:
    with pytest.raises(NoEnergy, match=why):
        energy_of_counter(readings(*enumerate(values)), 0, 4 * S, longest_gap_ns=S)


def test_a_counter_needs_readings_at_both_ends() -> None:
    beats = readings(*((at, 5.0 * at) for at in (0, 1, 2, 3, 9)))
    with pytest.raises(NoEnergy, match="no readings close to the beginning or the end"):
        energy_of_counter(beats, S, 5 * S, longest_gap_ns=3 * S)
