"""Progress of the long steps of this package."""

from typing import Protocol


class Progress(Protocol):
    """Told of progress, from 0 to ``total`` in whatever unit the step has."""

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """``step`` is a short text for people; ``total`` is ``None`` while it is unknown."""


def silent(step: str, done: int, total: int | None) -> None:
    """Tell nobody."""
