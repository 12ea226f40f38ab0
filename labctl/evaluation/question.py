"""A question with its right answer, and a set of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question.

    ``answer`` is the right answer alone, without its derivation (``72``; a letter where there are
    ``choices``); ``solution`` is the derivation, for worked examples.
    """

    id: str
    text: str
    answer: str
    choices: tuple[str, ...] = ()
    solution: str | None = None


@dataclass(frozen=True)
class Dataset:
    """Questions in the order in which they are asked.

    ``sha256`` is the hash of the file as read, ``size`` its number of questions; ``examples`` are
    the worked examples that come before each question, ``notes`` what a user should know about the
    choice.
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
