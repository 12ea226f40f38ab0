"""Grade an evaluation's answers: as they come, for the running accuracy, and all at the end."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from statistics import fmean

from labctl.evaluation.budgets import cut
from labctl.evaluation.graders import grader_class
from labctl.evaluation.graders.base import Grade
from labctl.evaluation.graders.pool import GraderPool, GradingItem
from labctl.evaluation.ledger import Ledger
from labctl.evaluation.plan import EvaluationPlan, Key, Limit
from labctl.evaluation.question import Question
from labctl.evaluation.work import Work
from labctl.records.evaluation import GenerationRecord, GradeRecord
from labctl.records.events import RunningAccuracy
from labctl.stats.proportions import LOOK, clustered_interval, half_width_reached


class RunningAccuracies:
    """The accuracies so far, by the first grader."""

    def __init__(self, plan: EvaluationPlan):
        self._plan = plan
        #: (variant, limit) -> (question, sample) -> True if right
        self._right: dict[tuple[str, Limit], dict[tuple[str, int], bool]] = {
            (variant.name, limit): {} for variant in plan.variants for limit in variant.limits
        }
        #: Samples that will never have a grade: (variant, limit) -> (question, sample)
        self._without: dict[tuple[str, Limit], set[tuple[str, int]]] = {
            cell: set() for cell in self._right
        }
        #: Number of questions before the first one without all its grades.
        self._ahead = 0

    def note(self, key: Key, limit: Limit, *, right: bool) -> None:
        """Take one grade; a later one of the same answer replaces it."""
        self._right[key.variant, limit][key.question, key.sample] = right

    def leave_out(self, key: Key, limit: Limit) -> None:
        """Stop waiting for a grade: the server refused the question, or failed."""
        self._without[key.variant, limit].add((key.question, key.sample))

    def accuracies(self) -> tuple[RunningAccuracy, ...]:
        """Return each variant's accuracy within its largest budget."""
        found = []
        for variant in self._plan.variants:
            grades = self._right[variant.name, variant.limits[-1]]
            if not grades:
                continue
            correct = sum(grades.values())
            of_question: dict[str, list[bool]] = {}
            for (question, _), right in grades.items():
                of_question.setdefault(question, []).append(right)
            shares = [fmean(verdicts) for verdicts in of_question.values()]
            within = clustered_interval(shares, max(map(len, of_question.values())))
            found.append(
                RunningAccuracy(
                    variant=variant.name,
                    correct=correct,
                    graded=len(grades),
                    low=within.low,
                    high=within.high,
                )
            )
        return tuple(found)

    def is_known(self, half_width: float, level: float, least: int) -> bool:
        """Return True if all accuracies are precise enough, over the leading questions.

        Only questions before the first gap count, since short answers come first, and differ from
        the others. A sample that is left out is not a gap, and does not count in an accuracy.
        """
        while self._ahead < len(self._plan.questions) and self._has_all(self._ahead):
            self._ahead += 1
            if (
                self._ahead >= least
                and self._ahead % LOOK == 0
                and all(self._is_narrow(cell, half_width, level) for cell in self._right)
            ):
                return True
        return False

    def _has_all(self, number: int) -> bool:
        question = self._plan.questions[number]
        return all(
            (question, sample) in grades or (question, sample) in self._without[cell]
            for cell, grades in self._right.items()
            for sample in range(1, self._plan.samples + 1)
        )

    def _is_narrow(self, cell: tuple[str, Limit], half_width: float, level: float) -> bool:
        """Return True if one accuracy over the leading questions is precise enough.

        Each question counts with the share of its right samples.
        """
        grades, samples = self._right[cell], range(1, self._plan.samples + 1)
        shares = []
        for question in self._plan.questions[: self._ahead]:
            keys = ((question, sample) for sample in samples)
            if verdicts := [grades[key] for key in keys if key in grades]:
                shares.append(fmean(verdicts))
        return half_width_reached(sum(shares), len(shares), half_width, level=level, look=1)


class LiveGrader:
    """Grades answers as they come. ``graded`` gets each verdict, in a thread of the pool."""

    def __init__(self, work: Work, graded: Callable[[Key, Limit, bool], None]):
        self._pool, self._grader = work.pool, work.recipe.graders[0]
        self._graded = graded
        self._answers = right_answers(work.dataset.questions)

    def add(self, record: GenerationRecord, limits: Iterable[Limit]) -> None:
        """Start to grade a generation within each limit that it serves."""
        key = Key(record.question, record.variant, record.sample)
        for limit in limits:
            item = _item(record, limit, self._answers[record.question], (self._grader,))
            future = self._pool.submit(item)
            future.add_done_callback(partial(self._note, key, limit))

    def _note(self, key: Key, limit: Limit, done: "Future[tuple[Grade, ...]]") -> None:
        """Take a grade; the final grading reports failures."""
        if not done.cancelled() and done.exception() is None:
            self._graded(key, limit, done.result()[0].correct)


def right_answers(questions: Iterable[Question]) -> dict[str, str]:
    """Return the right answers by question."""
    return {question.id: question.answer for question in questions}


def _item(
    record: GenerationRecord, limit: Limit, answer: str, graders: tuple[str, ...]
) -> GradingItem:
    found = cut(record, limit)
    return GradingItem(found.text, answer, found.complete, graders)


def grade_answers(
    ledger: Ledger,
    records: Iterable[GenerationRecord],
    *,
    answers: Mapping[str, str],
    graders: Sequence[str],
    pool: GraderPool,
    known: Iterable[GradeRecord] = (),
) -> Iterator[GradeRecord]:
    """Yield the grades of all answers within every budget, by every grader.

    ``answers``: the right answers, by question. A text with a ``known`` grade by the same version
    of a grader is not graded again; known grades of other graders are yielded too. Raises
    ConfigError for an unknown grader, HostError.
    """
    versions = {name: grader_class(name).version for name in graders}
    kept: dict[tuple[object, ...], dict[str, GradeRecord]] = {}
    for one in known:
        if one.version == versions.get(one.grader, one.version):
            kept.setdefault(_text_of(one), {})[one.grader] = one
    served, again = itertools.tee(ledger.served(records))
    ungraded = (_ungraded(record, limit) for record, limit in again)

    def items() -> Iterator[GradingItem]:
        for record, limit in served:
            have = kept.get(_text_of(_ungraded(record, limit)), {})
            missing = tuple(name for name in graders if name not in have)
            yield _item(record, limit, answers[record.question], missing)

    for blank, grades in zip(ungraded, pool.grade_all(items()), strict=True):
        have = kept.get(_text_of(blank), {})
        missing = (name for name in graders if name not in have)
        for name, grade in zip(missing, grades, strict=True):
            have[name] = blank.model_copy(
                update={
                    "grader": name,
                    "version": versions[name],
                    "extracted": grade.extracted,
                    "correct": grade.correct,
                    "notes": grade.notes,
                }
            )
        yield from (have[name] for name in (*graders, *(one for one in have if one not in graders)))


def _ungraded(record: GenerationRecord, limit: Limit) -> GradeRecord:
    """Return the record of a grade, still without the judgement."""
    found = cut(record, limit)
    return GradeRecord(
        question=record.question,
        variant=record.variant,
        sample=record.sample,
        budget=limit,
        grader="",
        version="",
        extracted=None,
        correct=False,
        complete=found.complete,
        truncated_here=found.truncated_here,
        tokens=found.tokens,
    )


def _text_of(grade: GradeRecord) -> tuple[object, ...]:
    """Return the key of a text."""
    text = (grade.question, grade.variant, grade.sample, grade.budget)
    return (*text, grade.complete, grade.truncated_here, grade.tokens)
