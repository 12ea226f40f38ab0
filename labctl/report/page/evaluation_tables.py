"""Tables of an evaluation, and its answers side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.evaluation.accuracy import Accuracy, AccuracyTable, Budget
from labctl.evaluation.datasets.kept import kept_questions
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.results import table_of
from labctl.records.board import Execution
from labctl.records.evaluation import EvaluationEnd, EvaluationRecord, GenerationRecord, GradeRecord
from labctl.report.accuracy_table import limit_tables, limit_text
from labctl.report.page.content import Answer, Transcript
from labctl.report.page.language import Language
from labctl.report.table import ABSENT, Cell, Column, Table, quantity
from labctl.runs.record.directory import RunDirectory
from labctl.stats.describe import median
from labctl.units import duration

#: Maximum number of questions on a page, and of code points of one answer.
_MOST_TRANSCRIPTS, _MOST_TEXT = 100, 4000
_MOST_DISAGREEMENTS = 200


@dataclass(frozen=True)
class MeasuredEvaluation:
    """An evaluation with all data of its directory."""

    path: Path
    record: EvaluationRecord
    generations: Sequence[GenerationRecord]
    table: AccuracyTable
    #: Text and right answer of each question, by id.
    questions: dict[str, tuple[str, str]]
    end: EvaluationEnd | None = None

    @cached_property
    def executions(self) -> set[Execution]:
        """Machines on which labctl started servers."""
        return {one.execution for one in self.record.endpoints if one.execution}

    def largest_limit(self, variant: str) -> Budget:
        """Return the largest limit of a variant; for all variants it belongs to the same time."""
        own = self.record.model_budgets.get(variant.partition("/")[0])
        return own[-1] if own else self.table.budgets[-1]

    def at_largest_limit(self, grader: str) -> list[Accuracy]:
        """Return the accuracies at the largest limits."""
        cells = (self.table.cell(v, self.largest_limit(v), grader) for v in self.table.variants)
        return [cell for cell in cells if cell is not None]

    def largest_text(self, words: Language) -> str:
        """Return the largest limits in words: tokens, or the time for which they stand."""
        if not self.record.model_budgets:
            return limit_text(self.table.budgets[-1], words)
        seconds = self.record.budget_seconds[-1]
        if seconds is None:
            return limit_text(None, words)
        return words("the tokens of {time}", time=duration(seconds * 1e9))

    @property
    def declared(self) -> list[str]:
        """Models whose file is not proven, because labctl did not start their servers."""
        proven = {one.model for one in self.record.endpoints if one.sha256_proven}
        asked = dict.fromkeys(one.model for one in self.record.endpoints)
        return [model for model in asked if model not in proven]


def measured_evaluation(run: RunDirectory) -> MeasuredEvaluation:
    """Read an evaluation from its directory. Raises ConfigError, also if nothing is graded."""
    directory = EvaluationDirectory(run)
    return MeasuredEvaluation(
        path=run.path.resolve(),
        record=directory.record(),
        generations=[one for one in directory.generations() if one.check is None],
        table=table_of(directory),
        questions={one.id: (one.text, one.answer) for one in kept_questions(run.path).questions},
        end=directory.end(),
    )


def evaluation_tables(one: MeasuredEvaluation, words: Language) -> Iterator[Table]:
    """Yield the accuracy at every limit, the answers behind it, and the graders' disagreements."""
    yield from limit_tables(one.record, one.table, words)
    if one.table.graders:
        yield _details(one.table, one.table.graders[0], words)
    if one.table.disagreements:
        yield _disagreements(one, words)


def _details(table: AccuracyTable, grader: str, words: Language) -> Table:
    columns = (
        Column(words("Variant")),
        Column(words("Limit")),
        Column(words("Right"), numeric=True),
        Column(words("Answers"), numeric=True),
        Column(words("Cut"), numeric=True, tip=words("Answers that the limit cut.")),
        Column(words("No answer"), numeric=True, tip=words("Texts in which none was found.")),
        Column(
            words("Over the stated budget"),
            numeric=True,
            tip=words("Longer than the number of tokens that the prompt states."),
        ),
        Column(words("Failed"), numeric=True, tip=words("Questions that got no answer at all.")),
        Column(words("Tokens"), numeric=True, tip=words("Median of the answers.")),
    )
    rows = [
        [
            Cell(cell.variant, recorded=True),
            Cell(limit_text(cell.budget, words), cell.budget),
            Cell(str(cell.right), cell.right),
            Cell(str(cell.total), cell.total),
            Cell(str(cell.cut), cell.cut),
            Cell(str(cell.unanswered), cell.unanswered),
            quantity(cell.overruns, "count"),
            Cell(str(len(cell.failed)), len(cell.failed), tone="bad" if cell.failed else ""),
            quantity(median(cell.tokens) if cell.tokens else None, "count"),
        ]
        for cell in table.cells
        if cell.grader == grader
    ]
    return Table(words("Answers by {grader}", grader=grader), columns, rows)


def _disagreements(one: MeasuredEvaluation, words: Language) -> Table:
    graders = one.table.graders
    columns = (
        Column(words("Question")),
        Column(words("Variant")),
        Column(words("Limit")),
        Column(words("Right answer")),
        *(Column(grader) for grader in graders),
    )
    every = one.table.disagreements
    rows = []
    for found in every[:_MOST_DISAGREEMENTS]:
        by = {grade.grader: grade for grade in found.grades}
        shown = [
            ABSENT
            if grader not in by
            else Cell(
                by[grader].extracted or words("none"),
                tone="" if by[grader].correct else "bad",
                recorded=True,
            )
            for grader in graders
        ]
        rows.append(
            [
                Cell(found.question, recorded=True),
                Cell(found.variant, recorded=True),
                Cell(limit_text(found.budget, words), found.budget),
                Cell(one.questions.get(found.question, ("", "–"))[1], recorded=True),
                *shown,
            ]
        )
    note = words("{shown} of {count} texts.", shown=len(rows), count=len(every))
    return Table(words("Disagreements of the graders"), columns, rows, note)


def transcripts(one: MeasuredEvaluation, words: Language) -> Iterator[Transcript]:
    """Yield questions with the answers within the largest limit; the most informative first."""
    if not one.table.graders:
        return
    cells = one.at_largest_limit(one.table.graders[0])
    grades = {
        (cell.variant, grade.question): grade
        for cell in cells
        for grade in reversed(cell.grades)  # the first of several samples
    }
    texts: dict[tuple[str, str], GenerationRecord] = {}
    for generation in one.generations:
        key = (generation.variant, generation.question)
        if generation.sample == 1 and generation.failure is None:
            longest = texts.get(key)
            if longest is None or _longer(generation.max_tokens, longest.max_tokens):
                texts[key] = generation
    asked = [q for q in one.record.dataset.questions if any(key[1] == q for key in texts)]
    verdicts: dict[str, set[bool]] = {
        question: {
            grades[cell.variant, question].correct
            for cell in cells
            if (cell.variant, question) in grades
        }
        for question in asked
    }
    for question in sorted(asked, key=lambda q: -len(verdicts[q]))[:_MOST_TRANSCRIPTS]:
        text, right = one.questions.get(question, ("", "–"))
        yield Transcript(
            question,
            text,
            right,
            [
                Answer(variant, _grade(grades.get((variant, question)), words), _shown(found.text))
                for variant in one.table.variants
                if (found := texts.get((variant, question)))
            ],
        )


def _longer(one: Budget, other: Budget) -> bool:
    return other is not None and (one is None or one > other)


def _grade(grade: GradeRecord | None, words: Language) -> Cell:
    if grade is None:
        return Cell(words("not graded"))
    tip = ", ".join(grade.notes)
    if grade.correct:
        return Cell(words("right"), tip=tip)
    found = grade.extracted if grade.extracted is not None else words("none")
    return Cell(words("wrong: {answer}", answer=found), tip=tip, tone="bad")


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} …"
