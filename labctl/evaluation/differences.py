"""Differences of models on the same questions, and results from several samples per question."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from labctl.evaluation.accuracy import Accuracy, AccuracyTable, Budget, in_both
from labctl.records.evaluation import GradeRecord
from labctl.stats.intervals import Interval
from labctl.stats.paired_answers import (
    McNemar,
    count_wins,
    mcnemar,
    paired_difference,
    questions_for_difference,
)
from labctl.stats.sampled_answers import majority_vote, pass_at_k_interval

_RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
    """Accuracy of ``second`` minus that of ``first``, at one limit by one grader.

    ``needed``: number of questions that would show a difference of this size with a probability of
    90 %; None if it is already shown, or no difference was seen.
    """

    first: Accuracy
    second: Accuracy
    gain: Interval
    test: McNemar
    needed: int | None

    @property
    def is_shown(self) -> bool:
        """True if the 95 % interval excludes 0."""
        return self.gain.low > 0 or self.gain.high < 0


def model_differences(
    table: AccuracyTable, grader: str, model_budgets: Mapping[str, Sequence[Budget]]
) -> Iterator[Difference]:
    """Yield the differences of every two models with one prompt, at their largest common limit.

    ``model_budgets``: from the evaluation's record. Limits at the same position are common, since
    they mean the same time.
    """
    for one, other in combinations(table.variants, 2):
        models, prompts = zip(*(name.partition("/")[::2] for name in (one, other)), strict=True)
        if prompts[0] != prompts[1]:
            continue
        limits = (model_budgets.get(model, table.budgets) for model in models)
        for pair in reversed(list(zip(*limits, strict=True))):
            first, second = map(table.cell, (one, other), pair, (grader, grader))
            if first and second:
                if (found := _difference(first, second)) is not None:
                    yield found
                break


def _difference(first: Accuracy, second: Accuracy) -> Difference | None:
    """Return the difference; None for fewer than two common questions."""
    common = in_both(first, second)
    if len(common) < 2:
        return None
    shares = [fmean(mine) for _, mine, _ in common], [fmean(theirs) for _, _, theirs in common]
    wins, losses = count_wins(*shares)
    gain = paired_difference(*shares, resamples=_RESAMPLES)
    is_shown = gain.low > 0 or gain.high < 0
    needed = None
    if gain.mean and not is_shown and abs(gain.mean) <= (wins + losses) / len(common):
        needed = questions_for_difference(gain.mean, (wins + losses) / len(common))
    return Difference(first, second, gain, mcnemar(wins, losses), needed)


@dataclass(frozen=True)
class Sampled:
    """Accuracy of the majority answer, and pass@k for each k; only questions with all samples."""

    majority: float
    pass_at: dict[int, Interval]


def sampled(cell: Accuracy) -> Sampled | None:
    """Return the combined result of all samples; None for one sample per question."""
    grades: dict[str, list[GradeRecord]] = {}
    for grade in cell.grades:
        grades.setdefault(grade.question, []).append(grade)
    samples = max(map(len, grades.values()), default=0)
    whole = [of_one for of_one in grades.values() if len(of_one) == samples]
    if samples < 2 or len(whole) < 2:
        return None
    votes = []
    for of_one in whole:
        winner = majority_vote([grade.extracted for grade in of_one])
        votes.append(winner is not None and of_one[winner].correct)
    correct = [sum(grade.correct for grade in of_one) for of_one in whole]
    counts = [samples] * len(whole)
    steps = sorted({1, *(2**k for k in range(1, samples.bit_length())), samples})
    return Sampled(
        fmean(votes),
        {k: pass_at_k_interval(correct, counts, k) for k in steps if k <= samples},
    )
