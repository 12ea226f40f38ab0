"""Energy between two moments, from readings of a meter."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Fewer readings in the interval cannot show fast changes.
LEAST_READINGS = 3
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
