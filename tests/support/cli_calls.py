"""The types of fixtures that call labctl."""

from pathlib import Path
from typing import Protocol


class Labctl(Protocol):
    """Call with words; ``status`` is asserted; returns standard output and error."""

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]: ...


class LabctlIn(Protocol):
    """As :class:`Labctl`, in the lab of a folder."""

    def __call__(self, root: Path, *words: str, status: int = 0) -> tuple[str, str]: ...
