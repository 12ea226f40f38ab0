"""Reading the telemetry that a job left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from labctl.files import host_reads
from labctl.records import TelemetrySample


@dataclass(frozen=True)
class Telemetry:
    """The samples in their order, and how many lines were none.

    A board that lost its power leaves half a line at the end; more than that is worth a word.
    """

    samples: tuple[TelemetrySample, ...]
    unreadable_lines: int = 0


def read_telemetry(path: Path) -> Telemetry:
    """Return the samples of a ``telemetry`` file; unknown fields are ignored.

    A file that is not there holds none. Raises ConfigError when it cannot be read.
    """
    samples = []
    unreadable = 0
    with host_reads(path):
        lines = path.read_bytes().splitlines() if path.exists() else []
    for line in lines:
        try:
            samples.append(TelemetrySample.model_validate_json(line))
        except ValidationError:
            unreadable += 1
    return Telemetry(tuple(samples), unreadable)


def grown(
    samples: Sequence[TelemetrySample], counter: Callable[[TelemetrySample], int | None]
) -> int | None:
    """Return the growth of a counter from the first sample that has it to the last."""
    values = [value for sample in samples if (value := counter(sample)) is not None]
    return values[-1] - values[0] if len(values) > 1 else None


def share(
    samples: Sequence[TelemetrySample], counter: Callable[[TelemetrySample], int | None]
) -> float | None:
    """Return the growth of a counter of ns, divided by the time of the samples; None if unknown."""
    if not samples:
        return None
    more, took = grown(samples, counter), samples[-1].mono_ns - samples[0].mono_ns
    return None if more is None or took <= 0 else more / took


def others_share(samples: Sequence[TelemetrySample]) -> float | None:
    """CPU time that was neither the job's nor spent on page reclaim, over the time of one CPU.

    The job is all that it started; an earlier agent told the times of its first process alone.
    """
    for own in (_tree_ns, _process_ns):
        known = [s for s in samples if None not in (s.cpu_busy_ns, own(s))]
        busy, job = share(known, lambda s: s.cpu_busy_ns), share(known, own)
        if busy is not None and job is not None:
            return max(0.0, busy - job - (reclaim_share(known) or 0.0))
    return None


def reclaim_share(samples: Sequence[TelemetrySample]) -> float | None:
    """CPU time of the kernel's threads that free memory, over the time of one CPU."""
    return share([s for s in samples if s.reclaim_cpu_ns is not None], lambda s: s.reclaim_cpu_ns)


def _tree_ns(sample: TelemetrySample) -> int | None:
    return sample.tree_cpu_ns


def _process_ns(sample: TelemetrySample) -> int | None:
    user, system = sample.user_ns, sample.system_ns
    return None if user is None or system is None else user + system
