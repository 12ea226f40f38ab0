"""Accuracy: combine the grades of each variant, budget and grader."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from labctl.records.evaluation import GenerationRecord, GradeRecord
from labctl.stats.intervals import Interval
from labctl.stats.proportions import clustered_interval

#: Notes of grades that a limit of the grader ended; they count as wrong, and are shown.
LIMIT_NOTES = ("time-limit", "memory-limit", "crash")

#: A budget, in generated tokens; None = no limit.
Budget = int | None
#: A variant, a budget and a grader; a question and the number of its sample.
_Cell = tuple[str, Budget, str]
_Sample = tuple[str, int]


@dataclass(frozen=True)
class Accuracy:
    """One variant at one budget, judged by one version of one grader.

    ``grades``: one for each question and sample, in the order of asking. ``failed``: the questions
    (with their samples) that got no answer; they are not counted. ``overruns``: number of answers
    longer than the budget stated in their prompt; None: no budget stated. ``stopped``: the stop
    rule may have ended the asking.
    """

    variant: str
    budget: Budget
    grader: str
    version: str
    grades: tuple[GradeRecord, ...]
    failed: tuple[tuple[str, int], ...] = ()
    overruns: int | None = None
    stopped: bool = False

    @property
    def total(self) -> int:
        """Number of graded answers."""
        return len(self.grades)

    @cached_property
    def right(self) -> int:
        """Number of right answers."""
        return sum(grade.correct for grade in self.grades)

    @property
    def share(self) -> float | None:
        """Share of right answers; None if nothing is graded."""
        return self.right / self.total if self.grades else None

    @cached_property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the share. All samples of a question are one cluster."""
        if not self.grades:
            return None
        shares = [sum(verdicts) / len(verdicts) for verdicts in self.verdicts.values()]
        samples = max(map(len, self.verdicts.values()))
        return clustered_interval(shares, samples, stopped=self.stopped)

    @cached_property
    def cut(self) -> int:
        """Number of answers that the budget cut."""
        return sum(not grade.complete for grade in self.grades)

    @cached_property
    def cut_by_labctl(self) -> int:
        """Number of answers that labctl cut from longer ones."""
        return sum(grade.truncated_here for grade in self.grades)

    @cached_property
    def unanswered(self) -> int:
        """Number of texts in which no answer was found."""
        return sum(grade.extracted is None for grade in self.grades)

    @cached_property
    def limited(self) -> int:
        """Number of texts at which the grader itself met a limit of time or memory."""
        return sum(any(note in LIMIT_NOTES for note in grade.notes) for grade in self.grades)

    @cached_property
    def notes(self) -> Counter[str]:
        """Number of grades with each note."""
        return Counter(note for grade in self.grades for note in grade.notes)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """Generated tokens within the budget, for each grade that has their number."""
        return tuple(grade.tokens for grade in self.grades if grade.tokens is not None)

    @cached_property
    def verdicts(self) -> dict[str, tuple[bool, ...]]:
        """Verdicts on the samples of each question (one cluster), in order."""
        found: dict[str, list[bool]] = {}
        for grade in self.grades:
            found.setdefault(grade.question, []).append(grade.correct)
        return {question: tuple(verdicts) for question, verdicts in found.items()}


@dataclass(frozen=True)
class Disagreement:
    """One text that graders judge differently, with their grades in the order of the graders."""

    question: str
    variant: str
    sample: int
    budget: Budget
    grades: tuple[GradeRecord, ...]


@dataclass(frozen=True)
class AccuracyTable:
    """All variants, budgets (ascending, None last) and graders of an evaluation."""

    variants: tuple[str, ...]
    budgets: tuple[Budget, ...]
    graders: tuple[str, ...]
    cells: tuple[Accuracy, ...]

    def cell(self, variant: str, budget: Budget, grader: str) -> Accuracy | None:
        """Return one accuracy; None without grades."""
        return self._by_key.get((variant, budget, grader))

    @cached_property
    def _by_key(self) -> dict[tuple[str, Budget, str], Accuracy]:
        return {(one.variant, one.budget, one.grader): one for one in self.cells}

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """All texts that the graders judge differently, by variant."""
        texts: dict[tuple[str, Budget, str, int], list[GradeRecord]] = {}
        for one in self.cells:
            for grade in one.grades:
                key = (grade.variant, grade.budget, grade.question, grade.sample)
                texts.setdefault(key, []).append(grade)
        return tuple(
            Disagreement(question, variant, sample, budget, tuple(grades))
            for (variant, budget, question, sample), grades in texts.items()
            if len({grade.correct for grade in grades}) > 1
        )

    @cached_property
    def distinct_graders(self) -> dict[str, list[str]]:
        """Return graders that judge differently, each with those that judge every text like it."""
        found: dict[str, list[str]] = {}
        for grader in self.graders:
            first = next((one for one in found if self._judges_alike(one, grader)), None)
            if first is None:
                found[grader] = []
            else:
                found[first].append(grader)
        return found

    def _judges_alike(self, one: str, other: str) -> bool:
        verdicts = (
            {grade.grader: grade.correct for grade in found.grades} for found in self.disagreements
        )
        return all(by.get(one) == by.get(other) for by in verdicts)


def in_both(one: Accuracy, other: Accuracy) -> list[tuple[str, tuple[bool, ...], tuple[bool, ...]]]:
    """Return each question that both accuracies have, with both verdicts."""
    return [
        (question, verdicts, other.verdicts[question])
        for question, verdicts in one.verdicts.items()
        if question in other.verdicts
    ]


def accuracy_table(
    generations: Iterable[GenerationRecord],
    grades: Iterable[GradeRecord],
    *,
    questions: Sequence[str],
    variants: Sequence[str],
    stopped: bool = False,
    common: bool = False,
) -> AccuracyTable:
    """Combine the grades of an evaluation.

    ``questions`` and ``variants`` give the order. If a text has several grades, the last one
    counts, but an answer under a real limit replaces one that labctl cut. Only the last used
    version of a grader counts. ``stopped``: the recipe has a stop rule, so intervals are wider.
    ``common``: ``max_time`` ended the asking; count only samples that have a grade, or a failure,
    in every cell of a grader.
    """
    rank = {question: number for number, question in enumerate(questions)}
    newest = _newest(grades)
    chosen: dict[_Cell, dict[_Sample, GradeRecord]] = {}
    for grade in newest:
        of_cell = chosen.setdefault((grade.variant, grade.budget, grade.grader), {})
        key = (grade.question, grade.sample)
        if key in of_cell and grade.truncated_here and not of_cell[key].truncated_here:
            continue
        of_cell[key] = grade
    answers = _Answers(generations)
    graders = tuple(dict.fromkeys(grade.grader for grade in newest))
    budgets = sorted({budget for _, budget, _ in chosen}, key=_ascending)
    failed = {
        (variant, budget, grader): answers.failed(variant, budget, found)
        for (variant, budget, grader), found in chosen.items()
    }
    if common:
        _keep_common(chosen, failed)
    cells = []
    for variant in variants:
        for budget in budgets:
            for grader in graders:
                found = chosen.get((variant, budget, grader))
                if not found:
                    continue
                in_order = sorted(found, key=lambda key: (rank.get(key[0], len(rank)), key[1]))
                cells.append(
                    Accuracy(
                        variant,
                        budget,
                        grader,
                        next(iter(found.values())).version,
                        tuple(found[key] for key in in_order),
                        failed[variant, budget, grader],
                        answers.overruns(variant, budget, found),
                        stopped,
                    )
                )
    return AccuracyTable(tuple(variants), tuple(budgets), graders, tuple(cells))


def _keep_common(
    chosen: dict[_Cell, dict[_Sample, GradeRecord]], failed: dict[_Cell, tuple[_Sample, ...]]
) -> None:
    """Leave out samples that are missing in any cell of the same grader."""
    for grader in {cell[2] for cell in chosen}:
        cells = [cell for cell in chosen if cell[2] == grader]
        known = set.intersection(*({*chosen[cell], *failed[cell]} for cell in cells))
        for cell in cells:
            chosen[cell] = {key: one for key, one in chosen[cell].items() if key in known}
            failed[cell] = tuple(key for key in failed[cell] if key in known)


def _ascending(budget: Budget) -> tuple[bool, int]:
    return budget is None, budget or 0


def _newest(grades: Iterable[GradeRecord]) -> list[GradeRecord]:
    """Keep only the grades of the last version used."""
    every = list(grades)
    last = {grade.grader: grade.version for grade in every}
    return [grade for grade in every if grade.version == last[grade.grader]]


class _Answers:
    """Generations, to find failures and answers longer than the stated budget."""

    def __init__(self, generations: Iterable[GenerationRecord]):
        self._of: dict[tuple[str, Budget], dict[tuple[str, int], GenerationRecord]] = {}
        for one in generations:
            of_limit = self._of.setdefault((one.variant, one.max_tokens), {})
            of_limit[one.question, one.sample] = one

    def failed(
        self, variant: str, budget: Budget, graded: Iterable[tuple[str, int]]
    ) -> tuple[tuple[str, int], ...]:
        """Return the questions without a grade whose generation under a fitting limit failed."""
        known = set(graded)
        found: dict[tuple[str, int], None] = {}
        for (of_variant, limit), records in self._of.items():
            if of_variant == variant and _ascending(limit) >= _ascending(budget):
                for key, one in records.items():
                    serves = limit == budget or one.stated_budget is None
                    if one.failure is not None and serves and key not in known:
                        found[key] = None
        return tuple(found)

    def overruns(
        self, variant: str, budget: Budget, graded: Iterable[tuple[str, int]]
    ) -> int | None:
        """Count the answers that are longer than the budget stated in their prompt."""
        of_limit = self._of.get((variant, budget), {})
        stated = [
            (of_limit[key].completion_tokens, of_limit[key].stated_budget)
            for key in graded
            if key in of_limit and of_limit[key].stated_budget is not None
        ]
        if not stated:
            return None
        return sum(
            length > limit for length, limit in stated if length is not None and limit is not None
        )
