"""Energy of a trial, by the meter of its board."""

from pydantic import Field

from labctl.records.base import Record


class EnergyRecord(Record):
    """Energy of the whole board, gross: what it draws when idle is in it.

    Without ``joules``, ``absent`` says why; the readings are in ``power.jsonl`` beside the record.
    """

    source: str = Field(description="the meter: its program, or its address")
    joules: float | None = Field(None, description="mean power x the time that the program ran")
    mean_watts: float | None = None
    peak_watts: float | None = Field(
        None, description="the greatest reading meanwhile; a counter of energy has none"
    )
    joules_per_token: float | None = Field(
        None, description="for each token after the first, while they were made"
    )
    readings: int = Field(description="while the program ran")
    failed_readings: int = Field(description="from its start on, with those just before and after")
    coverage: float | None = Field(
        None, description="the share of the program's time that lies between close readings"
    )
    clock_uncertainty_ns: int | None = Field(
        None, description="how far the board's time, brought to this host's, may be off"
    )
    absent: str | None = Field(None, description="why there are no joules")
