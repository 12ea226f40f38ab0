"""A lab with a timing run of two models and an evaluation of them, of which all is planted.

q2_k takes 100 ms a token and is right in half of the questions, q8_0 takes 273 ms and is right in
nine of ten; answers are 10 to 400 tokens long.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from evaluations_made import BEGAN, made_evaluation
from records_made import model, plan, planned_run, run, timing, trial

from labctl.records.board import Execution
from labctl.records.evaluation import EvaluationEnd, EvaluationRecord, GenerationRecord, GradeRecord
from labctl.records.run import RunEnd
from labctl.records.trial import ModelIdentity

TIMING = "20261120T223000Z-q8-q2-abcdef"
EVALUATION = "20261122T093000Z-arithmetic-123456"
MODELS = (model("q2_k", "Q2_K"), model("q8_0", "Q8_0"))
TOKEN_MS = {"q2_k": 100.0, "q8_0": 273.0}
RIGHT = {"q2_k": 0.5, "q8_0": 0.9}
BUDGETS = (50, 100, 200, 300, 400)


def timing_run(
    root: Path,
    run_id: str = TIMING,
    *,
    tokens: int = 512,
    variants: Sequence[dict[str, Any]] = ({},),
    models: Sequence[ModelIdentity] = MODELS,
    speed: float = 1.0,
    **changes: Any,
) -> None:
    """Three repeats of each model; each of ``variants`` adds to the parameters."""
    directory = planned_run(root / "runs", run(run_id, models=tuple(models)), plan())
    number = 0
    for identity in models:
        for k, more in enumerate(variants):
            for repeat in (1, 2, 3):
                number += 1
                slow = 1 + 0.004 * (repeat - 2)
                gaps = [slow * TOKEN_MS[identity.key] / speed] * (tokens - 1)
                directory.add(
                    trial(
                        number,
                        repeat=repeat,
                        slug=f"{identity.key}-{k}-r{repeat}",
                        variant=f"{identity.key}-{k}" if k else identity.key,
                        model=identity,
                        parameters={"temperature": 0.0, **more},
                        timing=timing(gaps, prompt_tokens=64, prompt_eval_ns=640_000_000),
                        **changes,
                    )
                )
    directory.finish(RunEnd(state="finished", finished=BEGAN))


def evaluation(
    root: Path,
    run_id: str = EVALUATION,
    *,
    questions: int = 300,
    prompts: Sequence[str] = ("steps",),
    unfinished: bool = False,
    **changes: Any,
) -> EvaluationRecord:
    """Write an evaluation with its answers and grades; ``changes`` are of its record."""
    chance = random.Random(3)
    folder = root / "runs" / run_id
    folder.mkdir(parents=True)
    variants = {f"{m.key}/{prompt}": (0.0,) * len(BUDGETS) for m in MODELS for prompt in prompts}
    made = made_evaluation(folder, right=variants, questions=1, budgets=BUDGETS).record
    ids = tuple(f"q-{number:04d}" for number in range(1, questions + 1))
    record = made.model_copy(
        update={
            "models": MODELS,
            "dataset": made.dataset.model_copy(update={"questions": ids, "size": questions}),
            "endpoints": tuple(
                one.model_copy(update={"execution": Execution.NATIVE_HOST})
                for one in made.endpoints
            ),
            **changes,
        }
    )
    ease = {question: chance.random() for question in ids}
    answers, grades = [], []
    for variant in record.variants:
        name = variant.partition("/")[0]
        for question in ids:
            length = chance.randint(10, 400)
            right = ease[question] < RIGHT[name]
            answers.append(
                GenerationRecord(
                    question=question, variant=variant, max_tokens=BUDGETS[-1], endpoint=name,
                    text="7" if right else "9", finish="stop", prompt_tokens=60,
                    completion_tokens=length, sent=BEGAN, total_ns=length * 10**7,
                )
            )  # fmt: skip
            grades += [
                GradeRecord(
                    question=question, variant=variant, budget=budget, grader=grader, version="1",
                    extracted="7", correct=right and length <= budget, complete=length <= budget,
                    truncated_here=length > budget, tokens=min(length, budget),
                )
                for budget in BUDGETS
                for grader in record.graders
            ]  # fmt: skip
    (folder / "evaluation.json").write_text(record.model_dump_json())
    for name, lines in (("generations.jsonl", answers), ("grades.jsonl", grades)):
        (folder / name).write_text("".join(f"{one.model_dump_json()}\n" for one in lines))
    if not unfinished:
        end = EvaluationEnd(
            state="finished", finished=BEGAN + timedelta(hours=1), answered=len(answers), failed=0,
            planned=len(answers),
            questions=questions,
        )  # fmt: skip
        (folder / "end.json").write_text(end.model_dump_json())
    return record


def matched_lab(root: Path, **how: Any) -> Path:
    """A lab with both; ``how`` as of :func:`evaluation`."""
    root.mkdir(exist_ok=True)
    (root / "devices.yaml").write_text(
        "boards: {rk1: {target: rk3568, transport: {kind: local}, workdir: w}}\n"
    )
    timing_run(root)
    evaluation(root, **how)
    return root
