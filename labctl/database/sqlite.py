"""A database in one SQLite file, safe for several processes and for their sudden end."""

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.database.base import (
    LOCK_SECONDS,
    Ask,
    DamagedDatabase,
    Database,
    DatabaseAway,
    UnwritableDatabase,
)
from labctl.errors import HostError
from labctl.system_errors import FULL_NUMBERS

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


_UNWRITABLE = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
_BUSY = "another program writes to it: try again"


class SqliteDatabase(Database):
    """A file. Questions go through ``sqlite3``: a list must not wait for SQLAlchemy's import.

    Args:
        path: the file; the first writer makes it.
        name: word for people: ``the index``.
        hint: help where it is damaged.
        lock_seconds: how long other writers are waited for.
    """

    is_shared = False
    now = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: Path, name: str, hint: str, *, lock_seconds: float = LOCK_SECONDS):
        self.path = path
        self._name = name
        self._hint = hint
        self._lock_seconds = lock_seconds

    def __str__(self) -> str:
        return f"{self._name} {self.path}"

    @property
    def is_there(self) -> bool:
        """True if there is a file."""
        return self.path.exists()

    def tables(self, ask: Ask | None = None) -> set[str]:
        """Return the names of all tables."""
        if not self.is_there:
            return set()
        question = "SELECT name FROM sqlite_master WHERE type = 'table'"
        return {name for (name,) in (ask or self.ask)(question, {})}

    @contextmanager
    def questions(self) -> Iterator[Ask]:
        """Have one connection for several questions."""
        try:
            with _readers(self.path.absolute(), self._lock_seconds).one() as db:
                yield lambda question, values: db.execute(question, values).fetchall()
        except sqlite3.Error as error:
            raise self._typed(error) from error

    @contextmanager
    def writing(self) -> Iterator["Connection"]:
        """Open a transaction that no other writer shares."""
        from sqlalchemy.exc import DBAPIError

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            engine = _engine(path := self.path.absolute(), self._lock_seconds)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
            with self._turn(path), _closed_after_error(engine), engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise self._typed(error.orig or error) from error
        except OSError as error:
            raise self._typed(error) from error

    def discard(self) -> None:
        """Remove the file, and what a killed writer left beside it."""
        for suffix in ("", "-journal"):
            try:
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            except OSError as error:
                raise self._typed(error) from error

    @contextmanager
    def _turn(self, path: Path) -> Iterator[None]:
        """Wait for the other writers of this process: SQLite asks again and again, in no order."""
        turn = _turn_of(path)
        if not turn.acquire(timeout=self._lock_seconds):
            raise DatabaseAway(f"cannot use {self}: database is locked", hint=_BUSY)
        try:
            yield
        finally:
            turn.release()

    def _typed(self, error: BaseException) -> HostError:
        # What is operational (locked, full, not allowed) says nothing against the file: nobody is
        # told to move it away.
        kind: type[HostError] = HostError
        hint, code = self._hint, _primary_code(error)
        if type(error) is sqlite3.DatabaseError:
            kind = DamagedDatabase
        elif isinstance(error, OSError) or code in _UNWRITABLE:
            kind = UnwritableDatabase
            if code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in FULL_NUMBERS:
                hint = "free some space on this host"
            elif code != sqlite3.SQLITE_IOERR:
                hint = "check who may write to the file and its folder"
        elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            kind, hint = DatabaseAway, _BUSY
        return kind(f"cannot use {self}: {error}", hint=hint)


class _Connection(sqlite3.Connection):
    """A connection that knows its file, and is of no use for another that got the same name.

    Opening one reads the tables anew, so it is kept for the next user.
    """

    file: tuple[int, int] | None

    @classmethod
    def to(cls, path: Path, lock_seconds: float) -> "_Connection":
        """Open a file; no transaction begins by itself, and one thread uses it at a time."""
        file = _file_at(path)  # before: another may get the name meanwhile
        # Not read-only: what a killed writer left in its journal has to be rolled back.
        made = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=lock_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=cls,
        )
        made.file = file
        return made

    def is_to(self, path: Path) -> bool:
        """Return True if this is the file that has the name now."""
        return self.file is not None and self.file == _file_at(path)


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Readers:
    """Connections for questions to a file."""

    #: As many are kept at most.
    _MOST = 4

    def __init__(self, path: Path, lock_seconds: float):
        self._path, self._lock_seconds = path, lock_seconds
        self._idle: deque[_Connection] = deque()

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Have a connection that nobody else uses; it is closed after an error."""
        connection = self._kept()
        if connection is None:
            connection = _Connection.to(self._path, self._lock_seconds)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(self._idle) < self._MOST:
            self._idle.append(connection)
        else:
            connection.close()

    def _kept(self) -> _Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_to(self._path):
                return connection
            connection.close()


@lru_cache(maxsize=16)
def _readers(path: Path, lock_seconds: float) -> _Readers:
    return _Readers(path, lock_seconds)


@lru_cache(maxsize=16)
def _engine(path: Path, lock_seconds: float) -> "Engine":
    """Return the engine of a file: it compiles each statement once for all users of a process."""
    from sqlalchemy import QueuePool, create_engine, event
    from sqlalchemy.exc import DisconnectionError

    engine = create_engine(
        "sqlite://",
        poolclass=QueuePool,
        pool_size=1,  # writers have their turns
        creator=lambda: _Connection.to(path, lock_seconds),
    )

    @event.listens_for(engine, "checkout")
    def only_to_the_file(connection: _Connection, *_others: object) -> None:
        if not connection.is_to(path):
            raise DisconnectionError  # another is opened in its place

    # Python's sqlite3 would begin a transaction late, and fail where two of them began to read.
    @event.listens_for(engine, "begin")
    def write_from_the_start(connection: "Connection") -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        # A newer labctl may have changed the tables: some statements do not look by themselves.
        connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 0")

    return engine


@contextmanager
def _closed_after_error(engine: "Engine") -> Iterator[None]:
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


@lru_cache(maxsize=16)
def _turn_of(_path: Path) -> threading.Lock:
    return threading.Lock()


# A thread of the parent may have had its turn, and a connection serves one process.
for _of_process in (_turn_of, _readers, _engine):
    os.register_at_fork(after_in_child=_of_process.cache_clear)


def _primary_code(error: BaseException) -> int:
    """Return SQLite's result code, without the extension in its upper bits; 0 without one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
