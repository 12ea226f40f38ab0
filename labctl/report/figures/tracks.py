"""Tracks of a trial's telemetry: activity of the board, in readable units."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from labctl.errors import printable_line
from labctl.records.telemetry import TelemetrySample
from labctl.units import natural_order

#: Maximum number of samples for a wide page; more samples are thinned evenly.
_MOST_SAMPLES = 240
#: Maximum number of readable lines in a track, with room for their names on a phone.
_MOST_LINES, _MOST_ZONES = 3, 2
_LONGEST_NAME = 12


@dataclass(frozen=True)
class Line:
    """Values over time, in ns of the board's clock; a value is valid until the next one.

    ``label``: labctl's name of the line, in English; ``name``: the board's name.
    """

    points: Sequence[tuple[int, float]]
    label: str = ""
    name: str = ""


@dataclass(frozen=True)
class Track:
    """Lines with one unit. ``from_zero``: the axis starts at 0, for example for areas.

    ``title`` is in English.
    """

    key: str
    title: str
    lines: Sequence[Line]
    from_zero: bool = True


def tracks_of(samples: Sequence[TelemetrySample]) -> list[Track]:
    """Return the tracks of the sampled values, without values that the board does not report."""
    kept = list(_thinned(samples))
    found = [
        Track("temperature", "temperature (°C)", _temperatures(kept), from_zero=False),
        Track("frequency", "CPU frequency (MHz)", _frequencies(kept)),
        Track(
            "memory-clock",
            "memory clock (MHz)",
            _present(Line(_values(kept, lambda s: s.memory_hz, 1e6))),
        ),
        Track(
            "cpus",
            "CPUs in use",
            _present(
                Line(_rate(kept, lambda s: s.tree_cpu_ns, 1e9), "program"),
                Line(_rate(kept, lambda s: s.cpu_busy_ns, 1e9), "all"),
            ),
        ),
        Track(
            "faults",
            "major page faults (1/s)",
            _present(Line(_rate(kept, lambda s: s.major_faults), "program")),
        ),
        Track(
            "reads",
            "storage reads (MB/s)",
            _present(
                Line(_rate(kept, lambda s: s.read_bytes, 1e6), "program"),
                Line(_rate(kept, lambda s: s.device_read_bytes, 1e6), "device"),
            ),
        ),
        Track(
            "memory",
            "memory (MB)",
            _present(
                Line(_values(kept, lambda s: s.rss_bytes, 1e6), "program"),
                Line(_values(kept, lambda s: s.mem_available_bytes, 1e6), "available"),
            ),
        ),
    ]
    return [track for track in found if track.lines]


def _thinned(samples: Sequence[TelemetrySample]) -> Iterator[TelemetrySample]:
    every = math.ceil(len(samples) / _MOST_SAMPLES) or 1
    for number, sample in enumerate(samples):
        if number % every == 0 or number == len(samples) - 1:
            yield sample


def _present(*lines: Line) -> list[Line]:
    return [line for line in lines if line.points]


def _values(
    samples: Sequence[TelemetrySample],
    value: Callable[[TelemetrySample], float | None],
    unit: float = 1,
) -> list[tuple[int, float]]:
    return [(s.mono_ns, found / unit) for s in samples if (found := value(s)) is not None]


def _rate(
    samples: Sequence[TelemetrySample],
    counter: Callable[[TelemetrySample], int | None],
    unit: float = 1,
) -> list[tuple[int, float]]:
    """Return the growth per second between two samples, at the time of the first.

    The last value is repeated at its end. Never below 0, even if a new process restarts the
    counter.
    """
    counted = _values(samples, counter)
    found = [
        (begin, max(0.0, after - before) / unit / ((end - begin) / 1e9))
        for (begin, before), (end, after) in pairwise(counted)
        if end > begin
    ]
    return [*found, (counted[-1][0], found[-1][1])] if found else []


def _temperatures(samples: Sequence[TelemetrySample]) -> list[Line]:
    """Return the hottest zones."""
    zones = {name for sample in samples for name in sample.temperatures_mc}
    heat = {zone: max(_of(s.temperatures_mc, zone) or 0 for s in samples) for zone in zones}
    hottest = sorted(zones, key=lambda zone: (-heat[zone], zone))[:_MOST_ZONES]
    return [Line(_zone(samples, zone), name=_short(zone)) for zone in hottest]


def _zone(samples: Sequence[TelemetrySample], zone: str) -> list[tuple[int, float]]:
    return _values(samples, lambda sample: _of(sample.temperatures_mc, zone), 1000)


def _frequencies(samples: Sequence[TelemetrySample]) -> list[Line]:
    """Return frequencies by kind of CPU: CPUs with always equal frequencies are one line."""
    cpus = sorted({cpu for sample in samples for cpu in sample.freq_khz}, key=natural_order)
    series = {cpu: tuple(_of(s.freq_khz, cpu) for s in samples) for cpu in cpus}
    alike = sorted(cpus, key=lambda cpu: (str(series[cpu]), natural_order(cpu)))
    lines = []
    for _, group in groupby(alike, key=lambda cpu: series[cpu]):
        members = list(group)
        numbers = [name.removeprefix("cpu") for name in members]
        name = numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        lines.append(Line(_frequency(samples, members[0]), name=_short(name)))
    return sorted(lines, key=lambda line: line.name)[:_MOST_LINES]


def _frequency(samples: Sequence[TelemetrySample], cpu: str) -> list[tuple[int, float]]:
    return _values(samples, lambda sample: _of(sample.freq_khz, cpu), 1000)


def _of(values: Mapping[str, int], key: str) -> int | None:
    return values.get(key)


def _short(name: str) -> str:
    shown = printable_line(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"
