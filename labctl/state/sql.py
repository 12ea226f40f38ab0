"""Statements within a transaction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection


def rows(
    connection: "Connection", question: str, values: Mapping[str, object] | None = None
) -> "list[dict[str, Any]]":
    """Return the rows that a question has, each with its names."""
    from sqlalchemy import text

    return [dict(row) for row in connection.execute(text(question), values or {}).mappings()]


def run(connection: "Connection", statement: str, values: Mapping[str, object]) -> None:
    """Carry out a statement."""
    from sqlalchemy import text

    connection.execute(text(statement), values)
