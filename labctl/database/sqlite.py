"""A database in one SQLite file, safe for several processes, even if they are killed."""

import atexit
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl import interrupts
from labctl.database.base import (
    LOCK_SECONDS,
    Ask,
    DamagedDatabase,
    Database,
    DatabaseAway,
    UnwritableDatabase,
)
from labctl.errors import FULL_NUMBERS, HostError
from labctl.files import NO_INODES, has_inodes, sync_directory

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
#: SQLite waits for other writers in steps of this time (s): it does not notice Ctrl-C during a
#: step.
_PIECE_SECONDS = 0.1
#: SQLite's own files beside a database. If the database is missing, they would damage the next one
#: of the same name.
_BESIDE = ("-journal", "-wal", "-shm")


class SqliteDatabase(Database):
    """A SQLite file. Queries use ``sqlite3``: lists must not wait for SQLAlchemy's import.

    Args:
        path: the file; the first writer creates it.
        name: name for people: ``the index``.
        hint: hint if it is damaged.
        lock_seconds: maximum wait for other writers.
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
        """Return True if the file exists."""
        return self.path.exists()

    def tables(self, ask: Ask | None = None) -> set[str]:
        """Return the names of all tables."""
        if not self.is_there:
            return set()
        question = "SELECT name FROM sqlite_master WHERE type = 'table'"
        return {name for (name,) in (ask or self.ask)(question, {})}

    @contextmanager
    def questions(self) -> Iterator[Ask]:
        """Use one connection for several queries."""
        try:
            with self._connections.asking() as db:
                yield lambda question, values: db.execute(question, values).fetchall()
        except sqlite3.Error as error:
            raise self._typed(error) from error

    @contextmanager
    def writing(self) -> Iterator["Connection"]:
        """Open an exclusive transaction."""
        from sqlalchemy.exc import DBAPIError

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._turn(self.path.absolute()):
                opened = self._connections.changing() if self.is_there else self._made()
                with opened as connection:
                    yield connection
        except DBAPIError as error:
            raise self._typed(error.orig or error) from error
        except (sqlite3.Error, OSError) as error:
            raise self._typed(error) from error

    @contextmanager
    def _made(self) -> Iterator["Connection"]:
        """Open a transaction in a new file, which gets its name at the commit.

        So a killed writer leaves no file without tables. Raises DatabaseAway if another process was
        first.
        """
        path = self._file
        left = [name for name in map(self._beside, _BESIDE[:2]) if name.exists()]
        if left and not self.is_there:
            raise DamagedDatabase(
                f"cannot use {self}: {left[0]} belongs to a file that is gone",
                hint=f"put the file back, or remove {left[0]}",
            )
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".labctl-") as folder:
            made = Path(folder) / path.name
            made.touch()
            connections = _Connections(made, self._lock_seconds)
            try:
                with connections.changing() as connection:
                    yield connection
            finally:
                connections.close()
            _publish_new(made, path, f"cannot use {self}: another process just made it")

    def close(self) -> None:
        """Close the connections to the file that this process keeps, also for other users."""
        with _registering:
            kept = _known.pop((self.path.absolute(), self._lock_seconds), None)
        if kept is not None:
            kept.close()

    def discard(self) -> None:
        """Remove the file, and files that a killed writer left beside it."""
        self.close()
        try:
            for suffix in ("", *_BESIDE):
                self._beside(suffix).unlink(missing_ok=True)
        except OSError as error:
            raise self._typed(error) from error

    @property
    def _file(self) -> Path:
        """The file itself: ``path`` may be a symbolic link."""
        return Path(os.path.realpath(self.path))

    def _beside(self, suffix: str) -> Path:
        return Path(f"{self._file}{suffix}")

    @property
    def _connections(self) -> "_Connections":
        key = self.path.absolute(), self._lock_seconds
        with _registering:
            found = _known[key] = _known.pop(key) if key in _known else _Connections(*key)
            first = _known.pop(next(iter(_known)), None) if len(_known) > _MOST_FILES else None
        if first is not None:
            first.close()
        return found

    @contextmanager
    def _turn(self, path: Path) -> Iterator[None]:
        """Wait for other writers of this process: SQLite itself polls, in no fixed order."""
        turn = _turn_of(path)
        if not interrupts.acquire(turn, self._lock_seconds):
            raise DatabaseAway(f"cannot use {self}: database is locked", hint=_BUSY)
        try:
            yield
        finally:
            turn.release()

    def _typed(self, error: BaseException) -> HostError:
        # An operational error (locked, full, not allowed) does not mean a damaged file, so the hint
        # must not suggest moving the file away.
        kind: type[HostError] = HostError
        hint, code = self._hint, _primary_code(error)
        if type(error) is sqlite3.DatabaseError:
            kind = DamagedDatabase
        elif isinstance(error, OSError) or code in _UNWRITABLE:
            kind = UnwritableDatabase
            if not has_inodes(self.path):
                hint = f"no inodes are left: {NO_INODES}"
            elif code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in FULL_NUMBERS:
                hint = "free some space on this host"
            elif code != sqlite3.SQLITE_IOERR:
                hint = "check who may write to the file and its folder"
        elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            kind, hint = DatabaseAway, _BUSY
        return kind(f"cannot use {self}: {error}", hint=hint)


class _Connections:
    """The connections of this process to a file.

    Opening a connection reads the tables, so a few unused connections are kept. A connection is not
    reused after an error, or for another file of the same name.

    No other code may open and close the file while a connection is used: that would release
    SQLite's locks of this process (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """

    #: Maximum number of unused connections.
    _MOST = 4

    def __init__(self, path: Path, lock_seconds: float):
        self._path, self._lock_seconds = path, lock_seconds
        self._changing = threading.RLock()  # garbage collection may close one inside
        self._idle: list[_Connection] = []
        self._is_closed = False

    @contextmanager
    def asking(self) -> Iterator[sqlite3.Connection]:
        """Use a connection exclusively."""
        # Not read-only: a killed writer's journal may have to be rolled back.
        connection = self.take()
        try:
            yield connection
        except BaseException:
            connection.end()
            raise
        connection.close()

    @contextmanager
    def changing(self) -> Iterator["Connection"]:
        """Open a transaction; Ctrl-C interrupts the wait for other writers."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except BaseException:
            self._end_idle()  # includes the connection used here
            raise

    def take(self) -> "_Connection":
        """Return a connection for exclusive use; its ``close`` gives it back."""
        while (kept := self._kept()) is not None:
            if kept.file is not None and kept.file == _file_at(self._path):
                # Drop its cached pages: other processes may have changed the file.
                kept.execute("PRAGMA shrink_memory")
                kept.is_out = True
                return kept
            kept.end()
        file = _file_at(self._path)  # before connecting: another file may get the name meanwhile
        made = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._lock_seconds,
            isolation_level=None,  # Python's sqlite3 would begin a transaction too late
            check_same_thread=False,
            factory=_Connection,
        )
        made.text_factory = _text
        made.file, made.home, made.is_out = file or _file_at(self._path), self, True
        return made

    def give(self, connection: "_Connection") -> None:
        """Keep a connection for the next user, or close it."""
        with self._changing:
            if not connection.is_out:
                return  # after an interruption, SQLAlchemy may return it twice
            connection.is_out = False
            # After an interruption, the transaction may not be rolled back.
            if is_kept := not (
                connection.in_transaction or self._is_closed or len(self._idle) >= self._MOST
            ):
                self._idle.append(connection)
        if not is_kept:
            connection.end()

    def close(self) -> None:
        """Close unused connections; used connections are closed after use."""
        with self._changing:
            self._is_closed = True
        self._end_idle()

    def _kept(self) -> "_Connection | None":
        with self._changing:
            return self._idle.pop() if self._idle else None

    def _end_idle(self) -> None:
        while (kept := self._kept()) is not None:
            kept.end()

    @cached_property
    def _engine(self) -> "Engine":
        """The engine of the file: it caches compiled statements for the whole process."""
        from sqlalchemy import NullPool, create_engine, event

        engine = create_engine("sqlite://", poolclass=NullPool, creator=self.take)

        # Lock at the start: of two transactions that begin with a read, both would fail at the
        # first write.
        @event.listens_for(engine, "begin")
        def write_from_the_start(connection: "Connection") -> None:
            taken: Any = connection.connection.dbapi_connection
            _begin(taken, self._lock_seconds)
            # A newer labctl may have changed the tables: this query makes SQLite notice.
            connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 0")

        return engine


class _Connection(sqlite3.Connection):
    """A connection for one thread at a time."""

    home: _Connections
    #: Identity of the file: device and inode.
    file: tuple[int, int] | None
    #: True while it is in use.
    is_out: bool

    def close(self) -> None:
        """Return the connection to the pool instead of closing it."""
        self.home.give(self)

    def end(self) -> None:
        """Close the connection."""
        super().close()


def _text(stored: bytes) -> str | bytes:
    """Return a stored text; invalid UTF-8 stays bytes, so that other rows remain readable."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _begin(connection: sqlite3.Connection, lock_seconds: float) -> None:
    """Begin a transaction; wait for other writers, but notice Ctrl-C while waiting."""
    end = time.monotonic() + lock_seconds
    connection.execute(f"PRAGMA busy_timeout = {_PIECE_SECONDS * 1000:.0f}")
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
    connection.execute(f"PRAGMA busy_timeout = {lock_seconds * 1000:.0f}")


def _publish_new(made: Path, path: Path, refusal: str) -> None:
    """Rename a complete file to a new name. Raises DatabaseAway if the name is taken."""
    try:
        try:
            os.link(made, path)
        except FileExistsError:
            raise
        except OSError:  # the file system has no hard links
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            made.replace(path)
    except FileExistsError:
        raise DatabaseAway(refusal, hint=_BUSY) from None
    sync_directory(path.parent)


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


#: Files to which this process has connections; the most recently used is last.
_known: dict[tuple[Path, float], _Connections] = {}
_MOST_FILES = 16
_registering = threading.RLock()  # reentrant: garbage collection may close unused connections


def _end_all() -> None:
    with _registering:
        kept = list(_known.values())
        _known.clear()
    for one in kept:
        one.close()


atexit.register(_end_all)


@lru_cache(maxsize=16)
def _turn_of(_path: Path) -> threading.Lock:
    return threading.Lock()


def _forget() -> None:
    """Start empty in a forked child: a parent's thread may have held the lock or a connection."""
    _turn_of.cache_clear()
    _known.clear()
    _registering.release()


os.register_at_fork(
    before=_registering.acquire,
    after_in_parent=_registering.release,
    after_in_child=_forget,
)


def _primary_code(error: BaseException) -> int:
    """Return SQLite's result code, without the extension in its upper bits; 0 if there is none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
