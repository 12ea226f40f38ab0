"""A recipe's ``conditions`` and ``scheduling``.

The first is the state that a board must be in while it is measured; the second says which CPUs a
program gets, and with what priority."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from labctl.checked import Word
from labctl.config.types import Duration, Size
from labctl.config.yaml.document import StrictModel
from labctl.units import ranges

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


_PART = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_PATTERN = r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"
#: As many as the agent can name.
_MOST_CPUS = 1024


def cpu_numbers(text: str) -> frozenset[int]:
    """Return the CPUs of a kernel's list (``0-3,5``). Raises ValueError for other texts."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= _MOST_CPUS:
            raise ValueError(f"must be numbers of CPUs such as 0-3,5, found {text!r}")
        found.update(range(first, last + 1))
    return frozenset(found)


def _one_number(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: CPUs by number, as kernels write them; kept in that form.
CpuList = Annotated[
    str,
    BeforeValidator(_one_number),
    AfterValidator(lambda text: ranges(cpu_numbers(text))),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": _PATTERN, "examples": ["0-3,5"]},
                {"type": "integer", "minimum": 0, "maximum": _MOST_CPUS - 1},
            ]
        }
    ),
]


class Scheduling(StrictModel):
    """CPUs and priority of the program on the board."""

    cpus: CpuList | None = None
    """CPUs that the program may use, by number, `4-7` for instance; by default all that labctl may
    use. An engine that starts a thread for each core counts these."""
    nice: Annotated[int, Field(ge=-20, le=19)] | None = None
    """Its priority, added to labctl's own on the board: 19 gives way to everything else, below 0 is
    for root alone."""
