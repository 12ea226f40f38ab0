"""Energy of a trial, by the meter of its board."""

from pydantic import Field

from labctl.records.base import Record


class EnergyRecord(Record):
    """Gross energy of the whole board: its consumption when idle is included.

    If ``joules`` is None, ``absent`` has the reason. The readings are in ``power.jsonl`` beside the
    record.
    """

    source: str = Field(description="the meter: its program, or its address")
    joules: float | None = Field(None, description="mean power x the time that the program ran")
    mean_watts: float | None = None
    peak_watts: float | None = Field(
        None, description="largest reading while the program ran; an energy counter has none"
    )
    joules_per_token: float | None = Field(
        None, description="energy (J) of each token after the first, while tokens were generated"
    )
    readings: int = Field(description="readings while the program ran")
    failed_readings: int = Field(
        description="failed readings from the program's start on, including those just before and"
        " after"
    )
    coverage: float | None = Field(
        None, description="share of the program's time that lies between close readings"
    )
    clock_uncertainty_ns: int | None = Field(
        None, description="largest error of the board's time when converted to this host's"
    )
    absent: str | None = Field(None, description="reason why there are no joules")
