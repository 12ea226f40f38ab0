"""Slowdowns that people accepted: nights compare head with them and with the last good."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from labctl.database.questions import select
from labctl.state import sql
from labctl.state.events import this_user
from labctl.state.tables import read, short_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

_TABLE = "accepted_slowdown"
_NAMES = (
    "plan", "row_name", "variant", "ratio", "night", "source", "good", "reason", "made_by",
    "made_at",
)  # fmt: skip


@dataclass(frozen=True)
class Accepted:
    """A slowdown of a variant of a nightly plan's row.

    ``ratio`` is the time of head divided by the time of the last good, as ``night`` measured it;
    ``source`` is the source of head in that night, and ``good`` the last good.
    """

    plan: str
    row_name: str
    variant: str
    ratio: float
    night: str
    source: str
    good: str
    reason: str | None
    made_by: str
    #: In UTC.
    made_at: datetime

    def document(self) -> dict[str, object]:
        """Return the slowdown as JSON."""
        return {**asdict(self), "made_at": self.made_at.isoformat()}


class AcceptedSlowdowns:
    """All accepted slowdowns of a lab."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self, plan: str) -> list[Accepted]:
        """Return a plan's slowdowns, except damaged ones. Raises HostError, ConfigError."""
        question = select(_NAMES, _TABLE, "plan = :plan")
        found = []
        for row in self._state.ask(question, {"plan": plan}):
            values, damaged = read(_TABLE, _NAMES, row)
            if damaged is None:
                found.append(Accepted(**values))
        return sorted(found, key=lambda one: (one.row_name, one.variant))

    def accept(
        self,
        plan: str,
        row_name: str,
        variant: str,
        *,
        ratio: float,
        night: str,
        source: str,
        good: str,
        reason: str | None = None,
    ) -> Accepted:
        """Accept a slowdown; replace an earlier one. Raises ConfigError, HostError."""
        now, by = datetime.now(UTC), this_user()
        why = short_line(reason)
        made = Accepted(plan, row_name, variant, ratio, night, source, good, why, by, now)

        def change(connection: "Connection") -> None:
            _delete(connection, made)
            sql.insert(connection, _TABLE, made.document())

        self._state.change(change)
        return made

    def void(self, one: Accepted) -> None:
        """End the acceptance of a slowdown. Raises HostError, ConfigError."""
        self._state.change(lambda connection: _delete(connection, one))


def _delete(connection: "Connection", one: Accepted) -> None:
    names = {"plan": one.plan, "row_name": one.row_name, "variant": one.variant}
    sql.delete(connection, _TABLE, names)
