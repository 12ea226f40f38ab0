"""Answers of one model to one prompt, as arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl.evaluation.accuracy import Accuracy
from labctl.records.evaluation import GradeRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Variant, question, sample -> tokens of the prompt.
PromptTokens = Mapping[tuple[str, str, int], int]


@dataclass(frozen=True)
class Answers:
    """Answers under one limit of tokens; None = no limit.

    One entry for each answer. ``question`` is an index into the common questions, ``weight`` is 1 /
    number of samples of that question: a question counts once. ``tokens`` and ``prompt_tokens`` are
    None if one value is unknown.
    """

    budget: int | None
    question: "NDArray[np.intp]"
    weight: "NDArray[np.float64]"
    correct: "NDArray[np.float64]"
    complete: "NDArray[np.float64]"
    tokens: "NDArray[np.float64] | None"
    prompt_tokens: "NDArray[np.float64] | None"

    def shares(self, values: "NDArray[np.float64]", count: int) -> "NDArray[np.float64]":
        """Return the mean of a value over the samples, for each of ``count`` questions."""
        import numpy as np

        found: NDArray[np.float64] = np.zeros(count)
        np.add.at(found, self.question, self.weight * values)
        return found


@dataclass(frozen=True)
class AnswerSet:
    """Answers of one model with one prompt, limits ascending, None last."""

    model: str
    prompt: str
    states_budget: bool
    cells: tuple[Answers, ...]

    @property
    def name(self) -> str:
        """Return ``MODEL/PROMPT``."""
        return f"{self.model}/{self.prompt}"

    @property
    def limited(self) -> tuple[Answers, ...]:
        """Answers under limits of tokens."""
        return tuple(one for one in self.cells if one.budget is not None)


def common_questions(cells: Iterable[Accuracy]) -> tuple[str, ...]:
    """Return the questions that have a grade in every cell, in the order of the first cell."""
    every = list(cells)
    if not every:
        return ()
    found = list(every[0].verdicts)
    for cell in every[1:]:
        found = [one for one in found if one in cell.verdicts]
    return tuple(found)


def answer_set(
    cells: Sequence[Accuracy],
    questions: Sequence[str],
    prompt_tokens: PromptTokens,
    *,
    states_budget: bool,
) -> AnswerSet:
    """Put the cells of one variant into arrays, for these questions only."""
    model, _, prompt = cells[0].variant.partition("/")
    rank = {question: number for number, question in enumerate(questions)}
    ordered = sorted(cells, key=lambda one: (one.budget is None, one.budget or 0))
    found = [_answers(one, rank, prompt_tokens) for one in ordered]
    return AnswerSet(model, prompt, states_budget, tuple(found))


def _answers(cell: Accuracy, rank: Mapping[str, int], prompts: PromptTokens) -> Answers:
    import numpy as np

    grades = [grade for grade in cell.grades if grade.question in rank]
    question = np.array([rank[grade.question] for grade in grades], dtype=np.intp)
    samples = np.bincount(question, minlength=len(rank))
    return Answers(
        budget=cell.budget,
        question=question,
        weight=1.0 / samples[question],
        correct=np.array([grade.correct for grade in grades], dtype=float),
        complete=np.array([grade.complete for grade in grades], dtype=float),
        tokens=_known([grade.tokens for grade in grades]),
        prompt_tokens=_known([prompts.get(_key(grade)) for grade in grades]),
    )


def _key(grade: GradeRecord) -> tuple[str, str, int]:
    return grade.variant, grade.question, grade.sample


def _known(values: Sequence[int | None]) -> "NDArray[np.float64] | None":
    import numpy as np

    if any(value is None for value in values):
        return None
    return np.array(values, dtype=float)
