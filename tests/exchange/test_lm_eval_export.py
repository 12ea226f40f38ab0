"""Evaluations in the files of lm-evaluation-harness."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from evaluations_made import made_evaluation

from labctl.evaluation.accuracy import accuracy_table
from labctl.evaluation.datasets.kept import KeptQuestions
from labctl.evaluation.prompts import Prompt
from labctl.evaluation.question import Question
from labctl.exchange.lm_eval_export import (
    TaskSamples,
    date_of,
    results_document,
    task_samples,
)
from labctl.records.evaluation import EvaluationRecord, GenerationRecord, GradeRecord
from labctl.report.page.evaluation_tables import MeasuredEvaluation

PROMPTS = {"steps": Prompt(pattern="step_by_step"), "raw": Prompt(layout="raw-chatml")}


def kept(one: MeasuredEvaluation) -> KeptQuestions:
    asked = one.record.dataset.questions
    return KeptQuestions(tuple(Question(q, f"What is {q}?", "7") for q in asked), ())


def exported(one: MeasuredEvaluation) -> list[TaskSamples]:
    return task_samples(one.record, kept(one), PROMPTS, one.generations, one.table)


def lines(task: TaskSamples) -> list[dict[str, Any]]:
    return [json.loads(line) for line in task.jsonl().splitlines()]


@pytest.fixture
def made(tmp_path: Path) -> MeasuredEvaluation:
    right = {"q8_0/steps": (0.1, 0.3, 0.6, 0.9), "q2_k/raw": (0.2, 0.2, 0.3, 0.4)}
    return made_evaluation(tmp_path / "run", right=right, questions=20)


def test_a_task_is_a_prompt_within_a_budget(made: MeasuredEvaluation) -> None:
    tasks = exported(made)
    assert [(one.model, one.task) for one in tasks[:4]] == [
        ("q8_0", "arithmetic_steps_100"),
        ("q8_0", "arithmetic_steps_200"),
        ("q8_0", "arithmetic_steps_300"),
        ("q8_0", "arithmetic_steps_unlimited"),
    ]
    assert tasks[0].file_name(made.record) == (
        "samples_arithmetic_steps_100_2026-11-22T09-30-00.jsonl"
    )
    assert [len(one.samples) for one in tasks] == [20 * 2] * 8


def test_a_sample_has_the_keys_of_the_harness(made: MeasuredEvaluation) -> None:
    first = lines(exported(made)[0])[0]
    sent = json.dumps(
        [
            {"role": "system", "content": PROMPTS["steps"].record("p").system},
            {"role": "user", "content": "What is q-0001?"},
        ]
    )
    assert first["doc_id"] == 0
    assert first["doc"] == {"id": "q-0001", "question": "What is q-0001?", "answer": "7"}
    assert first["target"] == "7"
    assert first["arguments"] == {
        "gen_args_0": {
            "arg_0": sent,
            "arg_1": {"until": [], "do_sample": False, "temperature": 0, "max_gen_toks": 100},
        }
    }
    assert first["resps"] == [["We add. \\boxed{9}"]]
    assert (first["filtered_resps"], first["filter"]) == (["9"], "boxed")
    assert (first["metrics"], first["exact_match"]) == (["exact_match"], 0)
    assert first["target_hash"] == hashlib.sha256(b"7").hexdigest()
    assert first["prompt_hash"] == hashlib.sha256(sent.encode()).hexdigest()


def test_the_prompt_is_as_it_was_sent(made: MeasuredEvaluation) -> None:
    raw = lines(exported(made)[-1])[0]["arguments"]["gen_args_0"]
    assert raw["arg_0"] == (
        "<|im_start|>user\nWhat is q-0001?\n<|im_end|>\n<|im_start|>assistant\n"
    )
    assert raw["arg_1"] == {"until": ["<|im_end|>"], "do_sample": False, "temperature": 0}


def test_the_figures_are_those_of_the_accuracies(made: MeasuredEvaluation) -> None:
    tasks = [one for one in exported(made) if one.model == "q8_0"]
    document = results_document(made.record, tasks)
    found = json.loads(json.dumps(document))["results"]["arithmetic_steps_300"]
    cell = made.table.cell("q8_0/steps", 300, "boxed")
    assert cell is not None
    assert cell.share is not None
    assert found["exact_match,boxed"] == pytest.approx(cell.share)
    error = (cell.share * (1 - cell.share) / 19) ** 0.5
    assert found["exact_match_stderr,boxed"] == pytest.approx(error)
    assert document["n-samples"]["arithmetic_steps_300"] == {  # type: ignore[index]
        "original": 100,
        "effective": 20,
    }
    assert document["model_name"] == "q8_0"


def one_answer(**keys: Any) -> GenerationRecord:
    given = {"question": "q", "variant": "m/raw", "max_tokens": None, "endpoint": "m"}
    text = "one two 7 and more"
    ends = (3, 7, 9, 13, 18)
    moment = {"sent": "2026-11-22T09:30:00Z", "total_ns": 1, "finish": "stop"}
    tokens = {"completion_tokens": 5, "token_ends": ends}
    return GenerationRecord.model_validate({**given, "text": text, **moment, **tokens, **keys})


def grade(**keys: Any) -> GradeRecord:
    given = {"question": "q", "variant": "m/raw", "budget": None, "grader": "numeric"}
    judged = {"version": "1", "extracted": "7", "correct": True, "complete": True}
    return GradeRecord.model_validate({**given, **judged, "truncated_here": False, **keys})


def record(made: MeasuredEvaluation) -> EvaluationRecord:
    return made.record.model_copy(update={"variants": ("m/raw",)})


def samples_of(
    made: MeasuredEvaluation, generations: list[GenerationRecord], grades: list[GradeRecord]
) -> list[dict[str, Any]]:
    questions = KeptQuestions((Question("q", "?", "7"),), ())
    table = accuracy_table(generations, grades, questions=["q"], variants=["m/raw"])
    tasks = task_samples(record(made), questions, PROMPTS, generations, table)
    return [line for task in tasks for line in lines(task)]


def test_a_text_is_cut_as_it_was_graded(made: MeasuredEvaluation) -> None:
    grades = [
        grade(budget=2, truncated_here=True, complete=False, extracted=None, correct=False),
        grade(),
    ]
    short, whole = samples_of(made, [one_answer()], grades)
    assert (short["resps"], short["filtered_resps"]) == ([["one two"]], ["[invalid]"])
    assert (short["exact_match"], short["labctl"]["complete"]) == (0, [False])
    assert (whole["resps"], whole["exact_match"]) == ([["one two 7 and more"]], 1)


def test_samples_of_a_question_are_one_line(made: MeasuredEvaluation) -> None:
    generations = [one_answer(), one_answer(sample=2, text="8", token_ends=None)]
    grades = [grade(), grade(sample=2, extracted="8", correct=False)]
    (line,) = samples_of(made, generations, grades)
    assert line["resps"] == [["one two 7 and more", "8"]]
    assert (line["filtered_resps"], line["exact_match"]) == (["7", "8"], 0.5)


def test_a_model_cannot_choose_where_it_is_written(made: MeasuredEvaluation) -> None:
    task = TaskSamples("../m", "a/../../b", "p", None)
    assert (task.folder, "/" in task.file_name(made.record)) == ("_m", False)
    assert date_of(made.record) == "2026-11-22T09-30-00"
