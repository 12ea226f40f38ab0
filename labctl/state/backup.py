"""Backups of the lab's state: SQLite files with its tables, made from whichever database."""

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl.database import DamagedDatabase, Database, Schema, SqliteDatabase
from labctl.errors import ConfigError
from labctl.files import host_reads, host_writes, publish, write_atomic
from labctl.state.tables import SCHEMA, TABLES

if TYPE_CHECKING:
    from sqlalchemy import Connection

Rows = dict[str, list[dict[str, Any]]]


def write_backup(database: Database, path: Path) -> None:
    """Copy the state to a new file, in the version that it is in. Raises ConfigError, HostError."""
    with database.writing() as connection:  # alone, so that all tables are of one moment
        version = SCHEMA.found(connection)
        SCHEMA.check(version)  # tables that are unknown here would be left out
        rows = _rows(connection, version)
    if not version:
        raise ConfigError("the lab has no state yet: nothing to back up")
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(dir=path.parent, prefix=".labctl-")
    with made as folder:
        copy = SqliteDatabase(Path(folder) / path.name, "the backup", "")
        with closing(copy), copy.writing() as connection:
            Schema(SCHEMA.table, SCHEMA.steps[:version]).migrate(connection)
            replace_rows(connection, rows)
        publish(copy.path, path)


def read_backup(path: Path) -> Rows:
    """Return the rows of a backup as this version has them. Raises ConfigError."""
    with host_reads(path):
        if not path.is_file():
            raise ConfigError(f"no file {path}")
        content = path.read_bytes()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(SqliteDatabase(Path(folder) / "state.sqlite", "the backup", "")) as copy,
    ):
        write_atomic(copy.path, content)
        try:
            if SCHEMA.table not in copy.tables():
                raise ConfigError(f"{path} is not a backup of a lab's state")
            with copy.writing() as connection:
                SCHEMA.migrate(connection)
                return _rows(connection, SCHEMA.version)
        except DamagedDatabase as error:
            raise ConfigError(f"{path} is not a backup of a lab's state: it is damaged") from error


def replace_rows(connection: "Connection", rows: Rows) -> None:
    """Replace all rows of the tables by these rows."""
    from sqlalchemy import text

    for table, these in rows.items():
        connection.execute(text(f"DELETE FROM {table}"))
        if these:
            names = list(these[0])
            values = ", ".join(f":{name}" for name in names)
            insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"
            connection.execute(text(insert), these)


def _rows(connection: "Connection", version: int) -> Rows:
    from sqlalchemy import text

    return {
        table: [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
        for table, since in TABLES.items()
        if since <= version
    }
