"""Reading the telemetry that a job left."""

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
    """The samples of a ``telemetry`` file, whose unknown fields are passed over.

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
