"""The interface to a database of any kind, waiting while it is away, and the version of its tables.

A database is away while it restarts or cannot be reached. Every query and transaction then waits.
The wait is limited by the thread's context (:func:`patience`).

Tables and their version are made in one transaction, on SQLite as on PostgreSQL: a kill leaves all
of them, or none.
"""

import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from labctl.config.lab import LabFile
from labctl.database.questions import select
from labctl.errors import ConfigError, HostError, InfraError, ServiceAway
from labctl.progress import tell_wait
from labctl.retry import retry_infra

if TYPE_CHECKING:
    from sqlalchemy import Connection


#: Time (s) to wait for other writers. They write for moments; a rebuild commits often.
LOCK_SECONDS = 60.0

#: Maximum wait (s) for a database that is away; then it is an error.
DATABASE_AWAY_SECONDS = 600.0
#: First pause (s); later pauses are longer. Most database restarts are short.
_AGAIN_SECONDS = 0.1

Row = tuple[Any, ...]
#: Runs an SQL query with its values.
Ask = Callable[[str, Mapping[str, object]], list[Row]]

T = TypeVar("T")


class DamagedDatabase(HostError):
    """The database cannot be read; trying again does not help."""


class UnwritableDatabase(HostError):
    """The database's file cannot be opened or written on this host."""


class DatabaseAway(ServiceAway):
    """The database does not answer now; it may do so soon."""


@dataclass(frozen=True)
class _Patience:
    """Limits of a thread's wait for a database."""

    seconds: float = DATABASE_AWAY_SECONDS
    #: Receives one line per wait; None: standard error of the command.
    note: Callable[[str], None] | None = None
    #: Ends each wait when it is set.
    stopping: threading.Event | None = None


_USUAL = _Patience()
_now: ContextVar[_Patience] = ContextVar("patience", default=_USUAL)


@contextmanager
def patience(
    seconds: float | None = None,
    *,
    note: Callable[[str], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[None]:
    """Change in this block how to wait for a database that is away.

    An omitted setting stays unchanged. Once ``stopping`` is set, a wait raises KeyboardInterrupt
    caused by DatabaseAway. A new thread starts with the default: ten minutes, and a line on
    standard error.
    """
    given = {"seconds": seconds, "note": note, "stopping": stopping}
    changes = {name: value for name, value in given.items() if value is not None}
    token = _now.set(replace(_now.get(), **changes))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _now.reset(token)


def patiently(operation: Callable[[], T]) -> T:
    """Repeat an operation until the database answers; report the first failure.

    Raises DatabaseAway when the time is over, and any other error at once.
    """
    wait, is_first = _now.get(), True

    def on_retry(error: InfraError) -> None:
        nonlocal is_first
        if wait.stopping is not None and wait.stopping.is_set():
            raise KeyboardInterrupt from error
        if is_first:
            limit = f"for at most {_duration(wait.seconds)}"
            hint = f" ({error.hint})" if error.hint else ""
            text = f"{error.message}; retrying {limit}{hint}"
            if wait.note is None:
                tell_wait(text, f"waiting for the lab's database {limit}")
            else:
                wait.note(text)
        is_first = False

    return retry_infra(
        operation,
        on=(DatabaseAway,),
        timeout=wait.seconds,
        interval=_AGAIN_SECONDS,
        on_retry=on_retry,
        stopping=wait.stopping,
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} s"


class Database(ABC):
    """One database. ``str()`` names it for people, without a password."""

    #: True if labctl may write to it from several hosts.
    is_shared: bool
    #: SQL of the current time by the database's own clock: seconds since 1970, with fractions.
    now: str

    @property
    @abstractmethod
    def is_there(self) -> bool:
        """Return False if the database does not exist yet."""

    @abstractmethod
    def tables(self, ask: Ask | None = None) -> set[str]:
        """Return the names of all tables; empty without a database. Raises HostError."""

    @abstractmethod
    def questions(self) -> AbstractContextManager[Ask]:
        """Use one connection for several queries, without waiting. Raises as :meth:`asking` does.

        Closing it and all queries raise the same errors.
        """

    @abstractmethod
    def writing(self) -> AbstractContextManager["Connection"]:
        """Open an exclusive transaction, without waiting. Raises as :meth:`change` does.

        It is committed at the end of the block, or rolled back.
        """

    def asking(self, do: Callable[[Ask], T]) -> T:
        """Return the result of ``do``, which uses one connection for its queries.

        Waits for a database that is away, so ``do`` may be called again. Raises ConfigError if the
        database refuses this user; HostError for other failures: DamagedDatabase if the database
        itself is wrong, UnwritableDatabase if its file cannot be opened or written, DatabaseAway if
        a retry may help.
        """

        def attempt() -> T:
            with self.questions() as ask:
                return do(ask)

        return patiently(attempt)

    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows of an SQL query; ``:name`` is a placeholder for a value.

        Waits and raises as :meth:`asking` does.
        """
        return self.asking(lambda ask: ask(question, values))

    def change(self, do: Callable[["Connection"], T]) -> T:
        """Return the result of ``do``, which changes the database in one exclusive transaction.

        Waits for a database that is away, so ``do`` may be called again. Only one of its
        transactions is committed, even if the reply to a commit is lost. Raises as :meth:`asking`
        does.
        """
        token, results = secrets.token_hex(8), list[T]()

        def attempt() -> T:
            with self.writing() as connection:
                if not (results and self._is_committed(connection, token)):
                    results[:] = [do(connection)]
                    self._mark(connection, token)
            return results[0]

        return patiently(attempt)

    def _mark(self, connection: "Connection", token: str) -> None:  # noqa: B027
        """Store a token for this transaction, if :meth:`_is_committed` needs it."""

    def _is_committed(self, connection: "Connection", token: str) -> bool:  # noqa: ARG002
        """Return True if this transaction was committed although its commit failed."""
        return False

    @abstractmethod
    def discard(self) -> None:
        """Remove a damaged database if it is labctl's own file."""


class _Asked(Generic[T]):
    """A request of a thread."""

    def __init__(self, item: T):
        self.item = item
        self.is_done = False
        #: True after it failed together with others: it is then processed alone.
        self.is_alone = False
        self.away: DatabaseAway | None = None


class _Queue(Generic[T]):
    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.asked: deque[_Asked[T]] = deque()


@lru_cache(maxsize=64)
def _queue(_key: Hashable) -> _Queue[Any]:
    return _Queue()


# A thread of the parent process may have held the lock.
os.register_at_fork(after_in_child=_queue.cache_clear)


def together(key: Hashable, item: T, do: Callable[[Sequence[T]], None]) -> None:
    """Process an item, together with items of other threads that wait for the same ``key``.

    Each transaction waits for the disk, so threads that finish at the same time share one
    transaction. If a shared transaction fails, each item is tried separately, unless the database
    is away. Raises the errors of ``do``.
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
            except Exception:  # a separate try shows which item caused it
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


@dataclass(frozen=True)
class Schema:
    """Tables of one part, of one version: there are all of them, or none.

    Args:
        table: the table that holds the version, in one row.
        version: it changes with any of the tables.
        make: creates the others.
    """

    table: str
    version: int
    make: Callable[["Connection"], None]

    @property
    def question(self) -> str:
        """The question for the rows of the table that holds the version."""
        return select("version", self.table)

    def found(self, connection: "Connection") -> int:
        """Return the version of the existing tables; 0 if there are none.

        Raises DamagedDatabase.
        """
        from sqlalchemy import inspect

        if not inspect(connection).has_table(self.table):
            return 0
        return self.version_in([tuple(row) for row in connection.exec_driver_sql(self.question)])

    def version_in(self, rows: Sequence[Row]) -> int:
        """Return the version in the rows of the version table. Raises DamagedDatabase."""
        if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 1:
            raise DamagedDatabase(
                f"the lab's database is damaged: its table {self.table} holds no version",
                hint="move it away, then `labctl state restore FILE`; backups are in the lab's"
                " folder backups/",
            )
        return rows[0][0]

    def prepare(self, connection: "Connection") -> None:
        """Make the tables if there are none. Raises ConfigError if a newer labctl made them."""
        from sqlalchemy import Column, Integer, MetaData, Table

        found = self.found(connection)
        self.check(found)
        if not found:
            held = Table(self.table, MetaData(), Column("version", Integer, nullable=False))
            held.create(connection)
            connection.execute(held.insert().values(version=self.version))
            self.make(connection)

    def check(self, found: int) -> None:
        """Raise ConfigError if the version ``found`` belongs to a newer labctl."""
        if found > self.version:
            raise ConfigError(
                f"the lab's database was written by a newer labctl: {self.table} is {found},"
                f" this one knows {self.version}",
                hint="update labctl on this host",
            )
