"""The few things that labctl asks of a database, whichever it is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from labctl.config.lab import LabFile
from labctl.errors import HostError

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Others write for moments only; a rebuild of a large lab commits often.
LOCK_SECONDS = 60.0

Row = tuple[Any, ...]


class DamagedDatabase(HostError):
    """The database cannot be read, and will not be by trying again."""


class UnwritableDatabase(HostError):
    """The database's file cannot be opened or written on this host."""


class Database(ABC):
    """One database. Its text names it for people, without any password."""

    #: True if labctl of several hosts may write to it.
    is_shared: bool
    #: SQL of this moment by the database's own clock: seconds since 1970, with fractions.
    now: str

    @abstractmethod
    def tables(self) -> set[str]:
        """Return the names of all tables; none where there is no database yet. Raises HostError."""

    @abstractmethod
    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows that an SQL text asks for; ``:name`` stands for a value.

        Raises HostError: DamagedDatabase where the database itself is wrong, UnwritableDatabase
        where its file is out of reach.
        """

    @abstractmethod
    def writing(self) -> AbstractContextManager["Connection"]:
        """Open a transaction that no other writer shares; it ends with the block, or not at all.

        Raises as :meth:`ask` does.
        """

    @abstractmethod
    def discard(self) -> None:
        """Remove a damaged database, as far as it is a file of labctl's own."""


def lab_database(lab: LabFile) -> Database | None:
    """Return the lab's PostgreSQL; None where it has its own files. Raises ConfigError."""
    if (url := lab.database) is None:
        return None
    from labctl.database.postgresql import PostgresDatabase

    return PostgresDatabase(url, lab.name)
