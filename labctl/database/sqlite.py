"""A database in one SQLite file, safe for several processes and for their sudden end."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
        # Not read-only: what a killed writer left in its journal has to be rolled back.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=self._lock_seconds)) as db:
                yield lambda question, values: db.execute(question, values).fetchall()
        except sqlite3.Error as error:
            raise self._typed(error) from error

    @contextmanager
    def writing(self) -> Iterator["Connection"]:
        """Open a transaction that no other writer shares."""
        from sqlalchemy.exc import DBAPIError

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            path = self.path.absolute()
            with self._turn(path), _engine(path, self._lock_seconds).begin() as connection:
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


@lru_cache(maxsize=16)
def _engine(path: Path, lock_seconds: float) -> "Engine":
    """Return the engine of a file: it compiles each statement once for all users of a process.

    A connection lives as long as its transaction: none is shared with a child or outlives the file.
    """
    from sqlalchemy import URL, NullPool, create_engine, event

    url = URL.create("sqlite", database=str(path))
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": lock_seconds})

    # Python's sqlite3 would begin a transaction late, and fail where two of them began to read.
    @event.listens_for(engine, "connect")
    def no_own_transactions(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def write_from_the_start(connection: "Connection") -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@lru_cache(maxsize=16)
def _turn_of(_path: Path) -> threading.Lock:
    return threading.Lock()


# A thread of the parent may have had its turn.
os.register_at_fork(after_in_child=_turn_of.cache_clear)


def _primary_code(error: BaseException) -> int:
    """Return SQLite's result code, without the extension in its upper bits; 0 without one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
