"""SQL databases of labctl: a SQLite file, or a PostgreSQL shared by a lab."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.database.base import (
        DamagedDatabase,
        Database,
        DatabaseAway,
        Schema,
        UnwritableDatabase,
        lab_database,
    )
    from labctl.database.postgresql import PostgresDatabase
    from labctl.database.sqlite import SqliteDatabase
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": "DamagedDatabase Database DatabaseAway Schema UnwritableDatabase lab_database",
            "postgresql": "PostgresDatabase",
            "sqlite": "SqliteDatabase",
        },
    )

__all__ = [
    "DamagedDatabase",
    "Database",
    "DatabaseAway",
    "PostgresDatabase",
    "Schema",
    "SqliteDatabase",
    "UnwritableDatabase",
    "lab_database",
]
