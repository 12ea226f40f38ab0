"""The index in an SQL database: rows of runs and trials, written and asked for.

Tables, transactions and writes are SQLAlchemy's. A question is one text of SQL with named values,
which SQLite and PostgreSQL both know; that to SQLite goes through ``sqlite3``, because a list of
runs must not wait for the import of SQLAlchemy.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl.errors import HostError
from labctl.index.filters import Filter, run_condition, trial_condition
from labctl.index.rows import (
    SCHEMA_VERSION,
    TABLES,
    Entry,
    ModelRow,
    Row,
    RunRow,
    TagRow,
    TrialRow,
    columns,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

#: Others write for moments only; a rebuild of a large lab commits often.
_LOCK_SECONDS = 60.0
_JSON = tuple(name for name, (kind, _) in columns(TrialRow).items() if kind is dict)


class OtherIndex(HostError):
    """The index cannot be asked: it is damaged, or of another version. It can be made again."""


@dataclass(frozen=True)
class IndexedRun:
    """A run as lists show it."""

    run: RunRow
    models: tuple[ModelRow, ...]
    tags: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            **{name: value for name, value in asdict(self.run).items() if name != "stamp"},
            "models": [asdict(model) for model in self.models],
            "tags": list(self.tags),
        }


@dataclass(frozen=True)
class IndexedTrial:
    """A trial, with its run."""

    trial: TrialRow
    run: RunRow
    tags: tuple[str, ...]


class Index:
    """The index in one SQLite file, safe for several processes and for their sudden end."""

    def __init__(self, path: Path):
        self._path = path

    def add(self, entries: Iterable[Entry]) -> None:
        """Insert or replace runs with all that is known of them, in one transaction."""
        known = list(entries)
        with self._writing() as connection:
            _delete(connection, [entry.run.id for entry in known])
            rows: dict[str, list[Row]] = {
                "run": [entry.run for entry in known],
                "model": [model for entry in known for model in entry.models],
                "tag": [TagRow(entry.run.id, tag) for entry in known for tag in entry.tags],
                "trial": [trial for entry in known for trial in entry.trials],
                "parameter": [row for entry in known for row in entry.parameters],
            }
            from labctl.index.tables import TABLE

            for name, these in rows.items():
                if these:
                    connection.execute(TABLE[name].insert(), [_values(row) for row in these])

    def remove(self, ids: Sequence[str]) -> None:
        """Remove runs."""
        with self._writing() as connection:
            _delete(connection, ids)

    def clear(self) -> None:
        """Empty the index; a damaged file is removed. Raises HostError."""
        try:
            with self._writing() as connection:
                _make_tables(connection)
        except OtherIndex:
            for suffix in ("", "-journal"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def version(self) -> int | None:
        """Return the version of the tables; None where there are none yet. 0: an older labctl's."""
        if not self._path.exists():
            return None
        with self._reading() as db:
            names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if "index_version" not in names:
                return 0 if names else None
            found: int = db.execute("SELECT version FROM index_version").fetchone()[0]
            return found

    def stamps(self) -> dict[str, str]:
        """Return id -> stamp of all runs."""
        return dict(self._ask("SELECT id, stamp FROM run", {}))

    def runs(self, wanted: Filter | None = None, *, limit: int | None = None) -> list[IndexedRun]:
        """Return the runs that meet a filter, newest first."""
        condition, values = run_condition(wanted or Filter())
        names = ", ".join(field.name for field in fields(RunRow))
        found = self._ask(
            f"SELECT {names} FROM run WHERE {condition} ORDER BY id DESC {_limit(limit)}",
            values,
        )
        rows = [RunRow(*row) for row in found]
        ids = [row.id for row in rows]
        models: dict[str, list[ModelRow]] = {}
        for model in self._of_runs("model", ModelRow, ids):
            models.setdefault(model.run, []).append(model)
        tags = self._tags(ids)
        return [
            IndexedRun(row, tuple(models.get(row.id, ())), tags.get(row.id, ())) for row in rows
        ]

    def trials(self, wanted: Filter | None = None) -> list[IndexedTrial]:
        """Return the trials that meet a filter, by run from the oldest on, then by number."""
        condition, values = trial_condition(wanted or Filter())
        names = ", ".join(f"trial.{field.name}" for field in fields(TrialRow))
        found = self._ask(
            f"SELECT {names} FROM trial JOIN run ON run.id = trial.run WHERE {condition}"
            " ORDER BY trial.run, trial.number",
            values,
        )
        rows = [_trial(row) for row in found]
        runs = {one.run.id: one for one in self.runs(wanted)}
        return [IndexedTrial(row, runs[row.run].run, runs[row.run].tags) for row in rows]

    def tags(self) -> list[str]:
        """Return all tags in use."""
        return [tag for (tag,) in self._ask("SELECT DISTINCT tag FROM tag ORDER BY tag", {})]

    def _tags(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for row in self._of_runs("tag", TagRow, ids):
            found[row.run] = (*found.get(row.run, ()), row.tag)
        return found

    def _of_runs(self, table: str, kind: type[Any], ids: Sequence[str]) -> list[Any]:
        """Return the rows of a few runs, or of all between the first and the last of many."""
        if not ids:
            return []
        names = ", ".join(field.name for field in fields(kind))
        found = self._ask(
            f"SELECT {names} FROM {table} WHERE run BETWEEN :low AND :high ORDER BY 1, 2",
            {"low": min(ids), "high": max(ids)},
        )
        return [kind(*row) for row in found]

    def _ask(self, question: str, values: dict[str, str]) -> list[tuple[Any, ...]]:
        with self._reading() as db:
            return db.execute(question, values).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        # Not read-only: what a killed writer left in its journal has to be rolled back.
        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        with (
            self._typed_errors(),
            closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS)) as db,
        ):
            yield db

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._typed(error) from error

    def _typed(self, error: BaseException) -> HostError:
        # What is operational (locked, full, not allowed) says nothing against the file.
        damaged = isinstance(error, sqlite3.DatabaseError) and type(error) is sqlite3.DatabaseError
        return (OtherIndex if damaged else HostError)(
            f"cannot use the index {self._path}: {error}",
            hint="`labctl index rebuild` makes it again from the run directories",
        )

    @contextmanager
    def _writing(self) -> Iterator["Connection"]:
        from sqlalchemy.exc import DBAPIError

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._engine.begin() as connection:
                if _version(connection) != SCHEMA_VERSION:
                    _make_tables(connection)
                yield connection
        except DBAPIError as error:
            raise self._typed(error.orig or error) from error
        except OSError as error:
            raise self._typed(error) from error

    @cached_property
    def _engine(self) -> "Engine":
        from sqlalchemy import URL, NullPool, create_engine, event

        url = URL.create("sqlite", database=str(self._path.absolute()))
        engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _LOCK_SECONDS})

        # Python's sqlite3 would begin a transaction late, and fail where two of them began to read.
        @event.listens_for(engine, "connect")
        def no_own_transactions(connection: sqlite3.Connection, _record: object) -> None:
            connection.isolation_level = None

        @event.listens_for(engine, "begin")
        def write_from_the_start(connection: "Connection") -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine


def _version(connection: "Connection") -> int | None:
    from sqlalchemy import inspect, select

    from labctl.index.tables import VERSION

    if not inspect(connection).has_table(VERSION.name):
        return None
    found: int | None = connection.execute(select(VERSION.c.version)).scalar()
    return found


def _make_tables(connection: "Connection") -> None:
    """Make empty tables; those of any other version go."""
    from sqlalchemy import inspect

    from labctl.index.tables import METADATA, VERSION

    there = inspect(connection).get_table_names()
    for name in (*reversed(TABLES), VERSION.name):
        if name in there:
            connection.exec_driver_sql(f"DROP TABLE {name}")
    METADATA.create_all(connection)
    connection.execute(VERSION.insert().values(version=SCHEMA_VERSION))


def _delete(connection: "Connection", ids: Sequence[str]) -> None:
    from sqlalchemy import bindparam

    from labctl.index.tables import TABLE

    if not ids:
        return
    for name, table in TABLE.items():
        key = table.c.id if name == "run" else table.c.run
        connection.execute(
            table.delete().where(key == bindparam("gone")), [{"gone": one} for one in ids]
        )


def _values(row: Row) -> dict[str, object]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    if isinstance(row, TrialRow):
        values |= {name: json.dumps(values[name]) for name in _JSON}
    return values


def _trial(row: tuple[Any, ...]) -> TrialRow:
    values = dict(zip((field.name for field in fields(TrialRow)), row, strict=True))
    return TrialRow(**{**values, **{name: json.loads(values[name]) for name in _JSON}})


def _limit(limit: int | None) -> str:
    return "" if limit is None else f"LIMIT {int(limit)}"
