"""The end of an evaluation: all grades, the accuracies, the gates, and the final state."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from labctl.evaluation.accuracy import AccuracyTable, accuracy_table
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.gates import judge_accuracies
from labctl.evaluation.grading import grade_answers, right_answers
from labctl.evaluation.ledger import Ledger, ask_of
from labctl.evaluation.plan import EvaluationPlan
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.work import Work
from labctl.records.evaluation import AccuracyRecord, EvaluationEnd, GenerationRecord
from labctl.records.trial import Failure
from labctl.units import counted

State = Literal["finished", "failed", "interrupted"]


def finish(
    work: Work,
    state: State,
    *,
    failure: Failure | None = None,
    notes: tuple[str, ...] = (),
    out_of_time: bool = False,
    resumed: int = 0,
) -> tuple[EvaluationEnd, AccuracyTable]:
    """Grade all answers, judge the gates of a finished run, and record its end.

    Everything is computed from the journal. Raises HostError when the disk is full.
    """
    directory, recipe = work.directory, work.recipe
    ledger = ledger_of(directory, work.plan)

    def ended(state: State, table: AccuracyTable | None = None) -> EvaluationEnd:
        end = EvaluationEnd(
            state=state,
            failure=failure,
            resumed=resumed,
            finished=datetime.now(UTC),
            answered=ledger.answered,
            failed=len(ledger.failed | ledger.refused),
            planned=ledger.planned,
            questions=ledger.complete_questions,
            truncation=ledger.truncation(),
            notes=(
                *notes,
                *_refused(directory, ledger),
                *_unknown_ends(directory),
                *_unheard(work.plan, table),
            ),
            out_of_time=out_of_time,
        )
        end = end if table is None else judged(end, recipe, table)
        directory.finish(end)
        return end

    try:
        fresh = grade_answers(
            ledger,
            directory.generations(),
            answers=right_answers(work.dataset.questions),
            graders=recipe.graders,
            pool=work.pool,
            known=list(directory.known_grades()),
        )
        grades = list(directory.keeping(fresh))
    except KeyboardInterrupt:
        ended("interrupted")
        raise
    directory.write_grades(grades)
    table = accuracy_table(
        without_checks(directory),
        grades,
        questions=work.plan.questions,
        variants=[variant.name for variant in work.plan.variants],
        stopped=recipe.stop_when is not None,
        common=out_of_time,
    )
    return ended(state, table), table


def judged(end: EvaluationEnd, recipe: EvaluationRecipe, table: AccuracyTable) -> EvaluationEnd:
    """Return an end with the accuracies of a table; judge the gates of a finished run."""
    gates = judge_accuracies(recipe.gates, table) if end.state == "finished" else ()
    return end.model_copy(update={"gates": gates, "accuracies": _accuracies(table)})


def ledger_of(directory: EvaluationDirectory, plan: EvaluationPlan) -> Ledger:
    """Return the ledger of a journal."""
    ledger = Ledger(plan)
    for record in directory.generations():
        ledger.add(record)
    return ledger


def unanswered(directory: EvaluationDirectory, plan: EvaluationPlan) -> Failure | None:
    """Return the failure because of which questions have no answer, if any.

    It is the last failure of host or server, or the first refusal if every question was refused.
    """
    ledger = ledger_of(directory, plan)
    missing = ledger.failed or (set() if ledger.answered else ledger.refused)
    if not missing:
        return None
    records = [record for record in directory.generations() if ask_of(record) in missing]
    failure = records[-1 if ledger.failed else 0].failure
    assert failure is not None
    more = f" ({len(missing)} generations have no answer)" if len(missing) > 1 else ""
    return failure.model_copy(update={"message": f"{failure.message}{more}"})


def _refused(directory: EvaluationDirectory, ledger: Ledger) -> Iterator[str]:
    """Describe the number of generations without an answer, with the first one's reason."""
    missing = ledger.failed | ledger.refused
    for record in directory.generations() if missing else ():
        if record.failure is not None and ask_of(record) in missing:
            have = "has" if len(missing) == 1 else "have"
            number = counted(len(missing), "generation")
            yield f"{number} {have} no answer, the first: {record.failure.message}"
            return


def _unknown_ends(directory: EvaluationDirectory) -> Iterator[str]:
    """Describe the number of answers whose end has no known reason."""
    records = directory.generations()
    unknown = sum(record.failure is None and record.finish == "unknown" for record in records)
    if unknown:
        yield f"the server did not say why {counted(unknown, 'answer')} ended: they count as cut"


def _unheard(plan: EvaluationPlan, table: AccuracyTable | None) -> Iterator[str]:
    """Name the variants that are missing in a table with rows."""
    seen = {cell.variant for cell in table.cells} if table is not None else set()
    for variant in plan.variants if seen else ():
        if variant.name not in seen:
            yield f"{variant.name} has no answer, and so no row"


def without_checks(directory: EvaluationDirectory) -> list[GenerationRecord]:
    """Return all answers without texts and tokens, which the accuracies do not need."""
    light = {"text": "", "thoughts": "", "token_ids": None, "token_ends": None}
    return [
        record.model_copy(update=light)
        for record in directory.generations()
        if record.check is None
    ]


def _accuracies(table: AccuracyTable) -> tuple[AccuracyRecord, ...]:
    return tuple(
        AccuracyRecord(
            variant=cell.variant,
            budget=cell.budget,
            grader=cell.grader,
            correct=cell.right,
            graded=cell.total,
            low=interval.low,
            high=interval.high,
        )
        for cell in table.cells
        if (interval := cell.interval) is not None
    )
