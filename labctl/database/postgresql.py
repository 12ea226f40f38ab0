"""A PostgreSQL that several hosts of a lab share, and several labs: a schema for each lab.

A URL may hold a password: no message has it.
"""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from labctl.database.base import LOCK_SECONDS, DamagedDatabase, Database, Row
from labctl.errors import HostError, ToolMissing

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_CONNECT_SECONDS = 10
_HINT = (
    "`database` in devices.yaml, or LABCTL_DATABASE, says where it is; is it running, and"
    " reachable from here?"
)
#: Of libpq: a server that is gone is noticed, also while an answer is awaited.
LINK = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "labctl",
}
#: SQLSTATEs: a right is missing; tables are not as labctl made them.
_REFUSED = "42501"  # insufficient_privilege
_FOREIGN_TABLES = ("42P01", "42703")  # undefined_table, undefined_column


class PostgresDatabase(Database):
    """The schema of one lab.

    Args:
        url: ``postgresql://[user[:password]@][host][:port]/database[?parameters of libpq]``.
        lab: name of the lab; its schema is ``labctl_<lab>``.
    """

    is_shared = True

    def __init__(self, url: str, lab: str):
        self._url_text = url
        self.schema = f"labctl_{lab}"

    def __str__(self) -> str:
        url = self._url
        user = f"{url.username}@" if url.username else ""
        port = f":{url.port}" if url.port else ""
        return f"the database postgresql://{user}{url.host or ''}{port}/{url.database}"

    def __repr__(self) -> str:
        return f"PostgresDatabase({str(self)!r})"

    def tables(self) -> set[str]:
        """Return the names of all tables of the lab."""
        question = "SELECT tablename FROM pg_tables WHERE schemaname = :schema"
        return {name for (name,) in self.ask(question, {"schema": self.schema})}

    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return the rows that an SQL text asks for."""
        from sqlalchemy import text

        with self._typed_errors(), self._engine.connect() as connection:
            reading = connection.execution_options(isolation_level="AUTOCOMMIT")
            return [tuple(row) for row in reading.execute(text(question), values)]

    @contextmanager
    def writing(self) -> Iterator["Connection"]:
        """Open a transaction that no other writer of the lab shares; the first makes the schema."""
        from sqlalchemy import text

        with self._typed_errors(), self._engine.begin() as connection:
            values = {"schema": self.schema}
            alone = "SELECT pg_advisory_xact_lock(hashtextextended(:schema, 0))"
            connection.execute(text(alone), values)
            there = "SELECT 1 FROM pg_namespace WHERE nspname = :schema"
            if connection.execute(text(there), values).scalar() is None:
                connection.exec_driver_sql(f'CREATE SCHEMA "{self.schema}"')
            yield connection

    def discard(self) -> None:
        """Do nothing: a server repairs its own files, and its tables are made again."""

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        from sqlalchemy.exc import DBAPIError

        try:
            yield
        except DBAPIError as error:
            reason: Any = error.orig or error
            said = getattr(getattr(reason, "diag", None), "message_primary", None)
            words = " ".join(str(said or reason).split())
            foreign = getattr(reason, "sqlstate", None) in _FOREIGN_TABLES
            kind = DamagedDatabase if foreign else HostError
            refused = getattr(reason, "sqlstate", None) == _REFUSED
            hint = f"the first use needs: GRANT CREATE ON DATABASE {self._url.database} TO USER"
            raise kind(f"cannot use {self}: {words}", hint=hint if refused else _HINT) from None

    @cached_property
    def _url(self) -> Any:
        from sqlalchemy import make_url

        return make_url(self._url_text).set(drivername="postgresql+psycopg")

    @cached_property
    def _engine(self) -> "Engine":
        from sqlalchemy import create_engine, event

        try:
            engine = create_engine(self._url, connect_args=LINK, pool_size=1, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise ToolMissing(
                "a lab in a PostgreSQL database needs the Python package 'psycopg'",
                hint="pip install 'labctl[postgresql]'",
            ) from error
        limit, longer = (f"{LOCK_SECONDS * 1000 * times:.0f}ms" for times in (1, 2))
        settings = (
            f"SET search_path TO \"{self.schema}\"; SET lock_timeout TO '{limit}';"
            f" SET statement_timeout TO '{longer}';"
            f" SET idle_in_transaction_session_timeout TO '{limit}'"
        )

        @event.listens_for(engine, "connect")
        def settle(connection: Any, _record: object) -> None:
            connection.autocommit = True
            connection.execute(settings)
            connection.autocommit = False

        weakref.finalize(self, engine.dispose)
        return engine
