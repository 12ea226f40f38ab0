"""The base of all records."""

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

#: Version of the file formats that this labctl writes. A change of a name or a meaning takes the
#: next one, and a step in :mod:`labctl.records.migrations`; a new optional field does not.
SCHEMA_VERSION: Final = 2


def _moment(when: datetime) -> datetime:
    if when.tzinfo is None:
        raise ValueError("a time without an offset")
    if not 1000 <= when.year < 9999:
        raise ValueError("not a year from 1000 to 9998")
    return when


#: A time with its offset, which every time zone has a date for. Its year has four digits.
Moment = Annotated[datetime, AfterValidator(_moment)]


class Record(BaseModel):
    """Immutable; unknown fields of a newer labctl are kept out, never guessed at."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", protected_namespaces=(), defer_build=True
    )


class FileRecord(Record):
    """A record that is a file, or a line of one. :func:`labctl.records.read_record` reads it."""

    schema_version: Literal[2] = SCHEMA_VERSION
