"""``references.yaml``: published figures that are shown beside a run's own.

They are quoted from their source. No statistic and no verdict uses them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from labctl import package_data
from labctl.config.models import web_address
from labctl.config.types import Line, Name
from labctl.config.yaml.document import StrictModel, load, refuse

REFERENCES_FILE = "references.yaml"

#: The last unit is for the share of right answers.
Unit = Literal["s/token", "ms/token", "tokens/s", "% accuracy"]


class Reference(StrictModel):
    """One published figure."""

    device: Line
    """Device that was measured."""
    model: Line
    """Model that was measured."""
    quantization: Line | None = None
    """Its quantization, if the source states it."""
    program: Line | None = None
    """Program that ran it, if the source states it."""
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The figure, as published."""
    unit: Unit
    """Its unit: `s/token`, `ms/token`, `tokens/s` or `% accuracy`."""
    dataset: Line | None = None
    """Data set of an accuracy."""
    conditions: Line | None = None
    """Conditions that the source states, of an accuracy the prompt and the limit of tokens."""
    source: Line
    """Publication with its date, enough to find it again."""
    address: Annotated[Line, AfterValidator(web_address)] | None = None
    """Address of the publication."""

    @model_validator(mode="after")
    def _of_its_unit(self) -> Self:
        if self.is_accuracy != (self.dataset is not None):
            raise refuse("an accuracy needs its dataset, and nothing else has one", "dataset")
        if self.is_accuracy and self.value > 100:
            raise refuse("must be at most 100", "value")
        return self

    @property
    def is_accuracy(self) -> bool:
        """True for a share of right answers; False for a time or a rate."""
        return self.unit == "% accuracy"

    @property
    def token_ns(self) -> int | None:
        """The figure as time per token in ns; None for an accuracy."""
        if self.is_accuracy:
            return None
        seconds = {"s/token": self.value, "ms/token": self.value / 1000}
        return round(1e9 * seconds.get(self.unit, 1 / self.value))


class References(StrictModel):
    """Content of a references.yaml."""

    references: dict[Name, Reference] = Field(default_factory=dict)
    """The figures, by name."""


def known_references(lab_root: Path | None) -> Mapping[str, Reference]:
    """Return all references by name; a lab's own win over shipped ones.

    Raises ConfigError with a line for each problem of a file.
    """
    found: dict[str, Reference] = {}
    own = [] if lab_root is None else [lab_root / REFERENCES_FILE]
    for path in (package_data.REFERENCES, *own):
        if path.is_file():
            found |= load(path, References).references
    return found
