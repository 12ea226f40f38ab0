"""A PostgreSQL that several hosts of a lab share, and several labs: a schema for each lab.

A URL may hold a password: no message has it.
"""

import re
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from labctl.database.base import LOCK_SECONDS, DamagedDatabase, Database, Row
from labctl.errors import HostError, ToolMissing

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection, Engine

_HINT = (
    "`database` in devices.yaml, or LABCTL_DATABASE, says where it is; is it running, and"
    " reachable from here?"
)
#: Of libpq: a server that is gone is noticed, also while an answer is awaited.
LINK: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "labctl",
    "prepare_threshold": None,  # tables that are made again change under a plan
}
#: SQLSTATEs: a right is missing; tables are not as labctl made them.
_REFUSED = "42501"  # insufficient_privilege
_FOREIGN_TABLES = ("42P01", "42703")  # undefined_table, undefined_column
_NAME = re.compile(r"(?<!:):(\w+)")


class PostgresDatabase(Database):
    """The schema of one lab. Questions go through ``psycopg``, as those to SQLite do.

    Args:
        url: ``postgresql://[user[:password]@][host][:port]/database[?parameters of libpq]``.
        lab: name of the lab; its schema is ``labctl_<lab>``.
    """

    is_shared = True
    now = "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"

    def __init__(self, url: str, lab: str):
        self._url = url
        self.schema = f"labctl_{lab}"
        #: For questions; it is made again when the server has ended it.
        self._asking: psycopg.Connection[Row] | None = None

    def __str__(self) -> str:
        url = urlsplit(self._url)
        user = f"{unquote(url.username)}@" if url.username else ""
        port = f":{url.port}" if url.port else ""
        return f"the database postgresql://{user}{url.hostname or ''}{port}{url.path}"

    def __repr__(self) -> str:
        return f"PostgresDatabase({str(self)!r})"

    def tables(self) -> set[str]:
        """Return the names of all tables of the lab."""
        question = "SELECT tablename FROM pg_tables WHERE schemaname = :schema"
        return {name for (name,) in self.ask(question, {"schema": self.schema})}

    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows that an SQL text asks for."""
        statement = _NAME.sub(r"%(\1)s", question.replace("%", "%%"))
        psycopg = _psycopg()
        with self._typed_errors():
            if self._asking is not None:
                try:
                    return self._asking.execute(statement, values).fetchall()
                except psycopg.OperationalError:
                    if not self._asking.closed:
                        raise
            self._asking = self._connect()
            weakref.finalize(self, self._asking.close)
            return self._asking.execute(statement, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator["Connection"]:
        """Open a transaction that no other writer of the lab shares; the first makes the schema."""
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError

        try:
            with self._typed_errors(), self._engine.begin() as connection:
                values = {"schema": self.schema}
                alone = "SELECT pg_advisory_xact_lock(hashtextextended(:schema, 0))"
                connection.execute(text(alone), values)
                there = "SELECT 1 FROM pg_namespace WHERE nspname = :schema"
                if connection.execute(text(there), values).scalar() is None:
                    connection.exec_driver_sql(f'CREATE SCHEMA "{self.schema}"')
                yield connection
        except DBAPIError as error:
            raise self._typed(error.orig or error) from None

    def discard(self) -> None:
        """Do nothing: a server repairs its own files, and its tables are made again."""

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except _psycopg().Error as error:
            raise self._typed(error) from None

    def _typed(self, error: BaseException) -> HostError:
        said = getattr(getattr(error, "diag", None), "message_primary", None)
        words = " ".join(str(said or error).split())
        state = getattr(error, "sqlstate", None)
        kind = DamagedDatabase if state in _FOREIGN_TABLES else HostError
        base = urlsplit(self._url).path.removeprefix("/")
        hint = f"the first use needs: GRANT CREATE ON DATABASE {base} TO USER"
        return kind(f"cannot use {self}: {words}", hint=hint if state == _REFUSED else _HINT)

    def _connect(self) -> "psycopg.Connection[Row]":
        limit, longer = (f"{LOCK_SECONDS * 1000 * times:.0f}ms" for times in (1, 2))
        connection: psycopg.Connection[Row] = _psycopg().connect(self._url, autocommit=True, **LINK)
        connection.execute(
            f"SET search_path TO \"{self.schema}\"; SET lock_timeout TO '{limit}';"
            f" SET statement_timeout TO '{longer}';"
            f" SET idle_in_transaction_session_timeout TO '{limit}'"
        )
        return connection

    @cached_property
    def _engine(self) -> "Engine":
        from sqlalchemy import NullPool, create_engine

        def connect() -> "psycopg.Connection[Row]":
            connection = self._connect()
            connection.autocommit = False
            return connection

        return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)


def _psycopg() -> Any:
    """Return the driver. Raises ToolMissing."""
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise ToolMissing(
            "a lab in a PostgreSQL database needs the Python package 'psycopg'",
            hint="pip install 'labctl[postgresql]'",
        ) from error
    return psycopg
