"""SQL of the lab's state: what its parts need of the database, and statements in a transaction."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.config.quotas import Quota
    from labctl.database.base import Row


T = TypeVar("T")


class StateDatabase(Protocol):
    """The database of a lab's state, for its parts, which are below the state itself."""

    @property
    def quotas(self) -> "Mapping[str, Quota]":
        """Quotas of the boards, by user."""

    @property
    def lease_seconds(self) -> float:
        """A board's lease, or a job's attempt, that is not renewed for so long is over."""

    @property
    def now(self) -> str:
        """SQL of this moment: seconds since 1970 by the database's clock."""

    def ask(self, question: str, values: Mapping[str, object]) -> "list[Row]":
        """Return rows; none where nothing was ever kept. Raises HostError, ConfigError."""

    def changing(self, *, backup: bool = True) -> "AbstractContextManager[Connection]":
        """Open a transaction that no other labctl shares, after a backup where one is due."""

    def together(self, item: T, do: Callable[[Sequence[T]], None]) -> None:
        """Do something to an item in one transaction with those of other threads."""


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
