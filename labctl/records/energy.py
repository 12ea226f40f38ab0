"""Energy of a trial, by the meter of its board."""

from pydantic import Field

from labctl.records.base import Record


class PhaseEnergy(Record):
    """Energy of one phase, above the power of the idle board. ``absent``: reason for no value."""

    joules_per_token: float | None = None
    gross_joules_per_token: float | None = Field(
        None, description="the same with the power of the idle board"
    )
    uncertainty_joules: float | None = Field(
        None,
        description="of a token's energy: from the phase's ends, the clocks, and the idle power",
    )
    readings: int | None = None
    absent: str | None = None


class EnergyRecord(Record):
    """Energy of the whole board: gross, its consumption when idle is included, unless said.

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
    idle_watts: float | None = Field(None, description="mean power before the run's first trial")
    idle_spread_watts: float | None = Field(None, description="standard deviation of its readings")
    idle_readings: int | None = None
    prompt: PhaseEnergy | None = Field(
        None, description="of a token of the prompt; None: the time of reading it is not known"
    )
    decode: PhaseEnergy | None = Field(
        None, description="of a token after the first, between the first and the last"
    )
