"""Progress of a long step: with its name and total, or in bytes alone."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

#: Gets the number of bytes that are done so far.
BytesDone: TypeAlias = Callable[[int], None]


class Progress(Protocol):
    """Gets the progress of a step, from 0 to ``total`` in whatever unit the step has."""

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """``step`` is a short text for people; ``total`` is ``None`` while it is unknown."""


def silent(step: str, done: int, total: int | None) -> None:
    """Show nothing."""
