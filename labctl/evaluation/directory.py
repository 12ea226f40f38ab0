"""The run directory of an evaluation.

``evaluation.json`` is written before the first question is asked; ``generations.jsonl`` is the
journal: each answer is on disk before it is used. ``grades.jsonl`` can be made again from the
journal at any time.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from labctl.errors import ConfigError
from labctl.files import append_line, host_writes, write_atomic
from labctl.records.base import read_record
from labctl.records.evaluation import EvaluationEnd, EvaluationRecord, GenerationRecord, GradeRecord
from labctl.runs.record.directory import EVALUATION, GENERATIONS, RECIPE, RunDirectory
from labctl.runs.record.disk import read_file

GRADES = "grades.jsonl"
#: Grades of a grading in progress, so that a kill loses no grade.
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
        """Write ``evaluation.json``: from now on the directory is a run. ``recipe``: its text."""
        if recipe is not None:
            write_atomic(self.path / RECIPE, recipe)
        self.run.open(EVALUATION, record)

    def record(self) -> EvaluationRecord:
        """Return the evaluation's record. Raises ConfigError."""
        return self.run.evaluation()

    def add(self, record: GenerationRecord) -> None:
        """Store an answer, so that it is never requested again."""
        append_line(self.path / GENERATIONS, record.model_dump_json())

    def mend(self) -> None:
        """Remove an incomplete last line, left by a kill or a power cut."""
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

        An incomplete last line was never used, so it is left out.
        """
        yield from _lines(self.path / GENERATIONS, GenerationRecord)

    def grades(self) -> Iterator[GradeRecord]:
        """Yield all grades; empty until the run ends for the first time. Raises ConfigError."""
        yield from _lines(self.path / GRADES, GradeRecord)

    def known_grades(self) -> Iterator[GradeRecord]:
        """Yield all grades, including those of an unfinished grading."""
        yield from self.grades()
        yield from _lines(self.path / GRADING, GradeRecord)

    def keeping(self, grades: Iterable[GradeRecord]) -> Iterator[GradeRecord]:
        """Write each grade to disk, then yield it, so that a killed grading can continue."""
        path = self.path / GRADING
        with host_writes(path):
            file = path.open("w", encoding="utf-8")
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
        """Remove the end of the run, since another controller continues it."""
        with host_writes(self.path):
            (self.path / "end.json").unlink(missing_ok=True)

    def finish(self, end: EvaluationEnd) -> None:
        """Record the end of the evaluation."""
        self.run.finish(end)

    def end(self) -> EvaluationEnd | None:
        """Return the end; None if the run is in progress, or its controller died."""
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
                        f"{path}:{number}: this labctl cannot read this line",
                        hint="the file is damaged",
                    ) from error
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
