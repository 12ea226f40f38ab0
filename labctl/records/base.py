"""The base of all records, and how their files are read."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import from_json

from labctl.config.printed import FailFastModel
from labctl.config.types import InterruptibleModel
from labctl.errors import ConfigError

#: Version of the file formats that this labctl writes and reads. A change of a name or a meaning
#: takes the next one; a new optional field does not.
SCHEMA_VERSION: Final = 1


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
    """Immutable, and of known fields alone; who reads another labctl's ignores its unknown ones."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), defer_build=True
    )


class FileRecord(Record):
    """A record that is a file, or a line of one; :func:`read_record` reads it."""

    schema_version: Literal[1] = SCHEMA_VERSION


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
RecordT = TypeVar("RecordT", bound=FileRecord)


class NewerRecord(ConfigError):
    """A file was written by a newer labctl; it is not read."""


def read_record(kind: type[RecordT], text: bytes, source: Path) -> RecordT:
    """Return the record in ``text``; fields that are unknown here are left out.

    ``source`` is the file for messages. Raises NewerRecord, and ValueError (pydantic's
    ValidationError is one) for what is no record of the kind.
    """
    return kind.model_validate(read_document(text, source), extra="ignore")


def read_document(text: bytes, source: Path) -> Document:
    """Return the document of a record of this labctl's version. Raises as :func:`read_record`."""
    document = from_json(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for all that is no record
    version = document.get("schema_version")
    if type(version) is not int or version < 1:
        raise ValueError("schema_version: not a version")
    if version > SCHEMA_VERSION:
        raise NewerRecord(
            f"{source} was written by a newer labctl, schema_version {version};"
            f" this one reads {SCHEMA_VERSION}",
            hint="update labctl on this host",
        )
    return document
