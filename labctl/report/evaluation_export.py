"""Graded answers of an evaluation for other programs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import ConfigError
from labctl.evaluation.accuracy import AccuracyTable
from labctl.evaluation.datasets.kept import KeptQuestions, kept_questions
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.results import table_of
from labctl.exchange.lm_eval_export import (
    GradedTexts,
    TaskSamples,
    date_of,
    results_document,
    task_samples,
)
from labctl.records.evaluation import EvaluationRecord, GenerationRecord
from labctl.report.rows import rows_csv
from labctl.runs.record.directory import RunDirectory

#: Columns of a graded answer, each with its kind.
ANSWER_COLUMNS: Mapping[str, type] = {
    "run": str, "model": str, "prompt": str, "budget": int, "question": str, "sample": int,
    "grader": str, "version": str, "correct": bool, "extracted": str, "right_answer": str,
    "complete": bool, "truncated_here": bool, "tokens": int, "notes": str, "text": str,
}  # fmt: skip


@dataclass(frozen=True)
class ReadEvaluation:
    """An evaluation with all data for an export."""

    record: EvaluationRecord
    kept: KeptQuestions
    generations: list[GenerationRecord]
    table: AccuracyTable


def read_evaluation(run: RunDirectory) -> ReadEvaluation:
    """Read an evaluation. Raises ConfigError if it is not graded yet, or damaged."""
    directory = EvaluationDirectory(run)
    return ReadEvaluation(
        directory.record(),
        kept_questions(run.path),
        list(directory.generations()),
        table_of(directory),
    )


def samples_of(one: ReadEvaluation) -> list[TaskSamples]:
    """Return the samples in the format of lm-evaluation-harness. Raises ConfigError."""
    prompts = EvaluationRecipe.of_run(one.record).prompts
    if missing := {name for name in one.table.variants if name.partition("/")[2] not in prompts}:
        raise ConfigError(f"the recipe of {one.record.id} has no prompt of {sorted(missing)[0]}")
    return task_samples(one.record, one.kept, prompts, one.generations, one.table)


def lm_eval_files(one: ReadEvaluation) -> Iterator[tuple[Path, str]]:
    """Yield the files that lm-evaluation-harness writes: a folder for each model."""
    tasks = samples_of(one)
    for model in dict.fromkeys(task.model for task in tasks):
        of_model = [task for task in tasks if task.model == model]
        for task in of_model:
            yield Path(task.folder, task.file_name(one.record)), task.jsonl()
        name = f"results_{date_of(one.record)}.json"
        results = json.dumps(results_document(one.record, of_model), indent=2, ensure_ascii=False)
        yield Path(of_model[0].folder, name), f"{results}\n"


def answers_csv(one: ReadEvaluation) -> str:
    """Return a line for each grade; unknown values and unlimited budgets are empty cells."""
    return rows_csv(answer_rows(one), ANSWER_COLUMNS)


def answer_rows(one: ReadEvaluation) -> Iterator[dict[str, object]]:
    """Yield a row for each grade; None for unknown values and unlimited budgets."""
    texts = GradedTexts(one.generations)
    right = {question.id: question.answer for question in one.kept.questions}
    for cell in one.table.cells:
        model, _, prompt = cell.variant.partition("/")
        for grade in cell.grades:
            yield {
                "run": one.record.id,
                "model": model,
                "prompt": prompt,
                "right_answer": right.get(grade.question),
                "text": texts.text(grade),
                **{name: getattr(grade, name) for name in ANSWER_COLUMNS if hasattr(grade, name)},
                "notes": " ".join(grade.notes),
            }
