"""Energy between two moments, from readings of a meter."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

#: Fewer readings in the interval cannot show fast changes.
LEAST_READINGS = 3
#: Fewer readings in a phase, or of an idle board, show no net energy.
LEAST_OF_PHASE = 10
#: Share of the time that must lie between readings that are close enough.
LEAST_COVERAGE = 0.95
#: Maximum uncertainty of the counted energy caused by the counter's steps.
MOST_STEP_SHARE = 0.1


class NoEnergy(Exception):
    """The readings do not show the energy; the message says why, for users."""


@dataclass(frozen=True)
class Reading:
    """One reading of a meter: watts, or joules since the meter's own start."""

    at_ns: int
    value: float


@dataclass(frozen=True)
class Energy:
    """Measured energy. ``peak_watts`` is None if only joules were read."""

    joules: float
    mean_watts: float
    peak_watts: float | None
    coverage: float


def energy_of_power(
    readings: Sequence[Reading], start_ns: int, end_ns: int, *, longest_gap_ns: int
) -> Energy:
    """Integrate power by trapezoids, over pairs of readings that are no further apart than a gap.

    Power in gaps is assumed to be like the rest; ``coverage`` is the share of time outside gaps.
    Readings are in time order. Raises NoEnergy.
    """
    inside = _inside(readings, start_ns, end_ns)
    covered_ns, area = 0, 0.0
    for before, after in _close(readings, longest_gap_ns):
        left, right = max(before.at_ns, start_ns), min(after.at_ns, end_ns)
        if left < right:
            middle = (_between(before, after, left) + _between(before, after, right)) / 2
            area += middle * (right - left)
            covered_ns += right - left
    coverage = covered_ns / (end_ns - start_ns)
    if coverage < LEAST_COVERAGE:
        raise NoEnergy(
            f"{coverage:.0%} of the time lies between readings that are at most"
            f" {longest_gap_ns / 1e9:g} s apart"
        )
    watts = area / covered_ns
    joules = watts * (end_ns - start_ns) / 1e9
    return Energy(joules, watts, max(reading.value for reading in inside), coverage)


def energy_of_counter(
    readings: Sequence[Reading], start_ns: int, end_ns: int, *, longest_gap_ns: int
) -> Energy:
    """Return the growth of a joule counter, interpolated linearly at both ends.

    Readings are in time order. Raises NoEnergy.
    """
    inside = _inside(readings, start_ns, end_ns)
    if any(after.value < before.value for before, after in pairwise(readings)):
        raise NoEnergy("the counter went back")
    seconds = (end_ns - start_ns) / 1e9
    first, last = (_at(readings, moment, longest_gap_ns) for moment in (start_ns, end_ns))
    joules = last - first
    growth = [after.value - before.value for before, after in pairwise(inside)]
    if joules <= 0:
        raise NoEnergy("the counter did not move")
    # A counter that stays constant between readings moves in steps; each end may miss one step.
    if 0 in growth and 2 * max(growth) > MOST_STEP_SHARE * joules:
        raise NoEnergy(
            f"the counter moves in steps of {max(growth):.3g} J, too coarse for {joules:.3g} J"
        )
    return Energy(joules, joules / seconds, None, 1.0)


@dataclass(frozen=True)
class IdlePower:
    """Power of a board that does nothing: mean and standard deviation of the readings."""

    watts: float
    spread_watts: float
    readings: int


@dataclass(frozen=True)
class NetEnergy:
    """Energy of a phase: above the idle power, and with it. ``uncertainty`` is of both."""

    joules: float
    gross_joules: float
    uncertainty_joules: float
    readings: int


def idle_power(readings: Sequence[Reading], *, counts_joules: bool) -> IdlePower:
    """Return the power of the idle board. Raises NoEnergy."""
    watts = [one.value for one in (_rates(readings) if counts_joules else readings)]
    if len(watts) < LEAST_OF_PHASE:
        raise NoEnergy(f"{len(watts)} readings of the idle board; {LEAST_OF_PHASE} are the least")
    if counts_joules and readings[-1].value <= readings[0].value:
        raise NoEnergy("the counter did not move while the board was idle")
    return IdlePower(fmean(watts), stdev(watts), len(watts))


def net_energy(
    readings: Sequence[Reading],
    start_ns: int,
    end_ns: int,
    idle: IdlePower,
    *,
    longest_gap_ns: int,
    clock_ns: int,
    counts_joules: bool,
) -> NetEnergy:
    """Return the energy of a phase that has ``LEAST_OF_PHASE`` readings or more.

    Power changes at the phase's ends, so readings outside do not count; a counter of joules is
    interpolated there. The uncertainty has four parts: the change of power at the ends over the
    time between two readings (half of it for a counter), since a meter may show the mean of that
    time; the same over the uncertainty of the clocks (``clock_ns``); a step of the counter at each
    end; and twice the standard error of the idle power. Raises NoEnergy.
    """
    inside = [reading for reading in readings if start_ns <= reading.at_ns <= end_ns]
    if len(inside) < LEAST_OF_PHASE:
        raise NoEnergy(f"{len(inside)} readings in the phase; {LEAST_OF_PHASE} are the least")
    seconds = (end_ns - start_ns) / 1e9
    if counts_joules:
        gross = energy_of_counter(readings, start_ns, end_ns, longest_gap_ns=longest_gap_ns)
    else:
        ends = Reading(start_ns, inside[0].value), Reading(end_ns, inside[-1].value)
        padded = (ends[0], *inside, ends[1])
        gross = energy_of_power(padded, start_ns, end_ns, longest_gap_ns=longest_gap_ns)
    watts = _rates(readings) if counts_joules else readings
    edges = clock = 0.0
    # The reading after the change may be a mean over both sides of it, so look at the next one too.
    for before, after, later in zip(watts, watts[1:], [*watts[2:], watts[-1]], strict=False):
        if any(before.at_ns < end <= after.at_ns for end in (start_ns, end_ns)):
            change = max(abs(one.value - before.value) for one in (after, later))
            seconds_apart = (after.at_ns - before.at_ns) / 1e9
            edges += change * seconds_apart / (2 if counts_joules else 1)
            clock += change * clock_ns / 1e9
    floor = 2 * idle.spread_watts / math.sqrt(idle.readings) * seconds
    net = gross.joules - idle.watts * seconds
    if net <= 0:
        raise NoEnergy(
            f"its {gross.mean_watts:.3g} W are not above the idle board's {idle.watts:.3g} W"
        )
    step = _step(readings) if counts_joules else 0.0
    if 2 * step > MOST_STEP_SHARE * net:
        raise NoEnergy(f"the counter moves in steps of {step:.3g} J, too coarse for {net:.3g} J")
    return NetEnergy(net, gross.joules, math.hypot(edges, clock, floor, step, step), len(inside))


def _step(readings: Sequence[Reading]) -> float:
    """Return the joules in which a counter moves: its values are multiples of them."""
    growth = sorted({after.value - before.value for before, after in pairwise(readings)})
    # Sums of floating-point numbers differ in their last digits.
    least = 1e-9 * max((abs(one.value) for one in readings), default=0.0)
    return min((b - a for a, b in pairwise(growth) if b - a > least), default=0.0)


def _rates(readings: Sequence[Reading]) -> list[Reading]:
    """Return the mean watts between two readings of joules, at their middle."""
    return [
        Reading(
            (before.at_ns + after.at_ns) // 2,
            (after.value - before.value) * 1e9 / (after.at_ns - before.at_ns),
        )
        for before, after in pairwise(readings)
        if after.at_ns > before.at_ns
    ]


def _inside(readings: Sequence[Reading], start_ns: int, end_ns: int) -> list[Reading]:
    found = [reading for reading in readings if start_ns <= reading.at_ns <= end_ns]
    if len(found) < LEAST_READINGS or end_ns <= start_ns:
        raise NoEnergy(
            f"{len(found)} readings in {(end_ns - start_ns) / 1e9:.3g} s; {LEAST_READINGS} are"
            " the least"
        )
    return found


def _between(before: Reading, after: Reading, at_ns: int) -> float:
    share = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
    return before.value + share * (after.value - before.value)


def _at(readings: Sequence[Reading], at_ns: int, longest_gap_ns: int) -> float:
    for before, after in _close(readings, longest_gap_ns):
        if before.at_ns <= at_ns <= after.at_ns:
            return _between(before, after, at_ns)
    raise NoEnergy("no readings close to the beginning or the end")


def _close(readings: Sequence[Reading], longest_gap_ns: int) -> Iterator[tuple[Reading, Reading]]:
    """Yield pairs of successive readings that are close in time."""
    for before, after in pairwise(readings):
        if 0 < after.at_ns - before.at_ns <= longest_gap_ns:
            yield before, after
