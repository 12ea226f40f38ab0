"""Energy from readings, held against power that is known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.stats.energy import (
    IdlePower,
    NoEnergy,
    Reading,
    energy_of_counter,
    energy_of_power,
    idle_power,
    net_energy,
)

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


#: Seconds of loading, reading the prompt, and decoding, each with its watts.
PHASES = ((3.0, 4.0), (4.0, 7.0), (6.0, 5.0))
IDLE_WATTS = 2.0


def power_at(moment: float) -> float:
    end = 0.0
    for seconds, watts in PHASES:
        end += seconds
        if 0 <= moment < end:
            return watts
    return IDLE_WATTS


def joules_at(moment: float) -> float:
    """The energy since 5 s before the program."""
    joules, at = IDLE_WATTS * (min(moment, 0.0) + 5), 0.0
    for seconds, watts in PHASES:
        joules += watts * min(max(moment - at, 0.0), seconds)
        at += seconds
    return joules + IDLE_WATTS * max(moment - at, 0.0)


def played(seed: int, each: float, *, counter: bool) -> tuple[list[Reading], IdlePower]:
    """Readings of a meter, every ``each`` s on average, and of the idle board before."""
    rng = random.Random(seed)
    found, moment = [], -1 - rng.random()
    while moment < 15:
        value = joules_at(moment) if counter else power_at(moment) + rng.gauss(0, 0.05)
        found.append(Reading(round(moment * S), value))
        moment += each * rng.uniform(0.9, 1.1)
    watts = [Reading(n * S, IDLE_WATTS + rng.gauss(0, 0.05)) for n in range(20)]
    return found, idle_power(watts, counts_joules=False)


def phases(readings: list[Reading], idle: IdlePower, late: float, *, counter: bool):
    for begin, end, watts in ((3.0, 7.0, 7.0), (7.0, 13.0, 5.0)):
        found = net_energy(
            readings, round((begin + late) * S), round((end + late) * S), idle,
            longest_gap_ns=2 * S, clock_ns=5_000_000, counts_joules=counter,
        )  # fmt: skip
        yield found, (watts - IDLE_WATTS) * (end - begin)


@pytest.mark.parametrize("counter", [False, True])
def test_the_net_energy_of_a_phase_is_known_within_2_percent(counter: bool) -> None:
    """Of 40 seeds; the clocks of board and host differ by up to 5 ms."""
    for seed in range(40):
        readings, idle = played(seed, 0.035, counter=counter)
        late = random.Random(-seed).uniform(-0.005, 0.005)
        for found, truth in phases(readings, idle, late, counter=counter):
            assert found.readings >= 100
            assert found.joules == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("counter", [False, True])
def test_with_few_readings_the_uncertainty_holds_the_truth(counter: bool) -> None:
    held = cases = 0
    for seed in range(100):
        readings, idle = played(seed, 0.3, counter=counter)
        for found, truth in phases(readings, idle, 0.004, counter=counter):
            assert 10 <= found.readings < 100
            assert found.uncertainty_joules < 0.2 * truth
            held += abs(found.joules - truth) <= found.uncertainty_joules
            cases += 1
    assert held >= 0.95 * cases


@pytest.mark.parametrize("meter", ["steps", "mean"])
@pytest.mark.parametrize("each", [0.1, 0.3])
def test_the_uncertainty_holds_the_errors_of_the_meter(meter: str, each: float) -> None:
    """A counter that moves in steps of 0.4 J, and a meter that shows the mean of its interval."""

    def shown(moment: float) -> float:
        if meter == "steps":
            return joules_at(moment) // 0.4 * 0.4
        return (joules_at(moment) - joules_at(moment - each)) / each

    held = cases = 0
    for seed in range(100):
        readings, idle = played(seed, each, counter=False)
        readings = [Reading(one.at_ns, shown(one.at_ns / S)) for one in readings]
        for found, truth in phases(readings, idle, 0.004, counter=meter == "steps"):
            assert found.uncertainty_joules < 0.2 * truth
            held += abs(found.joules - truth) <= found.uncertainty_joules
            cases += 1
    assert held >= 0.95 * cases


def test_the_steps_of_a_counter_are_judged_by_the_energy_above_the_idle_board() -> None:
    idle = IdlePower(2.0, 0.0, 20)
    coarse = readings(*((at / 10, 2.2 * at // 10) for at in range(400)))
    with pytest.raises(NoEnergy, match=r"in steps of 1 J, too coarse for .* J"):
        net_energy(
            coarse, 5 * S, 35 * S, idle, longest_gap_ns=S, clock_ns=0, counts_joules=True
        )  # fmt: skip


def test_a_phase_with_few_readings_or_without_load_has_no_net_energy() -> None:
    idle = IdlePower(2.0, 0.05, 20)
    still = readings(*((at / 10, 1.9) for at in range(30)))

    def net(end_ns: int) -> None:
        net_energy(
            still, 0, end_ns, idle, longest_gap_ns=S, clock_ns=0, counts_joules=False
        )  # fmt: skip

    with pytest.raises(NoEnergy, match="9 readings in the phase; 10 are the least"):
        net(S * 8 // 10)
    with pytest.raises(NoEnergy, match="W are not above the idle board's 2 W"):
        net(2 * S)


def test_an_idle_power_needs_readings_and_a_counter_that_moves() -> None:
    steady = readings(*((at, 2.0) for at in range(9)))
    with pytest.raises(NoEnergy, match="9 readings of the idle board; 10 are the least"):
        idle_power(steady, counts_joules=False)
    coarse = readings(*((at, 360.0) for at in range(12)))
    with pytest.raises(NoEnergy, match="did not move while the board was idle"):
        idle_power(coarse, counts_joules=True)
    counted = idle_power(readings(*((at, 2.0 * at) for at in range(12))), counts_joules=True)
    assert (counted.watts, counted.readings) == (pytest.approx(2.0), 11)
