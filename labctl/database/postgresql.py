"""A PostgreSQL shared by several hosts of a lab, and by several labs: one schema per lab.

A URL may contain a password, so messages never show it.

A process has two connections to a lab, for any number of boards: one for queries, and one for
transactions, of which the lab allows one at a time. SQLAlchemy's pool holds the connection for
transactions. The pool starts no thread, tests a connection before each use, and replaces it after a
restart of the server.
"""

import os
import re
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

from labctl import interrupts
from labctl.database.base import LOCK_SECONDS, Ask, DamagedDatabase, Database, DatabaseAway, Row
from labctl.distribution import install_extra
from labctl.errors import ConfigError, HostError, LabctlError, ToolMissing

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection, Engine, Table

_HINT = (
    "`database` in devices.yaml, or LABCTL_DATABASE, says where it is; is it running, and"
    " reachable from here?"
)
#: Options of libpq: they detect a dead server, also while waiting for an answer.
LINK: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "labctl",
    "prepare_threshold": None,  # prepared plans become invalid when tables are created again
}
#: SQLSTATEs: a permission is missing; the tables are not as labctl made them.
_REFUSED = "42501"  # insufficient_privilege
_FOREIGN_TABLES = ("42P01", "42703")  # undefined_table, undefined_column
#: idle_in_transaction_session_timeout: this process was stopped too long; its transaction ended.
_STALLED = "25P03"
#: Errors that waiting does not fix: wrong user, password or database.
_REFUSALS = ("28000", "28P01", "3D000")
#: The same while connecting, where only the server's text is known: in English, German, Chinese.
_REFUSED_WORDS = re.compile(
    r"authentication failed|does not exist|pg_hba\.conf|not permitted to log in"
    r"|permission denied for database|no password supplied|does not support SSL"
    r"|-Authentifizierung .*fehlgeschlagen|existiert nicht|keine Berechtigung"
    r"|认证失败|不存在|不允许角色|的对等认证失败|权限不够"
)
#: Tokens of committed transactions. If the connection breaks during a commit, the client finds out
#: here if it succeeded. A client that was suspended may ask late.
_COMMITTED = "committed_change"
_KEPT_SECONDS = 86_400.0
_NAME = re.compile(r"(?<!:):(\w+)")


@dataclass(frozen=True)
class Timeouts:
    """Limits (s) on how long labctl, the server and other writers wait for each other."""

    #: Maximum wait for other writers.
    lock: float = LOCK_SECONDS
    #: Maximum wait for an answer; then the connection is closed. A healthy server reports a lock
    #: earlier, so a longer wait means that the server has stalled.
    answer: float = LOCK_SECONDS + 10.0
    #: Maximum age of a connection for writing; an older one is replaced. Connecting has a time
    #: limit, an answer has not. So a stalled server is noticed before a lease expires.
    fresh: int = 15
    #: Maximum silence of a writer in a transaction. After that, the writer was stopped or its host
    #: is down: the server ends the transaction, so that others can renew their leases in time.
    idle: float = 10.0


#: Default for all databases.
USUAL = Timeouts()


class PostgresDatabase(Database):
    """The schema of one lab. Queries use ``psycopg`` directly.

    Args:
        url: ``postgresql://[user[:password]@][host][:port]/database[?parameters of libpq]``.
        lab: name of the lab; its schema is ``labctl_<lab>``.
        root: the lab's folder here; databases with the same folder share connections.
        timeouts: limits of its connections.
    """

    is_shared = True
    now = "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"

    def __init__(self, url: str, lab: str, root: Path, timeouts: Timeouts | None = None):
        self._url = url
        self.schema = f"labctl_{lab}"
        self._timeouts = timeouts or USUAL
        with _making:
            key = (url, self.schema, root.absolute(), self._timeouts)
            if (shared := _shared.get(key)) is None:
                shared = _shared[key] = _Connections(url, self.schema, self._timeouts)
        self._connections = shared

    def __str__(self) -> str:
        url = urlsplit(self._url)
        user = f"{unquote(url.username)}@" if url.username else ""
        port = f":{url.port}" if url.port else ""
        return f"the database postgresql://{user}{url.hostname or ''}{port}{url.path}"

    def __repr__(self) -> str:
        return f"PostgresDatabase({str(self)!r})"

    @property
    def is_there(self) -> bool:
        """Return True: only the server knows."""
        return True

    def tables(self, ask: Ask | None = None) -> set[str]:
        """Return the names of all tables of the lab."""
        question = "SELECT tablename FROM pg_tables WHERE schemaname = :schema"
        return {name for (name,) in (ask or self.ask)(question, {"schema": self.schema})}

    @contextmanager
    def questions(self) -> Iterator[Ask]:
        """Use the connection for queries."""

        def ask(question: str, values: Mapping[str, object]) -> list[Row]:
            statement = _NAME.sub(r"%(\1)s", question.replace("%", "%%"))
            return self._connections.ask(statement, values)

        with self._typed_errors():
            yield ask

    @contextmanager
    def writing(self) -> Iterator["Connection"]:
        """Open an exclusive transaction of the lab; the first transaction creates the schema."""
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.exc import TimeoutError as PoolTimeout
        from sqlalchemy.schema import CreateSchema

        try:
            with self._typed_errors(), self._connections.engine.begin() as connection:
                alone = "SELECT pg_advisory_xact_lock(hashtextextended(:schema, 0))"
                connection.execute(text(alone), {"schema": self.schema})
                there = text("SELECT to_regclass(:table)")
                table = f'"{self.schema}".{_COMMITTED}'
                if connection.execute(there, {"table": table}).scalar() is None:
                    connection.execute(CreateSchema(self.schema, if_not_exists=True))
                    _committed().create(connection)
                yield connection
        except DBAPIError as error:
            raise self._typed(error.orig or error) from None
        except PoolTimeout:
            raise DatabaseAway(
                f"cannot write to {self}: other threads of this process have its only connection"
                f" for writing since {self._timeouts.lock:.0f} s",
                hint="the server is slow, or another labctl keeps the lab's lock; try again",
            ) from None

    def _mark(self, connection: "Connection", token: str) -> None:
        from sqlalchemy import Double, literal_column

        made, now = _committed(), literal_column(self.now, Double)
        connection.execute(made.delete().where(made.c.at < now - _KEPT_SECONDS))
        connection.execute(made.insert().values(token=token, at=now))

    def _is_committed(self, connection: "Connection", token: str) -> bool:
        # The lab's lock was free: the transaction has ended, whatever became of its connection.
        made = _committed()
        question = made.select().where(made.c.token == token)
        return connection.execute(question).first() is not None

    def discard(self) -> None:
        """Do nothing: a server repairs its own files, and a migration creates the tables again."""

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except _psycopg().Error as error:
            raise self._typed(error) from None

    def _typed(self, error: BaseException) -> LabctlError:
        said = getattr(getattr(error, "diag", None), "message_primary", None)
        words = " ".join(str(said or error).split())
        state = getattr(error, "sqlstate", None)
        kind: type[HostError | ConfigError] = HostError
        if state in _FOREIGN_TABLES:
            kind = DamagedDatabase
        elif state in _REFUSALS or (state is None and _is_refused(error, words)):
            kind = ConfigError
        elif state == _STALLED or isinstance(
            error, _psycopg().OperationalError | _psycopg().InterfaceError
        ):
            kind = DatabaseAway
        base = urlsplit(self._url).path.removeprefix("/")
        hint = f"the first use needs: GRANT CREATE ON DATABASE {base} TO USER"
        return kind(f"cannot use {self}: {words}", hint=hint if state == _REFUSED else _HINT)


@cache
def _committed() -> "Table":
    from sqlalchemy import Column, Double, MetaData, Table, Text

    return Table(
        _COMMITTED,
        MetaData(),
        Column("token", Text, primary_key=True),
        Column("at", Double, nullable=False, index=True),
    )


class _Connections:
    """The connections of this process to one lab's schema, for all threads."""

    def __init__(self, url: str, schema: str, timeouts: Timeouts):
        self._url = url
        self._schema = schema
        self._timeouts = timeouts
        self._init_process()

    def _init_process(self) -> None:
        """Start without a connection: a forked process must not use its parent's connections."""
        #: Separate locks: writers do not wait for queries, which may wait for a stalled server.
        self._asking_lock, self._lock = threading.RLock(), threading.RLock()
        #: Connection for queries; replaced if the server has closed it.
        self._asking: _Questions | None = None
        self._engine: Engine | None = None
        #: Closes the engine's connection when this object is unused, or when the process ends.
        self._disposing: weakref.finalize[..., _Connections] | None = None

    def leave_to_parent(self) -> list[object]:
        """Drop the parent's connections in a forked process, without closing them. Return them."""
        left: list[object] = [self._asking, self._engine]
        if self._asking is not None:
            self._asking.ending.detach()
        if self._disposing is not None:
            self._disposing.detach()
        self._init_process()
        return left

    def ask(self, statement: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows of a query; wait for queries of other threads first."""
        operational_error = _psycopg().OperationalError
        with self._asking_lock:
            if self._asking is not None:
                try:
                    return self._asking.ask(statement, values)
                except operational_error:
                    if not self._asking.connection.closed:
                        raise
            connection = _connect(self._url, self._schema, self._timeouts)
            self._asking = _Questions(connection, self._timeouts.answer)
            return self._asking.ask(statement, values)

    @property
    def engine(self) -> "Engine":
        """Engine for transactions: one at a time; other threads wait."""
        from sqlalchemy import QueuePool, create_engine

        url, schema, timeouts = self._url, self._schema, self._timeouts

        def connect() -> "psycopg.Connection[Row]":  # without self, to keep no reference
            connection = _connect(url, schema, timeouts)
            connection.autocommit = False
            return connection

        with self._lock:
            if self._engine is None:
                self._engine = create_engine(
                    "postgresql+psycopg://",
                    creator=connect,
                    poolclass=QueuePool,
                    pool_size=1,
                    max_overflow=0,
                    pool_timeout=timeouts.lock,
                    pool_pre_ping=True,
                    pool_recycle=timeouts.fresh,
                )
                self._disposing = weakref.finalize(self, self._engine.dispose)
            return self._engine


class _Questions:
    """A connection for queries; it is closed if an answer does not come in time."""

    def __init__(self, connection: "psycopg.Connection[Row]", answer_seconds: float):
        self.connection = connection
        self._answer_seconds = answer_seconds
        # A duplicate: the connection's own descriptor may belong to another file later.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        #: For this connection only: a new connection replaces this object.
        self.ending = weakref.finalize(self, _close, connection, self._socket)

    def ask(self, statement: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows. Raises OperationalError if no answer comes."""
        ending = threading.Timer(self._answer_seconds, self._end)
        ending.daemon = True  # a daemon thread does not keep the process alive
        ending.start()
        try:
            return self.connection.execute(statement, values).fetchall()
        finally:
            ending.cancel()

    def _end(self) -> None:
        with suppress(OSError):  # the server has closed it
            self._socket.shutdown(socket.SHUT_RDWR)


def _close(connection: "psycopg.Connection[Row]", duplicate: socket.socket) -> None:
    connection.close()
    duplicate.close()


def _connect(url: str, schema: str, timeouts: Timeouts) -> "psycopg.Connection[Row]":
    limit, longer = (f"{timeouts.lock * 1000 * times:.0f}ms" for times in (1, 2))
    with interrupts.waiting():
        connection: psycopg.Connection[Row] = _interruptible().connect(url, autocommit=True, **LINK)
    connection.execute(
        f"SET search_path TO \"{schema}\"; SET lock_timeout TO '{limit}';"
        f" SET statement_timeout TO '{longer}';"
        f" SET idle_in_transaction_session_timeout TO '{timeouts.idle * 1000:.0f}ms'"
    )
    return connection


_shared: "WeakValueDictionary[tuple[str, str, Path, Timeouts], _Connections]" = (
    WeakValueDictionary()
)
_making = threading.Lock()
#: The parent's connections in a forked process; closing one would also end it for the parent.
_inherited: list[object] = []


def _after_fork() -> None:
    global _making  # noqa: PLW0603 - a thread of the parent may have held it
    _making = threading.Lock()
    for shared in list(_shared.values()):
        _inherited.extend(shared.leave_to_parent())


os.register_at_fork(after_in_child=_after_fork)


@cache
def _interruptible() -> Any:
    """Return a connection class whose waits Ctrl-C interrupts."""

    class Interruptible(_psycopg().Connection):  # type: ignore[misc] # imported late
        def wait(self, *given: Any, **named: Any) -> Any:
            with interrupts.waiting():
                return super().wait(*given, **named)

    return Interruptible


def _is_refused(error: BaseException, words: str) -> bool:
    """Return True if the server answered but refused this user."""
    connection = getattr(error, "pgconn", None)
    return (connection is not None and connection.needs_password) or bool(
        _REFUSED_WORDS.search(words)
    )


def _psycopg() -> Any:
    """Return the driver module. Raises ToolMissing."""
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise ToolMissing(
            "a lab in a PostgreSQL database needs the Python package 'psycopg'",
            hint=install_extra("postgresql"),
        ) from error
    return psycopg
