"""A recipe's ``scheduling``: which CPUs a program gets, and with what priority."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from labctl.config.yaml.document import StrictModel
from labctl.units import ranges

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
