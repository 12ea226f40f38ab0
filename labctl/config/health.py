"""Health checks of boards, as ``devices.yaml`` asks for them."""

from typing import Annotated

from pydantic import AfterValidator, Field

from labctl.config.types import Duration, Line, Share
from labctl.config.yaml.document import StrictModel
from labctl.text_types import HostPath

#: With fewer degrees of freedom, limits of a Student distribution are several times wider.
LEAST_HISTORY = 4
_LONGEST_SECONDS = 31 * 86_400.0


def _interval(seconds: float) -> float:
    if seconds > _LONGEST_SECONDS:
        raise ValueError("must be at most 744h, which is 31 days")
    return seconds


_Interval = Annotated[Duration, AfterValidator(_interval)]


class HealthChecks(StrictModel):
    """Times of the health checks, and limits for a sick board."""

    every: _Interval = Field(12 * 3600.0, json_schema_extra={"default": "12h"})
    """Longest time between two health checks of a board that works."""
    jobs: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Most jobs of users between two of them."""
    slower: Share = Field(0.05, json_schema_extra={"default": "5%"})
    """Smallest slowdown of memory, storage or arithmetic that counts as sick."""
    history: Annotated[int, Field(ge=LEAST_HISTORY, le=100)] = 8
    """Number of earlier good checks needed for a verdict on speed."""
    cooling: _Interval = Field(900.0, json_schema_extra={"default": "15m"})
    """Time after which a board that was hot is checked again."""
    models: tuple[HostPath, ...] = ()
    """Small GGUF files for the rate of the arithmetic; without any, only memory and storage are
    measured."""
    recipe: Line | None = None
    """Recipe that each check runs after the probe: `health_check` is shipped. By default none; the
    `health_check` of a target.yaml wins."""
    host_window: _Interval = Field(600.0, json_schema_extra={"default": "10m"})
    """If half of a host's boards (at least two) are lost within this time, the fault is the host's,
    and the boards keep their health."""
