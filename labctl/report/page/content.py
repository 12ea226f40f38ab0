"""Content of a report, before it becomes HTML, Markdown or PDF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from labctl.report.facts import Fact
from labctl.report.figures.figure import Figure, Missing
from labctl.report.remarks import Remark
from labctl.report.status import Status
from labctl.report.table import Cell, Table

T = TypeVar("T")

#: Maximum number of characters on a page of a record's text, and of a recipe.
_MOST_TEXT, _MOST_RECIPE = 2000, 100_000
#: Remarks of a run that are open on its page.
_MOST_REMARKS = 12


@dataclass(frozen=True)
class RunSection:
    """All information about one run below the figures."""

    id: str
    heading: str
    remarks: Sequence[Remark]
    tables: Sequence[Table]
    facts: Sequence[Fact]
    commands: Sequence[str]
    recipe: str
    files: Table

    def parted_remarks(self) -> tuple[list[Remark], list[Remark]]:
        """Return what went wrong with up to :data:`_MOST_REMARKS` remarks, and all others."""
        urgent = [one for one in self.remarks if one.tone or one.last_lines]
        room = max(_MOST_REMARKS - len(urgent), 0)
        others = [one for one in self.remarks if not (one.tone or one.last_lines)]
        return [*urgent, *others[:room]], others[room:]


@dataclass(frozen=True)
class Answer:
    """An unchanged answer of a model, with its grade."""

    variant: str
    grade: Cell
    text: str


@dataclass(frozen=True)
class Transcript:
    """A question with its right answer, and the models' answers side by side."""

    question: str
    text: str
    right: str
    answers: Sequence[Answer]


@dataclass(frozen=True)
class Report:
    """A report on one run or several, or on an evaluation.

    ``status``: of each run; it stands first. ``damaged``: requested runs that cannot be read, with
    the reason. ``transcripts_note``: which questions the transcripts show.
    """

    title: str
    about: Mapping[str, str]
    marks: Sequence[str]
    answers: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    missing: Sequence[Missing]
    runs: Sequence[RunSection]
    damaged: Sequence[tuple[str, str]]
    method: Sequence[str]
    status: Sequence[Status] = ()
    transcripts: Sequence[Transcript] = ()
    transcripts_note: str = ""


def bounded(part: T) -> T:
    """Return a report, or a part of it, with limited texts: servers and strangers write them.

    A recipe may be longer than other texts.
    """
    found: Any = part
    if isinstance(part, str):
        found = _cut(part, _MOST_TEXT)
    elif is_dataclass(part) and not isinstance(part, type):
        changes = {one.name: bounded(getattr(part, one.name)) for one in fields(part)}
        if isinstance(part, RunSection):
            changes["recipe"] = _cut(part.recipe, _MOST_RECIPE)
        found = replace(part, **changes)
    elif isinstance(part, Mapping):
        found = {bounded(key): bounded(value) for key, value in part.items()}
    elif isinstance(part, list | tuple):
        found = [bounded(one) for one in part]
    return cast("T", found)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
