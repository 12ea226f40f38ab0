"""The contract of a grader."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Grade:
    """Judgement of one text. ``extracted`` is the answer that was found; None: no answer."""

    extracted: str | None
    correct: bool
    notes: tuple[str, ...] = ()


class Grader(ABC):
    """Finds the answer in a generated text, which is hostile input, and compares it.

    ``version`` changes whenever a text may be judged differently.
    """

    name: ClassVar[str]
    version: ClassVar[str]

    @abstractmethod
    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:
        """Judge a text; ``complete`` is False if a budget cut it."""
