"""SQLAlchemy tables of the lab's state, made from the declarations of their columns."""

import secrets
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    MetaData,
    Table,
    Text,
    and_,
    column,
    table,
)
from sqlalchemy.types import TypeEngine

from labctl.state.tables import COLUMNS, KEYS

_TYPES: dict[type, TypeEngine[Any]] = {str: Text(), int: BigInteger(), float: Double()}
METADATA = MetaData()
TABLE = {
    name: Table(
        name,
        METADATA,
        *(
            Column(
                own,
                _TYPES[rule.kind],
                primary_key=own in KEYS.get(name, (next(iter(columns)),)),
                nullable=rule.is_nullable,
                autoincrement=False,
            )
            for own, rule in columns.items()
        ),
    )
    for name, columns in COLUMNS.items()
}
#: The same tables without types, to read and write damaged rows unchanged.
UNTYPED = {name: table(name, *map(column, columns)) for name, columns in COLUMNS.items()}
JOB, GROUP, LEASE = TABLE["job"], TABLE["job_group"], TABLE["board_lease"]
_ENDED = ("done", "cancelled")

for _table, *_columns in (
    ("board_event", "board", "id"),
    ("job", "state"),
    ("job", "expires"),
    ("job", "position"),
    ("job", "ended_at"),
    ("job", "board", "ended_at"),
    ("job", "group_id", "ended_at"),
    ("job", "unit"),
    ("job", "request"),
    ("job", "boards"),
    ("board_list", "board"),
    ("reservation", "board", "ends"),
    ("audit", "at"),
):
    Index(f"{_table}_by_{_columns[0]}", *(TABLE[_table].c[one] for one in _columns))
for _name, _column, _only in (
    # A job with a damaged state may be running.
    ("job_begun", JOB.c.id, JOB.c.state.not_in(("waiting", *_ENDED))),
    ("job_not_ended", JOB.c.id, JOB.c.state.not_in(_ENDED)),
    ("job_kept", JOB.c.board, and_(JOB.c.state == "waiting", JOB.c.board.is_not(None))),
    ("job_that_broke", JOB.c.id, JOB.c.broken != "{}"),
):
    Index(_name, _column, sqlite_where=_only, postgresql_where=_only)


def make_tables(connection: Connection) -> None:
    """Create all tables, and the name of this state."""
    METADATA.create_all(connection, checkfirst=False)
    # One process may create the states of several labs; each state gets its own name.
    connection.execute(TABLE["state_identity"].insert().values(id=secrets.token_hex(8)))
