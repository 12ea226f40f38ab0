"""The base of all records."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

#: Version of the file formats that this labctl writes. A change of a name or a meaning takes the
#: next one, and a step in :mod:`labctl.records.migrations`; a new optional field does not.
SCHEMA_VERSION: Final = 2


class Record(BaseModel):
    """Immutable; unknown fields of a newer labctl are kept out, never guessed at."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", protected_namespaces=(), defer_build=True
    )


class FileRecord(Record):
    """A record that is a file, or a line of one. :func:`labctl.records.read_record` reads it."""

    schema_version: Literal[2] = SCHEMA_VERSION
