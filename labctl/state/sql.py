"""SQL of the lab's state: the database interface of its parts, and rows in a transaction.

Queries are text; changes of rows use SQLAlchemy.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from labctl.state.tables import checked

if TYPE_CHECKING:
    from sqlalchemy import Connection, Delete, Insert, TextClause, Update

    from labctl.config.quotas import Quota
    from labctl.config.shared_limits import SharedLimits
    from labctl.database.base import Ask, Row


T = TypeVar("T")
#: Number of values in one query: databases have limits.
_AT_ONCE = 500


class StateDatabase(Protocol):
    """Interface of the state's database for the state's parts."""

    @property
    def quotas(self) -> "Mapping[str, Quota]":
        """Quotas of the boards, by user."""

    @property
    def shared_limits(self) -> "SharedLimits":
        """Limits of the resources that boards share."""

    @property
    def lease_seconds(self) -> float:
        """Time (s) after which a lease or an attempt ends unless it is renewed."""

    @property
    def now(self) -> str:
        """SQL of the current time: seconds since 1970 by the database's clock."""

    def ask(self, question: str, values: Mapping[str, object]) -> "list[Row]":
        """Return rows; empty if nothing was ever stored. Raises HostError, ConfigError."""

    def asking(self, do: "Callable[[Ask], T]") -> T:
        """Return the result of ``do``, which runs several queries, maybe repeatedly."""

    def change(self, do: "Callable[[Connection], T]", *, backup: bool = True) -> T:
        """Return the result of ``do``, which changes the state in one transaction, maybe again."""

    def together(self, item: T, do: Callable[[Sequence[T]], None]) -> None:
        """Process an item in one transaction together with items of other threads."""


@lru_cache(maxsize=512)
def _read(question: str) -> "TextClause":
    from sqlalchemy import text

    return text(question)


def asker(connection: "Connection") -> "Ask":
    """Return a function that queries in an open transaction."""

    def ask(question: str, values: Mapping[str, object]) -> "list[Row]":
        return [tuple(row) for row in connection.execute(_read(question), values)]

    return ask


def rows_of(
    ask: "Ask",
    question: str,
    values: "Collection[str]",
    others: Mapping[str, object] | None = None,
) -> "list[Row]":
    """Return the rows of a query that ends with IN; there may be any number of values."""
    found, left = list["Row"](), sorted(values)
    while left:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        named = {f"v{number}": value for number, value in enumerate(some)}
        places = ", ".join(f":{name}" for name in named)
        found += ask(f"{question} ({places})", {**named, **(others or {})})
    return found


def insert(connection: "Connection", table: str, *rows: Mapping[str, Any]) -> None:
    """Store new rows with the same columns. Raises ConfigError."""
    for row in rows:
        checked(table, row)
    if rows:
        connection.execute(_insert(table), list(rows))


def update(
    connection: "Connection", table: str, key: Mapping[str, Any], values: Mapping[str, Any]
) -> bool:
    """Set new values in the rows with these values of ``key``; return True if any row matches.

    Raises ConfigError.
    """
    statement = _update(table, tuple(key), tuple(checked(table, values)))
    named = {f"key_{name}": value for name, value in key.items()}
    return connection.execute(statement, {**named, **values}).rowcount > 0


def delete(connection: "Connection", table: str, key: Mapping[str, Any]) -> bool:
    """Remove the rows with these values of ``key``; return True if any row matched."""
    named = {f"key_{name}": value for name, value in key.items()}
    return connection.execute(_delete(table, tuple(key)), named).rowcount > 0


# SQLAlchemy compiles each statement once.


@lru_cache(maxsize=64)
def _insert(table: str) -> "Insert":
    from labctl.state.sql_tables import TABLE

    return TABLE[table].insert()


@lru_cache(maxsize=256)
def _update(table: str, key: tuple[str, ...], names: tuple[str, ...]) -> "Update":
    from sqlalchemy import bindparam

    from labctl.state.sql_tables import TABLE

    rows = TABLE[table]
    same = (rows.c[name] == bindparam(f"key_{name}") for name in key)
    return rows.update().where(*same).values({name: bindparam(name) for name in names})


@lru_cache(maxsize=64)
def _delete(table: str, key: tuple[str, ...]) -> "Delete":
    from sqlalchemy import bindparam

    from labctl.state.sql_tables import TABLE

    rows = TABLE[table]
    return rows.delete().where(*(rows.c[name] == bindparam(f"key_{name}") for name in key))
