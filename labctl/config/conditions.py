"""A recipe's ``conditions``: the state that a board must be in while it is measured."""

from typing import Annotated

from pydantic import AfterValidator, Field

from labctl.checked import Word
from labctl.config.quantities import Duration, Size
from labctl.config.yaml.document import StrictModel

#: How long each trial waits for a board to be ready, where the recipe does not say.
DEFAULT_MAX_WAIT_SECONDS = 600.0
#: Without them nothing would put the board back.
_NEEDED = ("hdcd", "init")


def _not_needed(name: str) -> str:
    if name in _NEEDED:
        raise ValueError(f"labctl needs {name} to reach the board")
    return name


class Conditions(StrictModel):
    """Required state of a board; everything that is changed is put back at the end."""

    strict: bool = False
    """Refuse to run when a condition cannot be met; by default that is recorded and shown."""
    governor: Word | None = None
    """The frequency governor of all CPUs, `performance` for instance."""
    frequency_mhz: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """One fixed frequency for all CPUs: the least and the most that they may run at."""
    screen_off: bool = False
    """Switch the screen off; at the end it is switched on again if it was on."""
    stop_processes: Annotated[
        tuple[Annotated[Word, AfterValidator(_not_needed)], ...], Field(max_length=20)
    ] = ()
    """Programs to stop (SIGSTOP) during the measurement, by name; they continue afterwards
    (SIGCONT)."""
    max_start_temperature: Annotated[float, Field(ge=0, le=150)] | None = None
    """Highest temperature of any thermal zone when a trial starts, in degrees Celsius."""
    max_load: Annotated[float, Field(gt=0, le=1024)] | None = None
    """Number of CPUs that other programs may keep busy when a trial starts, 0.1 for instance."""
    min_free_memory: Size | None = None
    """Memory that must be available when a trial starts."""
    max_wait: Duration | None = None
    """Longest wait of a trial for these three; 10 minutes by default. It counts against the
    recipe's `max_time`, and never uses the time that the trial itself needs."""
    drop_caches: bool = False
    """Empty the page cache before each trial, so that it loads from storage."""

    @property
    def changes(self) -> bool:
        """True if something is changed that has to be put back."""
        return bool(self.governor or self.frequency_mhz or self.stop_processes or self.screen_off)

    @property
    def waits(self) -> bool:
        """True if a trial may have to wait for the board."""
        wanted = (self.max_start_temperature, self.max_load, self.min_free_memory)
        return any(one is not None for one in wanted)
