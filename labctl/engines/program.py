"""Source of an engine's program in a recipe."""

from typing import Self

from pydantic import model_validator

from labctl.checked import HostPath, Word, listed
from labctl.config.types import BoardPath
from labctl.config.yaml.document import StrictModel, refuse

_SOURCES = ("product", "file", "board")


class ProgramSource(StrictModel):
    """Source of a program: exactly one of product, file and board."""

    product: Word | None = None
    """A product that labctl builds; with `tool`."""
    tool: Word | None = None
    """One of the product's tools."""
    file: HostPath | None = None
    """A program for the board, in a file of this host; a relative path begins at the lab's
    folder."""
    board: BoardPath | None = None
    """A program that is already on the board."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"has {listed(given, joiner='and')}" if given else "has none"
            raise refuse(f"a program comes from exactly one of {listed(_SOURCES)}; this one {what}")
        if (self.product is None) != (self.tool is None):
            raise refuse("give product and tool together")
        return self
