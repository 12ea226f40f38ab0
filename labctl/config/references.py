"""``references.yaml``: published figures that are shown beside a run's own.

They are quoted from their source. No statistic and no verdict uses them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from labctl import shipped
from labctl.config.models import web_address
from labctl.config.types import Line, Name
from labctl.config.yaml.document import StrictModel, load

REFERENCES_FILE = "references.yaml"

Unit = Literal["s/token", "ms/token", "tokens/s"]


class Reference(StrictModel):
    """One published figure."""

    device: Line
    """Device that was measured."""
    model: Line
    """Model that was measured."""
    quantization: Line | None = None
    """Its quantization, where the source tells it."""
    program: Line | None = None
    """Program that ran it, where the source tells it."""
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The figure, as published."""
    unit: Unit
    """Its unit: `s/token`, `ms/token` or `tokens/s`."""
    source: Line
    """Publication with its date, enough to find it again."""
    address: Annotated[Line, AfterValidator(web_address)] | None = None
    """Address of the publication."""

    @property
    def token_ns(self) -> int:
        """The figure as time of a token, in ns."""
        seconds = {"s/token": self.value, "ms/token": self.value / 1000}
        return round(1e9 * seconds.get(self.unit, 1 / self.value))


class References(StrictModel):
    """Everything in a references.yaml."""

    references: dict[Name, Reference] = Field(default_factory=dict)
    """The figures, by name."""


def known_references(lab_root: Path | None) -> Mapping[str, Reference]:
    """Return all references by name: a lab's own before those that come with labctl.

    Raises ConfigError with a line for each problem of a file.
    """
    found: dict[str, Reference] = {}
    own = [] if lab_root is None else [lab_root / REFERENCES_FILE]
    for path in (shipped.REFERENCES, *own):
        if path.is_file():
            found |= load(path, References).references
    return found
