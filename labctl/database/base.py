"""The interface to a database of any kind, and versions of its tables.

A step and its version are one transaction, on SQLite as on PostgreSQL: a kill leaves either the
old or the new tables.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from labctl.config.lab import LabFile
from labctl.errors import ConfigError, HostError

if TYPE_CHECKING:
    from sqlalchemy import Connection


#: Time (s) to wait for other writers: they write for moments; a rebuild commits often.
LOCK_SECONDS = 60.0

Row = tuple[Any, ...]
#: Runs an SQL query with its values.
Ask = Callable[[str, Mapping[str, object]], list[Row]]


class DamagedDatabase(HostError):
    """The database cannot be read; trying again does not help."""


class UnwritableDatabase(HostError):
    """The database's file cannot be opened or written on this host."""


class DatabaseAway(HostError):
    """The database does not answer now; it may do so soon."""


class Database(ABC):
    """One database. Its text form names it for people, without a password."""

    #: True if labctl may write to it from several hosts.
    is_shared: bool
    #: SQL of the current time by the database's own clock: seconds since 1970, with fractions.
    now: str

    @property
    @abstractmethod
    def is_there(self) -> bool:
        """False if the database does not exist yet."""

    @abstractmethod
    def tables(self, ask: Ask | None = None) -> set[str]:
        """Return the names of all tables; none if there is no database yet. Raises HostError."""

    @abstractmethod
    def questions(self) -> AbstractContextManager[Ask]:
        """Use one connection for several queries; each raises as :meth:`ask` does."""

    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows of an SQL query; ``:name`` stands for a value.

        Raises HostError: DamagedDatabase if the database itself is wrong, UnwritableDatabase if its
        file cannot be opened or written, DatabaseAway if trying again may help.
        """
        with self.questions() as ask:
            return ask(question, values)

    @abstractmethod
    def writing(self) -> AbstractContextManager["Connection"]:
        """Open an exclusive transaction; it is committed at the end of the block, or rolled back.

        Raises as :meth:`ask` does.
        """

    @abstractmethod
    def discard(self) -> None:
        """Remove a damaged database if it is a file of labctl's own."""


T = TypeVar("T")


class _Asked(Generic[T]):
    """A request of a thread."""

    def __init__(self, item: T):
        self.item = item
        self.is_done = False
        #: It failed together with others.
        self.is_alone = False
        self.away: DatabaseAway | None = None


class _Queue(Generic[T]):
    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.asked: deque[_Asked[T]] = deque()


@lru_cache(maxsize=64)
def _queue(_key: Hashable) -> _Queue[Any]:
    return _Queue()


# A thread of the parent process may have held it.
os.register_at_fork(after_in_child=_queue.cache_clear)


def together(key: Hashable, item: T, do: Callable[[Sequence[T]], None]) -> None:
    """Process an item, together with items of other threads that wait for the same ``key``.

    Each transaction waits for the disk, so threads that end at once share one. If it fails for
    several items, each is tried separately, unless the database is away. Raises what ``do`` raises.
    """
    queue, mine = _queue(key), _Asked(item)
    queue.asked.append(mine)
    with queue.turn:
        several: list[_Asked[T]] = []
        while queue.asked and not (mine.is_done or mine.is_alone or mine.away):
            several.append(queue.asked.popleft())
        if len(several) > 1:
            try:
                do([one.item for one in several])
            except DatabaseAway as error:
                for one in several:
                    one.away = error
            except Exception:  # trying each one shows which item caused it
                for one in several:
                    one.is_alone = True
            else:
                for one in several:
                    one.is_done = True
        if mine.away is not None:
            raise mine.away.again()
        if not mine.is_done:
            do([mine.item])


def lab_database(lab: LabFile) -> Database | None:
    """Return the lab's PostgreSQL; None if it uses files. Raises ConfigError."""
    if (url := lab.database) is None:
        return None
    from labctl.database.postgresql import PostgresDatabase

    return PostgresDatabase(url, lab.name, lab.root)


Step = Callable[["Connection"], None]


def statements(*texts: str) -> Step:
    """Return the step of some SQL statements."""

    def run(connection: "Connection") -> None:
        for text in texts:
            connection.exec_driver_sql(text)

    return run


@dataclass(frozen=True)
class Schema:
    """Tables of one part.

    Args:
        table: the table that holds the version, in one row.
        steps: the first makes the tables of version 1, each further one changes them to the next. A
            released step is never changed.
    """

    table: str
    steps: tuple[Step, ...]

    @property
    def version(self) -> int:
        """The version that this labctl writes."""
        return len(self.steps)

    def found(self, connection: "Connection") -> int:
        """Return the version of the existing tables; 0 if there are none.

        Raises DamagedDatabase.
        """
        from sqlalchemy import inspect

        if not inspect(connection).has_table(self.table):
            return 0
        rows = connection.exec_driver_sql(f"SELECT version FROM {self.table}").all()
        return self.version_in([tuple(row) for row in rows])

    def version_in(self, rows: Sequence[Row]) -> int:
        """Return the version in the rows of its table. Raises DamagedDatabase."""
        if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 1:
            raise DamagedDatabase(
                f"the lab's database is damaged: its table {self.table} holds no version",
                hint="move it away, then `labctl state restore FILE`; backups are in the lab's"
                " folder backups/",
            )
        return rows[0][0]

    def migrate(self, connection: "Connection") -> None:
        """Migrate the tables to this version. Raises ConfigError if they are of a newer one."""
        from sqlalchemy import text

        found = self.found(connection)
        self.check(found)
        if found == self.version:
            return
        if not found:
            connection.exec_driver_sql(f"CREATE TABLE {self.table} (version INTEGER NOT NULL)")
            connection.exec_driver_sql(f"INSERT INTO {self.table} VALUES (0)")
        for step in self.steps[found:]:
            step(connection)
        connection.execute(
            text(f"UPDATE {self.table} SET version = :version"), {"version": self.version}
        )

    def check(self, found: int) -> None:
        """Raise ConfigError if ``found`` is the version of a newer labctl."""
        if found > self.version:
            raise ConfigError(
                f"the lab's database was written by a newer labctl: {self.table} is {found},"
                f" this one knows up to {self.version}",
                hint="update labctl on this host",
            )
