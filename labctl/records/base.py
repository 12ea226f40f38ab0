"""The base of all records, and the reader of their files."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import from_json

from labctl.config.printed import FailFastModel
from labctl.config.types import InterruptibleModel
from labctl.errors import ConfigError

#: Version of the file formats that this labctl writes and reads. A changed name or meaning needs a
#: new version; a new optional field does not.
SCHEMA_VERSION: Final = 1


def _moment(when: datetime) -> datetime:
    if when.tzinfo is None:
        raise ValueError("a time without an offset")
    if not 1000 <= when.year < 9999:
        raise ValueError("not a year from 1000 to 9998")
    return when


#: A time with its offset. It has a date with a four-digit year in every time zone.
Moment = Annotated[datetime, AfterValidator(_moment)]


def now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


class Record(FailFastModel, InterruptibleModel):
    """Immutable, with known fields only; :func:`read_record` drops unknown ones."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), defer_build=True
    )


class FileRecord(Record):
    """A record that is a file or a line of a file; :func:`read_record` reads it."""

    schema_version: Literal[1] = SCHEMA_VERSION


#: The greatest recording number; also the greatest exact whole number in JSON.
GREATEST_NUMBER = 1 << 53


class NumberedRecord(Record):
    """The first record of a run of any kind: it has the run's recording number."""

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
    """The file was written by a newer labctl, so it is not read."""


def read_record(kind: type[RecordT], text: bytes, source: Path) -> RecordT:
    """Return the record in ``text`` without unknown fields.

    ``source``: the file, for messages. Raises NewerRecord, and ValueError (pydantic's
    ValidationError is one) if the text is not a record of this kind.
    """
    return kind.model_validate(read_document(text, source), extra="ignore")


def read_document(text: bytes, source: Path) -> Document:
    """Return the document of a record of this labctl's version. Raises as :func:`read_record`."""
    document = from_json(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for all texts
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
