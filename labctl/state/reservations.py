"""Periods in which a board is kept: by a hold from now on, by a reservation, for maintenance.

They exclude other users; the owner takes leases as usual. Maintenance excludes everybody.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labctl.errors import BoardBusy, ConfigError, printable_line
from labctl.state.audit import add_audit, short_reason
from labctl.state.events import clock
from labctl.state.quotas import check_reserved

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: ``hold``: from now on. ``reservation``: for a later time. ``maintenance``: nobody starts work
#: then.
ReservationKind = Literal["hold", "reservation", "maintenance"]

_COLUMNS = "id, board, kind, holder, begins, ends, reason, made_by, made_at"
#: Query for what keeps a board, under any of its names, at some moment between two times. The last
#: leases show which names belong to one board.
KEPT = (
    f"SELECT {_COLUMNS} FROM reservation"
    " WHERE (board = :board OR board IN"
    " (SELECT board FROM board_lease WHERE hardware = :hardware))"
    " AND begins < :ends AND ends > :begins ORDER BY begins, id"
)


@dataclass(frozen=True)
class Reservation:
    """One board for one period. Times are seconds since 1970."""

    id: str
    board: str
    kind: ReservationKind
    #: ``USER@HOST``, or ``USER`` for any host. For maintenance: its author.
    holder: str
    begins: float
    ends: float
    reason: str | None
    #: Its author: a person, or a program.
    made_by: str
    made_at: float

    def lets_use_unwell(self, holder: str) -> bool:
        """Return True if ``USER@HOST`` took the board by hand.

        They may use it for that time, whatever its health.
        """
        return self.kind == "hold" and self.made_by == self.holder and self.lets_in(holder)

    def lets_in(self, holder: str) -> bool:
        """Return True if ``USER@HOST`` may use the board then."""
        return self.kind != "maintenance" and is_same_user(self.holder, holder)


def is_same_user(one: str, other: str) -> bool:
    """Return True if both are one user: ``USER`` alone, as on pages, matches any host."""
    (user, host, _), (other_user, other_host, _) = one.partition("@"), other.partition("@")
    return one == other or (user == other_user and not (host and other_host))


class Reservations:
    """The periods in which boards of a lab are kept."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self, board: str | None = None) -> Sequence[Reservation]:
        """Return those that have not ended, by begin. Raises HostError, ConfigError."""
        which = "" if board is None else " AND board = :board"
        question = (
            f"SELECT {_COLUMNS} FROM reservation WHERE ends > {self._state.now}{which}"
            " ORDER BY begins, board, id"
        )
        asked = {} if board is None else {"board": board}
        return [Reservation(*row) for row in self._state.ask(question, asked)]

    def of_leased(self) -> Sequence[tuple[str, Reservation]]:
        """Return those in force now, with each name under which their board was leased."""
        now, columns = self._state.now, _COLUMNS.replace("board", "reservation.board")
        question = (
            f"SELECT mine.board, {columns.replace('holder', 'reservation.holder')}"
            " FROM reservation LEFT JOIN board_lease last ON last.board = reservation.board"
            " JOIN board_lease mine"
            " ON mine.board = reservation.board OR mine.hardware = last.hardware"
            f" WHERE begins <= {now} AND ends > {now} ORDER BY begins, id"
        )
        return [(board, Reservation(*row)) for board, *row in self._state.ask(question, {})]

    def in_force(self) -> Sequence[Reservation]:
        """Return those in force now."""
        now = self._state.now
        question = f"SELECT {_COLUMNS} FROM reservation WHERE begins <= {now} AND ends > {now}"
        return [Reservation(*row) for row in self._state.ask(f"{question} ORDER BY board", {})]

    def add(
        self,
        board: str,
        begins: float,
        ends: float,
        *,
        holder: str,
        by: str,
        via: str = "cli",
        kind: ReservationKind = "reservation",
        reason: str | None = None,
    ) -> Reservation:
        """Keep a board for a period. It does not affect a lease in force.

        Raises BoardBusy if the board is kept for another user then, or the user has too many
        boards, ConfigError for an invalid time, HostError.
        """
        if not begins < ends:
            raise ConfigError("a reservation must end after its begin")
        with self._state.changing() as connection:
            now = clock(connection, self._state.now)
            if ends <= now:
                raise ConfigError("this time is in the past")
            for other in kept(connection, board, begins, ends):
                raise other_keeps(other)
            if kind != "maintenance":
                quotas = self._state.quotas
                check_reserved(connection, board, holder, begins, ends, quotas=quotas)
            return add_reservation(
                connection,
                now,
                Reservation(
                    secrets.token_hex(4), board, kind, holder, begins, ends, reason, by, now
                ),
                via,
            )

    def cancel(
        self, number: str, *, by: str, via: str = "cli", force: bool = False, reason: str | None
    ) -> Reservation:
        """End a reservation; another user's needs ``force`` and a reason.

        Raises ConfigError if there is none, or it is another user's, HostError.
        """
        from sqlalchemy import text

        with self._state.changing() as connection:
            now = clock(connection, self._state.now)
            question = text(f"SELECT {_COLUMNS} FROM reservation WHERE id = :id AND ends > :now")
            row = connection.execute(question, {"id": number, "now": now}).first()
            if row is None:
                raise ConfigError(f"no reservation {number!r}", hint="`labctl reserve` lists them")
            found = Reservation(*row)
            if not is_same_user(found.holder, by) and not is_same_user(found.made_by, by):
                check_force(found.holder, f"reservation {number}", force=force, reason=reason)
            end_reservation(connection, found)
            add_audit(
                connection,
                now,
                by,
                via,
                "reserve cancel",
                subject=found.board,
                reason=reason,
                details=_details(found),
            )
            return found


def kept(
    connection: "Connection", board: str, begins: float, ends: float, hardware: str | None = None
) -> Sequence[Reservation]:
    """Return what keeps a board at some moment between two times, ordered by begin.

    ``hardware`` is the identity of the hardware, by default that of the last lease.
    """
    from sqlalchemy import text

    values = {"board": board, "begins": begins, "ends": ends, "hardware": hardware}
    if hardware is None:
        last = text("SELECT hardware FROM board_lease WHERE board = :board")
        values["hardware"] = connection.execute(last, values).scalar()
    rows = connection.execute(text(KEPT), values)
    return [Reservation(*row) for row in rows]


def reservations_from(connection: "Connection", now: float) -> Mapping[str, Sequence[Reservation]]:
    """Return, by board, what keeps it now or later, ordered by begin."""
    from sqlalchemy import text

    question = f"SELECT {_COLUMNS} FROM reservation WHERE ends > :now ORDER BY begins, id"
    found: dict[str, list[Reservation]] = {}
    for row in connection.execute(text(question), {"now": now}):
        found.setdefault((one := Reservation(*row)).board, []).append(one)
    return found


def add_reservation(
    connection: "Connection", now: float, new: Reservation, via: str
) -> Reservation:
    """Record a reservation and its entry in the audit log, in an open transaction."""
    from sqlalchemy import text

    values: dict[str, Any] = {
        "id": new.id,
        "board": new.board,
        "kind": new.kind,
        "holder": printable_line(new.holder),
        "begins": new.begins,
        "ends": new.ends,
        "reason": short_reason(new.reason),
        "made_by": printable_line(new.made_by),
        "made_at": new.made_at,
    }
    places = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO reservation ({_COLUMNS}) VALUES ({places})"), values)
    action = "hold" if new.kind == "hold" else "reserve"
    add_audit(
        connection,
        now,
        new.made_by,
        via,
        action,
        subject=new.board,
        reason=new.reason,
        details=_details(new),
    )
    return Reservation(**values)


def end_reservation(connection: "Connection", one: Reservation) -> None:
    """Remove a reservation in an open transaction; the audit log records it."""
    from sqlalchemy import text

    connection.execute(text("DELETE FROM reservation WHERE id = :id"), {"id": one.id})


def check_force(owner: str, what: str, *, force: bool, reason: str | None) -> None:
    """Raise ConfigError unless another user's is ended with force and a reason."""
    if not force:
        raise ConfigError(f"{what} is {owner}'s", hint="ask them; or end it: --force --reason TEXT")
    if not (reason or "").strip():
        raise ConfigError(
            "a reason is required to end another user's hold or reservation",
            hint="add --reason TEXT",
        )


def other_keeps(other: Reservation) -> BoardBusy:
    """Return the error for a board that is kept for another user."""
    from labctl.units import local_time

    times = f"from {local_time(other.begins)} to {local_time(other.ends)}"
    why = f": {other.reason}" if other.reason else ""
    words = {
        "hold": f"is held by {other.holder} until {local_time(other.ends)}{why}",
        "reservation": f"is reserved for {other.holder} {times}{why}",
        "maintenance": f"has maintenance {times}{why}",
    }
    return BoardBusy(
        f"board {other.board} {words[other.kind]}",
        hint="`labctl boards` shows who has what; `labctl reserve` lists all reservations",
    )


def _details(one: Reservation) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "holder": one.holder,
        "begins": one.begins,
        "ends": one.ends,
    }
