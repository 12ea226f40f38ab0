"""Damaged rows of the lab's state: list them, and remove them on a person's request.

No other code removes them silently: a damaged lease, hold, health or job keeps its board.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl.database.questions import select
from labctl.errors import ConfigError
from labctl.state import sql
from labctl.state.audit import add_audit, checked_reason
from labctl.state.events import clock
from labctl.state.tables import COLUMNS, read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Row
    from labctl.state.sql import StateDatabase


@dataclass(frozen=True)
class DamagedRow:
    """A row that cannot be read."""

    #: Made from the row's content: no other name of a damaged row is reliable.
    id: str
    table: str
    damaged: str


def damaged_rows(state: "StateDatabase") -> Sequence[DamagedRow]:
    """Return the damaged rows of all tables. Raises HostError, ConfigError."""
    return [
        found
        for table, columns in COLUMNS.items()
        for row in state.ask(select(columns, table), {})
        if (found := _damaged(table, row)) is not None
    ]


def remove_damaged(
    state: "StateDatabase", ids: Sequence[str], *, by: str, reason: str
) -> Sequence[DamagedRow]:
    """Remove damaged rows, with an entry in the audit log for each; return them.

    Raises ConfigError for an unknown id, HostError.
    """
    from sqlalchemy import Text, cast, literal_column

    from labctl.state.sql_tables import UNTYPED

    why = checked_reason(reason) or ""

    def change(connection: "Connection") -> Sequence[DamagedRow]:
        removed, now = [], clock(connection, state.now)
        # The database's own row name, because any value may be damaged.
        row_name = "rowid" if connection.dialect.name == "sqlite" else "ctid"
        place = cast(literal_column(row_name), Text)
        for name, table in UNTYPED.items():
            question = table.select().with_only_columns(place, *table.c)
            for at, *row in connection.execute(question).all():
                found = _damaged(name, tuple(row))
                if found is None or found.id not in ids:
                    continue
                connection.execute(table.delete().where(place == at))
                if name == "state_identity":  # boards recognise the lab by this row
                    sql.insert(connection, name, {"id": secrets.token_hex(8)})
                details = {"damaged": found.damaged}
                add_audit(
                    connection, now, by, "cli", "state remove", subject=name, reason=why,
                    details=details,
                )  # fmt: skip
                removed.append(found)
        if missing := sorted({*ids} - {one.id for one in removed}):
            raise ConfigError(
                f"no damaged row {', '.join(missing)}", hint="`labctl state damaged` lists them"
            )
        return removed

    return state.change(change)


def _damaged(table: str, row: "Row") -> DamagedRow | None:
    _, why = read(table, list(COLUMNS[table]), row)
    digest = hashlib.sha256(repr((table, row)).encode()).hexdigest()
    return None if why is None else DamagedRow(digest[:12], table, why)
