"""SQLAlchemy tables of the index, made from the classes of rows."""

from typing import Any

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

from labctl.index.rows import LOOKED_FOR, TABLES, columns

#: SQLite's strict tables know few type names; PostgreSQL's INTEGER and REAL are too narrow.
_TYPES: dict[type, TypeEngine[Any]] = {
    # Compare bytes, like SQLite and Python: ids and moments are sorted as text.
    str: Text().with_variant(Text(collation="C"), "postgresql"),
    dict: Text(),
    int: BigInteger().with_variant(Integer(), "sqlite"),
    float: Double().with_variant(REAL(), "sqlite"),
}

METADATA = MetaData()
#: One row with the version of all tables, and the version of the labctl that created them.
MADE = Table(
    "index_version",
    METADATA,
    Column("version", Text, nullable=False),
    Column("labctl", Text, nullable=False),
)
TABLE = {
    name: Table(
        name,
        METADATA,
        *(
            Column(column, _TYPES[kind], primary_key=column in key, nullable=nullable)
            for column, (kind, nullable) in columns(row).items()
        ),
        sqlite_strict=True,
        sqlite_with_rowid=name in ("run", "trial"),
    )
    for name, (row, key) in TABLES.items()
}
for _table, _columns in LOOKED_FOR:
    Index(f"{_table}_by_{_columns[0]}", *(TABLE[_table].c[column] for column in _columns))
