"""The base of all records."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable; unknown fields of a newer labctl are kept out, never guessed at."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())
