"""The run directory of an evaluation.

``evaluation.json`` is written before the first question is asked; ``generations.jsonl`` is the
journal: each answer is on disk before the next thing is done with it. ``grades.jsonl`` can be made
again from it at any time.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from labctl.errors import ConfigError
from labctl.files import append_line, host_writes, write_atomic
from labctl.records import (
    EvaluationEnd,
    EvaluationRecord,
    GenerationRecord,
    GradeRecord,
    read_record,
)
from labctl.runs.record.directory import EVALUATION, GENERATIONS, RECIPE, RunDirectory
from labctl.runs.record.disk import read_file

GRADES = "grades.jsonl"
#: The grades of a grading under way: a kill takes none of them.
GRADING = "grading.jsonl"
LineT = TypeVar("LineT", GenerationRecord, GradeRecord)


class EvaluationDirectory:
    """One evaluation on disk."""

    def __init__(self, run: RunDirectory):
        self.run = run
        self.path: Path = run.path

    @property
    def id(self) -> str:
        """The run's id."""
        return self.path.resolve().name

    def start(self, record: EvaluationRecord, recipe: str | None) -> None:
        """Write ``evaluation.json``: from here on it is a run. ``recipe`` is it as written."""
        if recipe is not None:
            write_atomic(self.path / RECIPE, recipe)
        write_atomic(self.path / EVALUATION, record.model_dump_json(indent=2) + "\n")

    def record(self) -> EvaluationRecord:
        """Return what is asked of whom. Raises ConfigError."""
        return self.run.evaluation()

    def add(self, record: GenerationRecord) -> None:
        """Keep an answer; from here on it is never asked for again."""
        append_line(self.path / GENERATIONS, record.model_dump_json())

    def mend(self) -> None:
        """Cut off a last line that a kill or a power cut left without its end."""
        path = self.path / GENERATIONS
        with host_writes(path):
            if not path.exists():
                return
            with path.open("r+b") as file:
                end = _whole_lines(file.fileno())
                if end != os.fstat(file.fileno()).st_size:
                    file.truncate(end)
                    os.fsync(file.fileno())

    def generations(self) -> Iterator[GenerationRecord]:
        """Yield all answers, in the order in which they came. Raises ConfigError.

        A last line without its end was not acted on, and is left out.
        """
        yield from _lines(self.path / GENERATIONS, GenerationRecord)

    def grades(self) -> Iterator[GradeRecord]:
        """Yield all grades; none before the run ended once. Raises ConfigError."""
        yield from _lines(self.path / GRADES, GradeRecord)

    def known_grades(self) -> Iterator[GradeRecord]:
        """Yield all grades, with those of a grading that did not come to its end."""
        yield from self.grades()
        yield from _lines(self.path / GRADING, GradeRecord)

    def keeping(self, grades: Iterable[GradeRecord]) -> Iterator[GradeRecord]:
        """Hand grades on; each is on disk by then, so that a grading that is killed goes on."""
        path = self.path / GRADING
        with host_writes(path):
            file = path.open("w")
        with file:
            for one in grades:
                with host_writes(path):
                    file.write(f"{one.model_dump_json()}\n")
                    file.flush()
                yield one

    def write_grades(self, grades: Iterable[GradeRecord]) -> None:
        """Write all grades anew."""
        write_atomic(self.path / GRADES, "".join(f"{one.model_dump_json()}\n" for one in grades))
        with host_writes(self.path / GRADING):
            (self.path / GRADING).unlink(missing_ok=True)

    def reopen(self) -> None:
        """Remove its end: another controller goes on."""
        with host_writes(self.path):
            (self.path / "end.json").unlink(missing_ok=True)

    def finish(self, end: EvaluationEnd) -> None:
        """Say how the evaluation ended."""
        self.run.finish(end)

    def end(self) -> EvaluationEnd | None:
        """Return its end; None while it is in progress, or if its controller died."""
        path = self.path / "end.json"
        return read_file(path, EvaluationEnd) if path.exists() else None


def _whole_lines(descriptor: int) -> int:
    """Return the length of a file up to the end of its last whole line."""
    block, end = 1 << 16, os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - block)
        piece = os.pread(descriptor, end - begin, begin)
        if (at := piece.rfind(b"\n")) >= 0:
            return begin + at + 1
        end = begin
    return 0


def _lines(path: Path, kind: type[LineT]) -> Iterator[LineT]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield read_record(kind, line, path)
                except ValueError as error:
                    raise ConfigError(
                        f"{path}:{number}: not a line that this labctl knows",
                        hint="the file is damaged",
                    ) from error
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
