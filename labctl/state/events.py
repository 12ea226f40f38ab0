"""The history of each board: events with their time, author and reason."""

import builtins
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labctl.database.questions import select
from labctl.state import sql
from labctl.state.tables import MOST_WHOLE, as_json, read, short_line
from labctl.user import user_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: ``state``: idle, leased, offline. ``check``: verdict of a health check. ``recovery``: a recovery
#: step, and whether it helped. ``host``: a fault of the host whose boards failed. ``flip``: verdict
#: of a comparison that a repetition with the same builds on the same board did not confirm.
EventKind = Literal["health", "state", "firmware", "check", "recovery", "host", "flip"]

_NAMES = ("id", "board", "at", "kind", "value", "reason", "made_by", "details")
#: Valid row numbers of a log; other values do not count, whatever their place in sorted rows.
_SOUND = f"id BETWEEN 0 AND {MOST_WHOLE - 1}"


@dataclass(frozen=True)
class BoardEvent:
    """One event of a board."""

    #: In the order in which they happened, even if a clock was set back.
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
    #: Why its row cannot be read; None if it can.
    damaged: str | None = None


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
            kinds: only these; empty: all.
            limit: maximum number of events.

        Raises HostError, ConfigError.
        """
        wanted: dict[str, Mapping[str, object]] = {}
        if board is not None:
            wanted["board = :board"] = {"board": board}
        if since is not None:
            wanted["at >= :since"] = {"since": since}
        if kinds:
            names = {f"kind{number}": kind for number, kind in enumerate(kinds)}
            wanted[f"kind IN ({', '.join(f':{name}' for name in names)})"] = names
        rows = last_rows(self._state, "board_event", _NAMES, wanted, limit=limit)
        return [BoardEvent(**values, damaged=why) for values, why in rows]

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

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            add_event(connection, now, board, kind, value, by=by, reason=reason, details=details)

        self._state.change(change)


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
    row = {
        "board": board,
        "at": at,
        "kind": kind,
        "value": short_line(value) or "",
        "reason": short_line(reason),
        "made_by": short_line(by) or "",
        "details": None if not details else as_json(details),
    }
    add_row(connection, "board_event", row)


def add_row(connection: "Connection", table: str, values: Mapping[str, Any]) -> None:
    """Append a row to a log, with the next number. Raises ConfigError."""
    ((last,),) = sql.asker(connection)(select("COALESCE(MAX(id), 0)", table, _SOUND), {})
    sql.insert(connection, table, {"id": last + 1, **values})


def last_rows(
    state: "StateDatabase",
    table: str,
    names: Sequence[str],
    wanted: Mapping[str, Mapping[str, object]],
    *,
    limit: int | None,
) -> builtins.list[tuple[dict[str, Any], str | None]]:
    """Return the last ``limit`` rows of a log, oldest first, with the damage of each.

    ``wanted``: SQL of each condition, with its values. Rows without a valid number come first.
    """
    found: builtins.list[Any] = []
    for condition in (_SOUND, f"NOT ({_SOUND})", "id IS NULL"):
        if limit is None or len(found) < limit:
            last = None if limit is None else limit - len(found)
            question = select(names, table, condition, *wanted, order="id DESC", limit=last)
            found += state.ask(question, {k: v for one in wanted.values() for k, v in one.items()})
    return [read(table, names, row) for row in reversed(found)]


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

    Runs in the caller's transaction.
    """
    question = "SELECT state FROM board_health WHERE board = :board"
    if details or [(state,)] != sql.asker(connection)(question, {"board": board}):
        keep_row(connection, board, {"state": state})
        add_event(connection, at, board, "state", state, by=by, reason=reason, details=details)


def keep_row(connection: "Connection", board: str, values: Mapping[str, Any]) -> None:
    """Change columns of a board's row in board_health; create the row if needed."""
    if not sql.update(connection, "board_health", {"board": board}, values):
        sql.insert(connection, "board_health", {"jobs_since_check": 0, **values, "board": board})


def clock(connection: "Connection", now: str) -> float:
    """Return the present time by the database's clock; ``now`` is its SQL."""
    return float(sql.asker(connection)(f"SELECT {now}", {})[0][0])


def this_user() -> str:
    """Return the user of this process, as ``USER@HOST``."""
    return f"{user_name()}@{socket.gethostname()}"
