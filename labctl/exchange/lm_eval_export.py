"""Export evaluations as results of lm-evaluation-harness, for its tools and other readers.

A task is one prompt within one budget. Its samples are in ``samples_TASK_DATE.jsonl`` (one line for
each question and grader; a grader replaces a filter), its figures in ``results_DATE.json``. The
folder of both has the model's name (lm-evaluation-harness, ``lm_eval/evaluator.py`` and
``lm_eval/loggers/evaluation_tracker.py``).
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from labctl.evaluation.accuracy import Accuracy, AccuracyTable
from labctl.evaluation.budgets import can_cut, cut
from labctl.evaluation.datasets.kept import KeptQuestions
from labctl.evaluation.prompts import Prompt, render
from labctl.evaluation.question import Question
from labctl.records.evaluation import EvaluationRecord, GenerationRecord, GradeRecord

Document = dict[str, object]
#: Placeholder for an answer that was not found, as in the harness's filters.
_NOT_FOUND = "[invalid]"
_METRIC = "exact_match"
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass
class TaskSamples:
    """All samples of one model in one task, and its figures."""

    model: str
    task: str
    prompt: str
    budget: int | None
    samples: list[Document] = field(default_factory=list)
    results: Document = field(default_factory=dict)
    questions: int = 0

    @property
    def folder(self) -> str:
        """Return the folder: the model's name."""
        return _NO_FILE_NAME.sub("_", self.model).lstrip(".") or "model"

    def file_name(self, record: EvaluationRecord) -> str:
        """Return the name of the file with the samples."""
        return f"samples_{_NO_FILE_NAME.sub('_', self.task)}_{date_of(record)}.jsonl"

    def jsonl(self, *, named: bool = False) -> str:
        """Return the samples, one per line; ``named``: with model and task, for one common file."""
        names = {"model": self.model, "task": self.task} if named else {}
        lines = (json.dumps({**names, **one}, ensure_ascii=False) for one in self.samples)
        return "".join(f"{line}\n" for line in lines)


def date_of(record: EvaluationRecord) -> str:
    """Return the date for file names."""
    return record.started.replace(tzinfo=None).isoformat().replace(":", "-")


def task_samples(
    record: EvaluationRecord,
    kept: KeptQuestions,
    prompts: Mapping[str, Prompt],
    generations: Iterable[GenerationRecord],
    table: AccuracyTable,
) -> list[TaskSamples]:
    """Return the samples of an evaluation, in the order of variants and budgets.

    ``prompts``: of the recipe. A cut text is exported as it was graded. Questions without an answer
    are left out, as in every figure.
    """
    questions = {one.id: one for one in kept.questions}
    rank = {one.id: number for number, one in enumerate(kept.questions)}
    answers = GradedTexts(generations)
    found: dict[tuple[str, int | None], TaskSamples] = {}
    for cell in table.cells:
        model, _, prompt = cell.variant.partition("/")
        key = (cell.variant, cell.budget)
        if key not in found:
            limit = "unlimited" if cell.budget is None else str(cell.budget)
            task = f"{record.dataset.name}_{prompt}_{limit}"
            found[key] = TaskSamples(model, task, prompt, cell.budget)
        task_of = found[key]
        for question_id, grades in _by_question(cell).items():
            if question_id not in questions:
                continue
            question = questions[question_id]
            sent = _sent(prompts[prompt], question, kept, cell.budget)
            texts = [answers.text(grade) for grade in grades]
            task_of.samples.append(
                _sample(
                    question,
                    grades,
                    number=rank[question_id],
                    sent=sent,
                    settings=_settings(record, prompts[prompt], cell.budget),
                    texts=texts,
                )
            )
        task_of.results |= dict(_figures(cell))
        task_of.questions = max(task_of.questions, len(cell.verdicts))
    return list(found.values())


def results_document(record: EvaluationRecord, tasks: Iterable[TaskSamples]) -> Document:
    """Return ``results_DATE.json`` of one model."""
    of_model = list(tasks)
    model = of_model[0].model
    identity = next((one for one in record.models if one.key == model), None)
    endpoints = [one for one in record.endpoints if one.model == model]
    per_task: dict[str, dict[str, object]] = {
        "results": {one.task: {"alias": one.task, **one.results} for one in of_model},
        "group_subtasks": {one.task: [] for one in of_model},
        "configs": {one.task: _config(record, one) for one in of_model},
        "versions": {one.task: "labctl" for one in of_model},
        "n-shot": {one.task: record.dataset.shots for one in of_model},
        "higher_is_better": {one.task: {_METRIC: True} for one in of_model},
        "n-samples": {
            one.task: {"original": record.dataset.size, "effective": one.questions}
            for one in of_model
        },
        "task_hashes": {one.task: _task_hash(one.samples) for one in of_model},
    }
    return {
        **per_task,
        "config": {
            "model": endpoints[0].api if endpoints else "unknown",
            "model_args": {"model": model, "sha256": identity.sha256 if identity else ""},
            "limit": len(record.dataset.questions),
            "random_seed": record.sampling.seed,
        },
        "model_source": endpoints[0].api if endpoints else "unknown",
        "model_name": model,
        "model_name_sanitized": of_model[0].folder,
        "date": record.started.timestamp(),
        "labctl": {
            "run": record.id,
            "version": record.labctl_version,
            "dataset_sha256": record.dataset.sha256,
            "model_sha256_proven": bool(endpoints) and all(e.sha256_proven for e in endpoints),
            "execution": sorted({str(e.execution or "as declared") for e in endpoints}),
        },
    }


class GradedTexts:
    """Finds the text that a grade judged."""

    def __init__(self, generations: Iterable[GenerationRecord]):
        self._of: dict[tuple[str, str, int], list[GenerationRecord]] = {}
        for one in generations:
            if one.failure is None and one.check is None:
                key = (one.question, one.variant, one.sample)
                self._of.setdefault(key, []).append(one)

    def text(self, grade: GradeRecord) -> str:
        """Return the text of a grade; empty if its generation is missing."""
        candidates = self._of.get((grade.question, grade.variant, grade.sample), [])
        for one in reversed(candidates):  # the last generation counts, as with grades
            exact = one.max_tokens == grade.budget
            if exact != grade.truncated_here and can_cut(one, grade.budget):
                return cut(one, grade.budget).text
        fitting = [one for one in candidates if can_cut(one, grade.budget)]
        return cut(fitting[-1], grade.budget).text if fitting else ""


def _by_question(cell: Accuracy) -> dict[str, list[GradeRecord]]:
    found: dict[str, list[GradeRecord]] = {}
    for grade in cell.grades:
        found.setdefault(grade.question, []).append(grade)
    return found


def _sent(prompt: Prompt, question: Question, kept: KeptQuestions, budget: int | None) -> str:
    """Return the sent text; messages of a chat as JSON, like the harness's own models."""
    sent = render(prompt, question, kept.examples, budget)
    if isinstance(sent, str):
        return sent
    messages = [{"role": one.role, "content": one.content} for one in sent]
    return json.dumps(messages, ensure_ascii=False)


def _sample(
    question: Question,
    grades: list[GradeRecord],
    *,
    number: int,
    sent: str,
    settings: Document,
    texts: list[str],
) -> Document:
    doc: Document = {"id": question.id, "question": question.text, "answer": question.answer}
    if question.choices:
        doc["choices"] = list(question.choices)
    first = grades[0]
    return {
        "doc_id": number,
        "doc": doc,
        "target": question.answer,
        "arguments": {"gen_args_0": {"arg_0": sent, "arg_1": settings}},
        "resps": [texts],
        "filtered_resps": [one.extracted or _NOT_FOUND for one in grades],
        "filter": first.grader,
        "metrics": [_METRIC],
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _hash(sent),
        "target_hash": _hash(question.answer),
        _METRIC: sum(one.correct for one in grades) / len(grades),
        "labctl": {
            "variant": first.variant,
            "budget": first.budget,
            "grader_version": first.version,
            "complete": [one.complete for one in grades],
            "truncated_here": [one.truncated_here for one in grades],
            "tokens": [one.tokens for one in grades],
            "notes": [list(one.notes) for one in grades],
        },
    }


def _settings(record: EvaluationRecord, prompt: Prompt, budget: int | None) -> Document:
    temperature = record.sampling.temperature
    settings: Document = {
        "until": list(prompt.stop_words),
        "do_sample": temperature > 0,
        "temperature": temperature,
    }
    if budget is not None:
        settings["max_gen_toks"] = budget
    return settings


def _config(record: EvaluationRecord, task: TaskSamples) -> Document:
    return {
        "task": task.task,
        "dataset_path": record.dataset.source,
        "dataset_name": record.dataset.name,
        "test_split": record.dataset.split,
        "output_type": "generate_until",
        "num_fewshot": record.dataset.shots,
        "repeats": record.sampling.samples,
        "metric_list": [{"metric": _METRIC, "aggregation": "mean", "higher_is_better": True}],
    }


def _figures(cell: Accuracy) -> Iterator[tuple[str, object]]:
    """Yield share and standard error by name, such as ``exact_match,boxed``."""
    shares = [sum(verdicts) / len(verdicts) for verdicts in cell.verdicts.values()]
    count, mean = len(shares), math.fsum(shares) / len(shares)
    yield f"{_METRIC},{cell.grader}", mean
    if count > 1:
        spread = math.fsum((share - mean) ** 2 for share in shares) / (count - 1)
        yield f"{_METRIC}_stderr,{cell.grader}", math.sqrt(spread / count)
    else:
        yield f"{_METRIC}_stderr,{cell.grader}", "N/A"


def _task_hash(samples: Iterable[Document]) -> str:
    parts = (f"{one['doc_hash']}{one['prompt_hash']}{one['target_hash']}" for one in samples)
    return _hash("".join(parts))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
