"""Periods in which a board is kept: a hold from now on, a reservation, maintenance.

They exclude other users; the owner takes leases as usual. Maintenance excludes everybody.
"""

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from labctl.database.questions import select
from labctl.errors import BoardBusy, ConfigError
from labctl.state import sql
from labctl.state.audit import add_audit, checked_reason
from labctl.state.events import clock
from labctl.state.job import Job, damaged_jobs
from labctl.state.quotas import check_reserved
from labctl.state.tables import COLUMNS, read, short_line
from labctl.text_types import LONGEST_USE_SECONDS, SHORTEST_USE_SECONDS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

#: ``hold``: from now on. ``reservation``: for a later time. ``maintenance``: no work starts in this
#: period. ``job``: a damaged job of the queue may be using the board.
ReservationKind = Literal["hold", "reservation", "maintenance", "job"]

_NAMES = tuple(COLUMNS["reservation"])


@dataclass(frozen=True)
class Reservation:
    """One board for one period. Times are seconds since 1970."""

    id: str
    board: str
    kind: ReservationKind
    #: ``USER@HOST``, or ``USER`` for any host. For maintenance: the author.
    holder: str
    begins: float
    ends: float
    reason: str | None
    #: Its author.
    made_by: str
    made_at: float
    #: Why its row cannot be read; nobody gets the board then. None if it can.
    damaged: str | None = None

    def lets_use_unwell(self, holder: str) -> bool:
        """Return True if ``USER@HOST`` may use the board then, whatever the board's health."""
        return self.kind == "hold" and self.lets_in(holder)

    def lets_in(self, holder: str) -> bool:
        """Return True if ``USER@HOST`` may use the board in this period."""
        is_open = self.kind != "maintenance" and self.damaged is None
        return is_open and is_same_user(self.holder, holder)

    def is_between(self, begin: float, end: float) -> bool:
        """Return True if the board is kept at some moment between two times."""
        return self.damaged is not None or (self.begins < end and self.ends > begin)


def is_same_user(one: str, other: str) -> bool:
    """Return True if both name one user: ``USER`` alone, as on pages, matches any host."""
    (user, host, _), (other_user, other_host, _) = one.partition("@"), other.partition("@")
    return one == other or (user == other_user and not (host and other_host))


class Reservations:
    """The periods in which boards of a lab are kept."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self, board: str | None = None) -> Sequence[Reservation]:
        """Return the periods that have not ended, by begin. Raises HostError, ConfigError."""
        return [one for _, one in self.to_come() if board is None or one.board == board]

    def of_leased(self) -> Sequence[tuple[str, Reservation]]:
        """Return the periods in force now, with each name under which their board was leased."""
        kept = self.in_force()
        leased = self._state.ask("SELECT board, hardware FROM board_lease", {}) if kept else ()
        hardware: dict[Any, Any] = dict(leased)
        return [
            (board, one)
            for one in kept
            for board, own in leased
            if board == one.board or (own is not None and own == hardware.get(one.board))
        ]

    def in_force(self) -> Sequence[Reservation]:
        """Return the periods in force now."""
        found = [
            one for at, one in self.to_come() if one.is_between(at, math.nextafter(at, math.inf))
        ]
        return sorted(found, key=lambda one: one.board)

    def to_come(self) -> Sequence[tuple[float, Reservation]]:
        """Return the periods that have not ended, by begin, each with the present time."""
        now = self._state.now
        question = _question_for_left((now, *_NAMES), now)
        found = [(at, _reservation(row)) for at, *row in self._state.ask(question, {})]
        return [*found, *((0.0, one) for one in _of_jobs(self._state.asking(damaged_jobs)))]

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
        """Keep a board for a period. A lease in force is not affected.

        Raises BoardBusy if the board is kept for another user in this period, or the user would
        have too many boards; ConfigError for an invalid time; HostError.
        """
        check_length(ends - begins)
        why = checked_reason(reason)

        def change(connection: "Connection") -> Reservation:
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
                Reservation(secrets.token_hex(4), board, kind, holder, begins, ends, why, by, now),
                via,
            )

        return self._state.change(change)

    def cancel(
        self, number: str, *, by: str, via: str = "cli", force: bool = False, reason: str | None
    ) -> Reservation:
        """End a reservation; ending another user's reservation needs ``force`` and a reason.

        Raises ConfigError for an unknown one, or another user's without ``force``; HostError.
        """
        why = checked_reason(reason)

        def change(connection: "Connection") -> Reservation:
            now = clock(connection, self._state.now)
            found = next(
                (one for one in _not_ended(sql.asker(connection), now) if one.id == number), None
            )
            if found is None:
                raise ConfigError(
                    f"no reservation {number!r}", hint="`labctl hold --list` lists them"
                )
            if not is_same_user(found.holder, by) and not is_same_user(found.made_by, by):
                check_force(found.holder, f"reservation {number}", force=force, reason=why)
            end_reservation(connection, found)
            add_audit(
                connection,
                now,
                by,
                via,
                "reserve cancel",
                subject=found.board,
                reason=why,
                details=_details(found),
            )
            return found

        return self._state.change(change)


def kept(
    connection: "Connection", board: str, begins: float, ends: float, hardware: str | None = None
) -> Sequence[Reservation]:
    """Return the periods of a board that overlap the time between two times, by begin.

    ``hardware``: identity of the hardware; default: as in the last lease.
    """
    ask = sql.asker(connection)
    if hardware is None:
        last = "SELECT hardware FROM board_lease WHERE board = :board"
        hardware = next((own for (own,) in ask(last, {"board": board})), None)
    names = "SELECT board FROM board_lease WHERE hardware = :hardware"
    boards = {board, *(name for (name,) in ask(names, {"hardware": hardware}))}
    found = _not_ended(ask, begins)
    return [one for one in found if one.board in boards and one.is_between(begins, ends)]


def reservations_from(ask: "Ask", now: float) -> Mapping[str, Sequence[Reservation]]:
    """Return, by board, the periods that have not ended, by begin."""
    found: dict[str, list[Reservation]] = {}
    for one in _not_ended(ask, now):
        found.setdefault(one.board, []).append(one)
    return found


def _reservation(row: Sequence[Any]) -> Reservation:
    """Return the reservation of a row."""
    values, why = read("reservation", _NAMES, row)
    return Reservation(**values, damaged=why)


def check_length(seconds: float) -> None:
    """Raise ConfigError for a duration for which boards cannot be held or reserved."""
    if not SHORTEST_USE_SECONDS <= seconds <= LONGEST_USE_SECONDS:
        raise ConfigError("a board is held or reserved for one minute to 30 days")


def _not_ended(ask: "Ask", now: float) -> Sequence[Reservation]:
    rows = ask(_question_for_left(_NAMES, ":now"), {"now": now})
    return [*map(_reservation, rows), *_of_jobs(damaged_jobs(ask))]


def _question_for_left(names: Sequence[str], now: str) -> str:
    """Return the query for periods that have not ended; a row with a damaged end counts too."""
    left = f"NOT COALESCE(ends BETWEEN 0 AND {now}, FALSE)"
    return select(names, "reservation", left, order="begins, board, id")


def _of_jobs(jobs: Iterable[Job]) -> Iterator[Reservation]:
    """Yield the boards that damaged jobs keep."""
    for job in jobs:
        for board in job.may_have:
            yield Reservation(
                job.id, board, "job", job.submitter, 0.0, 0.0, None, job.submitter, 0.0, job.damaged
            )


def add_reservation(
    connection: "Connection", now: float, new: Reservation, via: str
) -> Reservation:
    """Record a reservation and its entry in the audit log, in an open transaction."""
    holder, by = short_line(new.holder) or "", short_line(new.made_by) or ""
    new = replace(new, holder=holder, made_by=by, reason=short_line(new.reason))
    sql.insert(connection, "reservation", {name: getattr(new, name) for name in _NAMES})
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
    return new


def end_reservation(connection: "Connection", one: Reservation) -> None:
    """Remove a reservation in an open transaction; the audit log records it."""
    if not sql.delete(connection, "reservation", {"id": one.id}):
        raise ConfigError(
            f"a {one.kind} of board {one.board} cannot be ended by its name: it is {one.damaged}",
            hint="`labctl state damaged` removes it",
        )


def check_force(owner: str, what: str, *, force: bool, reason: str | None) -> None:
    """Raise ConfigError if another user's period is ended without force and a reason."""
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

    if other.damaged is not None:
        return BoardBusy(
            f"board {other.board} counts as kept: a {other.kind} of it is {other.damaged}",
            hint="`labctl boards` shows who has what",
        )
    times = f"from {local_time(other.begins)} to {local_time(other.ends)}"
    why = f": {other.reason}" if other.reason else ""
    words = {
        "hold": f"is held by {other.holder} until {local_time(other.ends)}{why}",
        "reservation": f"is reserved for {other.holder} {times}{why}",
        "maintenance": f"has maintenance {times}{why}",
    }
    return BoardBusy(
        f"board {other.board} {words[other.kind]}",
        hint="`labctl boards` shows who has what; `labctl hold --list` lists all",
    )


def _details(one: Reservation) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "holder": one.holder,
        "begins": one.begins,
        "ends": one.ends,
    }
