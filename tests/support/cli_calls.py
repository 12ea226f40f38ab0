"""The type of a fixture that calls labctl."""

from typing import Protocol


class Labctl(Protocol):
    """Call with words; ``status`` is asserted; returns standard output and error."""

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]: ...
