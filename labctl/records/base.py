"""The base of all records, and how files of this and of every older labctl are read.

The files themselves are never rewritten.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import from_json

from labctl.config.printed import FailFastModel
from labctl.config.types import InterruptibleModel
from labctl.errors import ConfigError

#: Version of the file formats that this labctl writes. A change of a name or a meaning takes the
#: next one, and a step in ``STEPS``; a new optional field does not.
SCHEMA_VERSION: Final = 2


def _moment(when: datetime) -> datetime:
    if when.tzinfo is None:
        raise ValueError("a time without an offset")
    if not 1000 <= when.year < 9999:
        raise ValueError("not a year from 1000 to 9998")
    return when


#: A time with its offset, which every time zone has a date for. Its year has four digits.
Moment = Annotated[datetime, AfterValidator(_moment)]


def now() -> datetime:
    """Return this moment, in UTC."""
    return datetime.now(UTC)


class Record(FailFastModel, InterruptibleModel):
    """Immutable; unknown fields of a newer labctl are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", protected_namespaces=(), defer_build=True
    )


class FileRecord(Record):
    """A record that is a file, or a line of one; :func:`read_record` reads it."""

    schema_version: Literal[2] = SCHEMA_VERSION


#: The greatest number of recording, and the greatest whole number of JSON.
GREATEST_NUMBER = 1 << 53


class NumberedRecord(Record):
    """The first record of a run, whatever its kind: it has the run's number of recording."""

    recorded: int | None = Field(
        None,
        ge=1,
        le=GREATEST_NUMBER,
        exclude_if=lambda number: number is None,
        description="number of recording: 1 + the greatest in the folder of runs that it was"
        " recorded in, whatever the clock said; None: it was not recorded in a lab",
    )


#: A JSON object as it was read.
Document = Mapping[str, Any]
#: Makes a document of one version out of one of the version before; never changes its argument.
Step = Callable[[Document], Document]
RecordT = TypeVar("RecordT", bound=FileRecord)

_TRIAL_NAMES_2 = {"conditions": "comparability", "surroundings": "conditions"}


def _unchanged(document: Document) -> Document:
    return document


def _trial_2(document: Document) -> Document:
    """Give the board's state the recipe's word for it, and the key of comparability its own."""
    return {_TRIAL_NAMES_2.get(name, name): value for name, value in document.items()}


#: For each kind, by its class, the steps in order: from version 1 to 2, from 2 to 3 and so on.
STEPS: Mapping[str, tuple[Step, ...]] = {
    "RunRecord": (_unchanged,),
    "PlanRecord": (_unchanged,),
    "JournalEntry": (_unchanged,),
    "TrialRecord": (_trial_2,),
    "RunEnd": (_unchanged,),
    "Annotations": (_unchanged,),
    "Origin": (_unchanged,),
    "BoardProbe": (_unchanged,),
    "Event": (_unchanged,),
    "ServingRecord": (_unchanged,),
    "StageRecord": (_unchanged,),
    "RequestRecord": (_unchanged,),
    # Of these there is no version 1.
    "EvaluationRecord": (_unchanged,),
    "GenerationRecord": (_unchanged,),
    "GradeRecord": (_unchanged,),
    "QuestionRecord": (_unchanged,),
    "NightRecord": (_unchanged,),
    "NightEntry": (_unchanged,),
    "NightResult": (_unchanged,),
}
#: Kinds whose documents named no version in version 1.
_UNNAMED_1 = ("JournalEntry",)


class NewerRecord(ConfigError):
    """A file was written by a newer labctl; it is not read."""


def read_record(kind: type[RecordT], text: bytes, source: Path) -> RecordT:
    """Return the record in ``text``, migrated to today's version.

    ``source`` is the file for messages. Raises NewerRecord, and ValueError (pydantic's
    ValidationError is one) for what is no record of the kind.
    """
    return kind.model_validate(migrated(kind, text, source))


def migrated(kind: type[FileRecord], text: bytes, source: Path) -> Document:
    """Return the document in ``text`` with today's names. Raises as :func:`read_record`."""
    document, version = _versioned(kind, text, source)
    known = next(one.__name__ for one in kind.__mro__ if one.__name__ in STEPS)
    for step in STEPS[known][version - 1 :]:
        document = step(document)
    return {**document, "schema_version": SCHEMA_VERSION}


def written_version(kind: type[FileRecord], text: bytes, source: Path) -> int:
    """Return the schema version in which a file was written. Raises as :func:`read_record`."""
    return _versioned(kind, text, source)[1]


def _versioned(kind: type[FileRecord], text: bytes, source: Path) -> tuple[Document, int]:
    document = from_json(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for all that is no record
    version = document.get("schema_version", 1 if kind.__name__ in _UNNAMED_1 else None)
    if type(version) is not int or version < 1:
        raise ValueError("schema_version: not a version")
    if version > SCHEMA_VERSION:
        raise NewerRecord(
            f"{source} was written by a newer labctl, schema_version {version};"
            f" this one reads up to {SCHEMA_VERSION}",
            hint="update labctl on this host",
        )
    return document, version
