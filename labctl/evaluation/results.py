"""Results of an evaluation, read from its directory."""

from collections.abc import Mapping
from typing import Any

from labctl.errors import Blame, ConfigError, ProgramFailed
from labctl.evaluation.accuracy import Accuracy, AccuracyTable, accuracy_table
from labctl.evaluation.differences import model_differences, sampled
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.ending import without_checks
from labctl.records.evaluation import EvaluationEnd, EvaluationRecord


def table_of(directory: EvaluationDirectory) -> AccuracyTable:
    """Return the graded accuracies.

    Raises ConfigError if nothing is graded, ProgramFailed if the server refused every question.
    """
    record, end = directory.record(), directory.end()
    grades = list(directory.grades())
    if not grades and end and end.failure and end.failure.blame is Blame.JOB:
        failure = end.failure
        raise ProgramFailed(failure.message, hint=failure.hint, details=failure.details)
    if not grades:
        raise ConfigError(
            f"run {directory.id} has no graded answer",
            hint=f"`labctl resume {directory.id}` asks the missing questions, and grades",
        )
    return accuracy_table(
        without_checks(directory),
        grades,
        questions=record.dataset.questions,
        variants=record.variants,
        stopped="stop_when" in record.recipe_resolved,
        common=end is not None and end.out_of_time,
    )


def document(
    record: EvaluationRecord,
    end: EvaluationEnd | None,
    table: AccuracyTable,
    *,
    disagreements: bool = False,
) -> dict[str, Any]:
    """Return an evaluation's result as JSON; on request with :func:`disagreement_document`."""
    return {
        "run": record.model_dump(mode="json", exclude_none=True),
        "end": end and end.model_dump(mode="json", exclude_none=True),
        "rows": accuracy_rows(table),
        "differences": [
            {
                "first": one.first.variant,
                "second": one.second.variant,
                "budget": one.first.budget,
                "second_budget": one.second.budget,
                "grader": grader,
                "difference": one.gain.mean,
                "low": one.gain.low,
                "high": one.gain.high,
                "wins": one.test.wins,
                "losses": one.test.losses,
                "mcnemar_exact": one.test.exact,
                "mcnemar_mid_p": one.test.mid_p,
                "questions_needed": one.needed,
            }
            for grader in table.graders
            for one in model_differences(table, grader, record.model_budgets)
        ],
        **({"disagreements": disagreement_document(table)} if disagreements else {}),
    }


#: Columns of an accuracy, each with its kind; ``majority`` and ``pass_at_K`` only with samples.
ACCURACY_COLUMNS: Mapping[str, type] = {
    "variant": str, "budget": int, "grader": str, "grader_version": str,
    "right": int, "answers": int, "accuracy": float, "low": float, "high": float,
    **dict.fromkeys(("cut", "cut_by_labctl", "no_answer", "overruns", "failed"), int),
}  # fmt: skip


def accuracy_rows(table: AccuracyTable) -> list[dict[str, Any]]:
    """Return a row for each variant, limit of tokens and grader; shares from 0 to 1.

    ``budget``: tokens; None without a limit.
    """
    return [
        {
            "variant": cell.variant,
            "budget": cell.budget,
            "grader": cell.grader,
            "grader_version": cell.version,
            "right": cell.right,
            "answers": cell.total,
            "accuracy": cell.share,
            "low": cell.interval and cell.interval.low,
            "high": cell.interval and cell.interval.high,
            "cut": cell.cut,
            "cut_by_labctl": cell.cut_by_labctl,
            "no_answer": cell.unanswered,
            "overruns": cell.overruns,
            "failed": len(cell.failed),
            **_sampled(cell),
        }
        for cell in table.cells
    ]


def _sampled(cell: Accuracy) -> dict[str, Any]:
    found = sampled(cell)
    if found is None:
        return {}
    shares = {f"pass_at_{k}": share.mean for k, share in found.pass_at.items()}
    return {"majority": found.majority, **shares}


def disagreement_document(table: AccuracyTable) -> list[dict[str, Any]]:
    """Return all answers judged differently by the graders, as JSON."""
    return [
        {
            "question": one.question,
            "variant": one.variant,
            "sample": one.sample,
            "budget": one.budget,
            "grades": {
                grade.grader: {
                    "correct": grade.correct,
                    "extracted": grade.extracted,
                    "notes": list(grade.notes),
                }
                for grade in one.grades
            },
        }
        for one in table.disagreements
    ]
