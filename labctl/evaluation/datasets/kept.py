"""The questions of a run, kept in its directory.

They are graded, shown and exported later, when their source file may be missing or changed.
"""

from dataclasses import dataclass
from pathlib import Path

from labctl.errors import ConfigError
from labctl.evaluation.question import Dataset, Question
from labctl.files import write_atomic
from labctl.records.base import read_record
from labctl.records.evaluation import QuestionRecord

QUESTIONS = "questions.jsonl"


@dataclass(frozen=True)
class KeptQuestions:
    """The questions of a run in the order in which they are asked, and its worked examples."""

    questions: tuple[Question, ...]
    examples: tuple[Question, ...]


def keep_questions(folder: Path, dataset: Dataset) -> None:
    """Write the questions and examples of a run to its directory. Raises HostError."""
    lines = [
        QuestionRecord(
            id=one.id,
            text=one.text,
            answer=one.answer,
            choices=one.choices,
            solution=one.solution,
            example=is_example,
        ).model_dump_json()
        for kind, is_example in ((dataset.questions, False), (dataset.examples, True))
        for one in kind
    ]
    write_atomic(folder / QUESTIONS, "".join(f"{line}\n" for line in lines))


def kept_questions(folder: Path) -> KeptQuestions:
    """Return the questions of a run. Raises ConfigError if they are missing or damaged."""
    path = folder / QUESTIONS
    asked: list[Question] = []
    examples: list[Question] = []
    try:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                one = read_record(QuestionRecord, line, path)
            except ValueError as error:
                raise ConfigError(
                    f"{path}:{number}: this labctl cannot read this line",
                    hint="the file is damaged",
                ) from error
            question = Question(one.id, one.text, one.answer, one.choices, one.solution)
            (examples if one.example else asked).append(question)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return KeptQuestions(tuple(asked), tuple(examples))
