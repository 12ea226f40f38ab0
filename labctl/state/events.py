"""The history of each board: events with their time, author and reason."""

import json
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labctl.errors import printable_line
from labctl.files import user_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: ``state``: idle, leased, offline. ``check``: verdict of a health check. ``recovery``: a rung of
#: the ladder, and whether it helped. ``host``: a fault of the host whose boards failed. ``flip``: a
#: verdict of a comparison that the same builds on the same board did not confirm.
EventKind = Literal["health", "state", "firmware", "check", "recovery", "host", "flip"]

_COLUMNS = "id, board, at, kind, value, reason, made_by, details"
_INSERT = f"""
    INSERT INTO board_event ({_COLUMNS})
    SELECT COALESCE(MAX(id), 0) + 1, :board, :at, :kind, :value, :reason, :made_by, :details
    FROM board_event
"""


@dataclass(frozen=True)
class BoardEvent:
    """One event of a board."""

    #: In the order in which they happened, also where a clock was set back.
    id: int
    board: str
    #: Seconds since 1970 by the database's clock.
    at: float
    kind: EventKind
    value: str
    reason: str | None
    #: ``USER@HOST``, or the part of labctl that acted.
    made_by: str
    details: Mapping[str, Any]


class BoardEvents:
    """The history of a lab's boards; entries are only added, never changed."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(
        self,
        board: str | None = None,
        *,
        since: float | None = None,
        kinds: Collection[EventKind] = (),
        limit: int | None = None,
    ) -> list[BoardEvent]:
        """Return the last ``limit`` events, oldest first.

        Args:
            board: one board; None: all.
            since: seconds since 1970.
            kinds: only these; none: all.
            limit: maximum number of events.

        Raises HostError, ConfigError.
        """
        asked: dict[str, object] = {}
        wanted = []
        if board is not None:
            wanted.append("board = :board")
            asked["board"] = board
        if since is not None:
            wanted.append("at >= :since")
            asked["since"] = since
        if kinds:
            names = {f"kind{number}": kind for number, kind in enumerate(kinds)}
            wanted.append(f"kind IN ({', '.join(f':{name}' for name in names)})")
            asked |= names
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        last = "" if limit is None else f" LIMIT {int(limit)}"
        question = f"SELECT {_COLUMNS} FROM board_event{where} ORDER BY id DESC{last}"
        return [_event(row) for row in reversed(self._state.ask(question, asked))]

    def uses(self, board: str, since: float, until: float) -> Sequence[BoardEvent]:
        """Return the leases of a board, under any of its names, that began between two times.

        Raises HostError, ConfigError.
        """
        question = (
            "SELECT other.board FROM board_lease own JOIN board_lease other"
            " ON other.hardware = own.hardware WHERE own.board = :board"
        )
        names = {board, *(name for (name,) in self._state.ask(question, {"board": board}))}
        found = self.list(since=since, kinds=["state"])
        leased = [event for event in found if event.value == "leased" and event.at <= until]
        return [event for event in leased if event.board in names]

    def add(
        self,
        board: str,
        kind: EventKind,
        value: str,
        *,
        by: str,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an event now. Raises HostError, ConfigError."""
        with self._state.changing() as connection:
            now = clock(connection, self._state.now)
            add_event(connection, now, board, kind, value, by=by, reason=reason, details=details)


def add_event(
    connection: "Connection",
    at: float,
    board: str,
    kind: EventKind,
    value: str,
    *,
    by: str,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Record an event, in an open transaction."""
    from sqlalchemy import text

    row = {
        "board": board,
        "at": at,
        "kind": kind,
        "value": printable_line(value),
        "reason": None if reason is None else printable_line(reason),
        "made_by": printable_line(by),
        "details": None if not details else json.dumps(details),
    }
    connection.execute(text(_INSERT), row)


def set_state(
    connection: "Connection",
    at: float,
    board: str,
    state: str,
    *,
    by: str,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Record a board's state; add an event if the state has changed or has ``details``.

    The transaction is the caller's.
    """
    from sqlalchemy import text

    question = text("SELECT state FROM board_health WHERE board = :board")
    if details or connection.execute(question, {"board": board}).scalar() != state:
        keep_row(connection, board, {"state": state})
        add_event(connection, at, board, "state", state, by=by, reason=reason, details=details)


def keep_row(connection: "Connection", board: str, values: Mapping[str, Any]) -> None:
    """Change columns of a board's row in board_health; create the row if needed."""
    from sqlalchemy import text

    row = {**values, "board": board}
    changes = ", ".join(f"{name} = :{name}" for name in values)
    update = text(f"UPDATE board_health SET {changes} WHERE board = :board")
    if connection.execute(update, row).rowcount == 0:
        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        connection.execute(text(f"INSERT INTO board_health ({names}) VALUES ({marks})"), row)


def clock(connection: "Connection", now: str) -> float:
    """Return this moment by the database's clock, of which ``now`` is the SQL."""
    from sqlalchemy import text

    return float(connection.execute(text(f"SELECT {now}")).scalar_one())


def this_user() -> str:
    """Return the user of this process, as ``USER@HOST``."""
    return f"{user_name()}@{socket.gethostname()}"


def _event(row: tuple[Any, ...]) -> BoardEvent:
    *values, details = row
    known: list[Any] = [*values, json.loads(details) if details else {}]
    return BoardEvent(*known)
