"""The board's state around one job, as the agent saw it. ``None`` = the board did not tell."""

from collections.abc import Mapping

from pydantic import Field

from labctl.records.base import Record


class ClockState(Record):
    """CPUs that are clocked together: how they were set when the job began, and how they ran."""

    cpus: str = Field(description="as kernels list them, `0-3`")
    governor: str | None = None
    min_khz: int | None = Field(None, description="between which frequencies they might run")
    max_khz: int | None = None
    time_in_state_ms: Mapping[str, int] = Field(
        default_factory=dict, description="kHz -> time at it while the job ran; empty: not counted"
    )


class CoolingState(Record):
    """A cooling device that counts its states; 0 does nothing."""

    device: str
    time_in_state_ms: Mapping[str, int] = Field(
        default_factory=dict, description="state -> time in it while the job ran"
    )


class ResidentFile(Record):
    """Part of a file that was in memory, in the page cache, before the job began."""

    file_bytes: int = Field(gt=0)
    resident_bytes: int = Field(ge=0)

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.resident_bytes / self.file_bytes


class BoardState(Record):
    """All of it, measured; classes of it are what makes records unlike."""

    cpufreq: tuple[ClockState, ...] = ()
    cooling: tuple[CoolingState, ...] = ()
    resident: ResidentFile | None = Field(None, description="the model's file")
