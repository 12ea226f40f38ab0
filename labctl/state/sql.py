"""SQL of the lab's state: the database interface of its parts, and statements in a transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.config.quotas import Quota
    from labctl.config.shared_limits import SharedLimits
    from labctl.database.base import Ask, Row


T = TypeVar("T")
#: Number of values in one query: databases have limits.
_AT_ONCE = 500


class StateDatabase(Protocol):
    """The database of a lab's state, for its parts, which are below the state itself."""

    @property
    def quotas(self) -> "Mapping[str, Quota]":
        """Quotas of the boards, by user."""

    @property
    def shared_limits(self) -> "SharedLimits":
        """Limits of what the boards share."""

    @property
    def lease_seconds(self) -> float:
        """Time (s) after which a lease or an attempt ends unless it is renewed."""

    @property
    def now(self) -> str:
        """SQL of the current time: seconds since 1970 by the database's clock."""

    def ask(self, question: str, values: Mapping[str, object]) -> "list[Row]":
        """Return rows; none if nothing was ever stored. Raises HostError, ConfigError."""

    def asking(self, do: "Callable[[Ask], T]") -> T:
        """Return what ``do`` returns, which asks several questions, maybe again."""

    def change(self, do: "Callable[[Connection], T]", *, backup: bool = True) -> T:
        """Return what ``do`` returns, which changes the state in one transaction, maybe again."""

    def together(self, item: T, do: Callable[[Sequence[T]], None]) -> None:
        """Process an item in one transaction with items of other threads."""


def asker(connection: "Connection") -> "Ask":
    """Return a function that asks in an open transaction, as a database does outside of one."""
    from sqlalchemy import text

    def ask(question: str, values: Mapping[str, object]) -> "list[Row]":
        return [tuple(row) for row in connection.execute(text(question), values)]

    return ask


def rows_of(
    ask: "Ask",
    question: str,
    values: "Collection[str]",
    others: Mapping[str, object] | None = None,
) -> "list[Row]":
    """Return the rows of a query that ends with IN, for any number of values."""
    found, left = list["Row"](), sorted(values)
    while left:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        named = {f"v{number}": value for number, value in enumerate(some)}
        places = ", ".join(f":{name}" for name in named)
        found += ask(f"{question} ({places})", {**named, **(others or {})})
    return found


def rows(
    connection: "Connection", question: str, values: Mapping[str, object] | None = None
) -> "list[dict[str, Any]]":
    """Return the rows of a query, each with column names."""
    from sqlalchemy import text

    return [dict(row) for row in connection.execute(text(question), values or {}).mappings()]


def run(connection: "Connection", statement: str, values: Mapping[str, object]) -> None:
    """Execute a statement."""
    from sqlalchemy import text

    connection.execute(text(statement), values)
