"""The audit log: who did what to which board or job, when, from where and why.

Entries are only ever added. Where an action is a transaction of its own, its entry is in it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labctl.errors import printable_line
from labctl.state.events import clock

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: One line, so that each place shows all of it.
LONGEST_REASON = 500
_COLUMNS = "id, at, actor, via, action, subject, reason, details"
_INSERT = f"""
    INSERT INTO audit ({_COLUMNS})
    SELECT COALESCE(MAX(id), 0) + 1, :at, :actor, :via, :action, :subject, :reason, :details
    FROM audit
"""


def short_reason(reason: str | None) -> str | None:
    """Return a reason as it is stored: one line, safe for a terminal, of limited length."""
    return printable_line(reason)[:LONGEST_REASON] if reason else None


@dataclass(frozen=True)
class AuditEntry:
    """One action of a user."""

    #: In the order in which they were done, also where a clock was set back.
    id: int
    #: Seconds since 1970 by the database's clock.
    at: float
    #: ``USER@HOST``, the name of a web user, or the part of labctl that acted.
    actor: str
    #: ``cli``, ``web``, ``farm``
    via: str
    #: ``hold``, ``release``, ``reserve``, ``queue cancel`` …
    action: str
    #: Object of the action: a board, a job, a run or the name of a token.
    subject: str
    reason: str | None
    details: Mapping[str, Any]


class Audit:
    """The audit log of a lab."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def record(
        self,
        actor: str,
        via: str,
        action: str,
        subject: str,
        reason: str | None = None,
        *,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an action done now. Raises HostError, ConfigError."""
        with self._state.changing() as connection:
            now = clock(connection, self._state.now)
            add_audit(
                connection, now, actor, via, action, subject=subject, reason=reason, details=details
            )

    def list(
        self,
        *,
        since: float | None = None,
        actor: str | None = None,
        subject: str | None = None,
        limit: int | None = None,
    ) -> Sequence[AuditEntry]:
        """Return the last ``limit`` actions, oldest first.

        Args:
            since: seconds since 1970.
            actor: ``USER@HOST``, or ``USER`` on whatever host.
            subject: a board, job or run.
            limit: maximum number of entries.

        Raises HostError, ConfigError.
        """
        asked: dict[str, object] = {}
        wanted = []
        if since is not None:
            wanted.append("at >= :since")
            asked["since"] = since
        if subject is not None:
            wanted.append("subject = :subject")
            asked["subject"] = subject
        if actor is not None:
            # Not LIKE: a name may hold its wildcards.
            wanted.append("(actor = :actor OR substr(actor, 1, :length) = :user)")
            asked |= {"actor": actor, "user": f"{actor}@", "length": len(actor) + 1}
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        last = "" if limit is None else f" LIMIT {int(limit)}"
        question = f"SELECT {_COLUMNS} FROM audit{where} ORDER BY id DESC{last}"
        return [_entry(row) for row in reversed(self._state.ask(question, asked))]


def add_audit(
    connection: "Connection",
    at: float,
    actor: str,
    via: str,
    action: str,
    *,
    subject: str,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Record an action in its own transaction."""
    from sqlalchemy import text

    row = {
        "at": at,
        "actor": printable_line(actor),
        "via": via,
        "action": action,
        "subject": printable_line(subject),
        "reason": short_reason(reason),
        "details": None if not details else json.dumps(details),
    }
    connection.execute(text(_INSERT), row)


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    *values, details = row
    known: list[Any] = [*values, json.loads(details) if details else {}]
    return AuditEntry(*known)
