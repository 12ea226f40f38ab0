"""The audit log: who did what to which board or job, when, from where and why.

Entries are only added. If an action has its own transaction, the entry is part of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labctl.errors import ConfigError
from labctl.state.events import add_row, clock, last_rows
from labctl.state.tables import as_json, short_line
from labctl.text_types import LONGEST_LINE

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

_NAMES = ("id", "at", "actor", "via", "action", "subject", "reason", "details")


def checked_reason(reason: str | None) -> str | None:
    """Return a user's reason in its stored form. Raises ConfigError if it is too long."""
    if reason is not None and len(reason) > LONGEST_LINE:
        raise ConfigError(
            f"the reason has {len(reason)} characters, and may have {LONGEST_LINE}",
            hint="name the reason in one sentence; a link says the rest",
        )
    return short_line(reason)


@dataclass(frozen=True)
class AuditEntry:
    """One action of a user."""

    #: In the order of the actions, even if a clock was set back.
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
    #: Why its row cannot be read; None if it can.
    damaged: str | None = None


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

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            add_audit(
                connection, now, actor, via, action, subject=subject, reason=reason, details=details
            )

        self._state.change(change)

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
            actor: ``USER@HOST``, or ``USER`` on any host.
            subject: a board, job or run.
            limit: maximum number of entries.

        Raises HostError, ConfigError.
        """
        wanted: dict[str, Mapping[str, object]] = {}
        if since is not None:
            wanted["at >= :since"] = {"since": since}
        if subject is not None:
            wanted["subject = :subject"] = {"subject": subject}
        if actor is not None:
            # Not LIKE: a name may contain LIKE's wildcards.
            names = {"actor": actor, "user": f"{actor}@", "length": len(actor) + 1}
            wanted["(actor = :actor OR substr(actor, 1, :length) = :user)"] = names
        rows = last_rows(self._state, "audit", _NAMES, wanted, limit=limit)
        return [AuditEntry(**values, damaged=why) for values, why in rows]


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
    row = {
        "at": at,
        "actor": short_line(actor) or "",
        "via": via,
        "action": short_line(action) or "",
        "subject": short_line(subject) or "",
        "reason": short_line(reason),
        "details": None if not details else as_json(details),
    }
    add_row(connection, "audit", row)
