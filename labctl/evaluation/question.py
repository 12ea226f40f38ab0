"""A question with its right answer, and a set of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question.

    ``answer``: the right answer without its derivation (``72``; a letter if there are ``choices``).
    ``solution``: the derivation, for worked examples.
    """

    id: str
    text: str
    answer: str
    choices: tuple[str, ...] = ()
    solution: str | None = None


@dataclass(frozen=True)
class Dataset:
    """Questions in the order of asking.

    ``sha256``: hash of the file as read. ``size``: its number of questions. ``examples``: worked
    examples before each question. ``notes``: advice to the user about the choice.
    """

    name: str
    source: str
    sha256: str
    size: int
    questions: tuple[Question, ...]
    split: str | None = None
    subset_seed: int | None = None
    examples: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
