"""Evaluations that nobody ran: answers of which accuracy and lengths are known."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from labctl.evaluation.accuracy import accuracy_table
from labctl.records.board import Execution
from labctl.records.evaluation import (
    AccuracyRecord,
    DatasetRecord,
    EndpointRecord,
    EvaluationEnd,
    EvaluationRecord,
    GenerationRecord,
    GradeRecord,
    PromptRecord,
    SamplingRecord,
)
from labctl.records.trial import ModelIdentity
from labctl.report.page.evaluation_tables import MeasuredEvaluation

BEGAN = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
BUDGETS = (100, 200, 300, None)


def made_evaluation(
    path: Path,
    *,
    right: dict[str, Sequence[float]],
    questions: int = 60,
    graders: Sequence[str] = ("boxed", "numeric"),
    budgets: Sequence[int | None] = BUDGETS,
    model_budgets: Mapping[str, Sequence[int | None]] | None = None,
    execution: Execution | None = Execution.NATIVE_HOST,
    text: str = "We add. \\boxed{%s}",
    seed: int = 1,
) -> MeasuredEvaluation:
    """Make an evaluation; ``right`` has each variant's share of right answers at each budget.

    ``model_budgets``: each model's own limits; those at one position are of 30 s, 60 s ...
    """
    own = {model: tuple(limits) for model, limits in (model_budgets or {}).items()}
    if own:
        budgets = sorted({one for limits in own.values() for one in limits if one is not None})
    chance = random.Random(seed)
    ids = [f"q-{number:04d}" for number in range(1, questions + 1)]
    ease = {question: chance.random() for question in ids}
    generations, grades = [], []
    for variant, shares in right.items():
        for question in ids:
            length = chance.randint(60, 420)
            limits = own.get(variant.partition("/")[0], budgets)
            for budget, share in zip(limits, shares, strict=True):
                good = ease[question] < share
                answer = "7" if good else "9"
                tokens = length if budget is None else min(length, budget)
                generations.append(
                    GenerationRecord(
                        question=question,
                        variant=variant,
                        max_tokens=budget,
                        endpoint=variant.partition("/")[0],
                        text=text % answer,
                        finish="stop" if tokens == length else "length",
                        completion_tokens=tokens,
                        sent=BEGAN,
                        total_ns=tokens * 10_000_000,
                    )
                )
                grades += [
                    GradeRecord(
                        question=question,
                        variant=variant,
                        budget=budget,
                        grader=grader,
                        version="1",
                        extracted=answer,
                        # every grader but the first lets the last question pass
                        correct=good or (grader != graders[0] and question == ids[-1]),
                        complete=tokens == length,
                        truncated_here=False,
                        tokens=tokens,
                    )
                    for grader in graders
                ]
    models = list(dict.fromkeys(variant.partition("/")[0] for variant in right))
    prompts = list(dict.fromkeys(variant.partition("/")[2] for variant in right))
    record = EvaluationRecord(
        id=path.name,
        recipe="arithmetic",
        recipe_resolved={"name": "arithmetic"},
        dataset=DatasetRecord(
            name="arithmetic", source="a.jsonl", sha256="0" * 64, size=100, questions=tuple(ids)
        ),
        models=tuple(
            ModelIdentity(key=key, file=f"{key}.gguf", sha256="1" * 64, size_bytes=1)
            for key in models
        ),
        prompts=tuple(PromptRecord(name=one, layout="chat", sha256="2" * 64) for one in prompts),
        endpoints=tuple(
            EndpointRecord(
                name=key,
                api="llama-server",
                model=key,
                sha256_proven=execution is not None,
                execution=execution,
            )
            for key in models
        ),
        sampling=SamplingRecord(temperature=0),
        budgets=tuple(budgets),
        graders=tuple(graders),
        variants=tuple(right),
        model_budgets=own,
        budget_seconds=tuple(
            30.0 * n for n in range(1, max(map(len, own.values()), default=0) + 1)
        ),
        planned=len(generations),
        labctl_version="0.1.0",
        host="lab",
        started=BEGAN,
    )
    return MeasuredEvaluation(
        path,
        record,
        generations,
        accuracy_table(generations, grades, questions=ids, variants=tuple(right)),
        {question: (f"What is {question}?", "7") for question in ids},
        EvaluationEnd(
            state="finished",
            finished=BEGAN,
            answered=len(generations),
            failed=0,
            planned=len(generations),
            questions=questions,
        ),
    )


def write_evaluation(
    made: MeasuredEvaluation,
    *,
    accuracies: Sequence[AccuracyRecord] = (),
    more: Sequence[GenerationRecord] = (),
) -> None:
    """Write an evaluation's directory; ``more``: lines of the journal after its answers."""
    assert made.end
    made.path.mkdir(parents=True)
    (made.path / "evaluation.json").write_text(made.record.model_dump_json())
    end = made.end.model_copy(update={"accuracies": tuple(accuracies)})
    (made.path / "end.json").write_text(end.model_dump_json())
    lines = [f"{one.model_dump_json()}\n" for one in (*made.generations, *more)]
    (made.path / "generations.jsonl").write_text("".join(lines))
