"""Tables of the lab's state, in SQL that SQLite and PostgreSQL both know.

A step that was released is never changed: a further one follows it.
"""

from typing import TYPE_CHECKING

from labctl.database import Schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

_BASELINES = (
    """
    CREATE TABLE baseline (
        name TEXT PRIMARY KEY,
        variant TEXT,
        note TEXT,
        set_by TEXT NOT NULL,
        set_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE baseline_run (
        baseline TEXT NOT NULL,
        position INTEGER NOT NULL,
        run TEXT NOT NULL,
        PRIMARY KEY (baseline, position)
    )
    """,
)


def _make_baselines(connection: "Connection") -> None:
    for statement in _BASELINES:
        connection.exec_driver_sql(statement)


SCHEMA = Schema("state_version", (_make_baselines,))
#: table -> the version that it came with
TABLES = {"baseline": 1, "baseline_run": 1}
