"""Leases of boards in the lab's state: who may use which board, why, and until when.

A lease has an epoch above all earlier ones of its board. It ends when it is released, or when its
holder no longer renews it. Only the database's clock counts for that; a holder stops earlier, by
its own monotonic clock.

The token of a board's last lease stays after its end: by it a host recognises the lease of one of
its dead processes. The hardware of the lease stays too: a board with two names, for instance in the
devices.yaml of two users, is one board here.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labctl.errors import BoardBusy, LeaseLost, printable_line
from labctl.state.events import clock, set_state, this_user
from labctl.state.reservations import KEPT, Reservation, Reservations, kept, other_keeps

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: The holder of a lease stops after this part of its time, at the latest. The rest is for data on
#: its way to arrive and for differences between clocks.
_USABLE = 0.9

_COLUMNS = "board, epoch, token, holder, host, pid, purpose, job, hardware, since, expires"
_NAMES = _COLUMNS.split(", ")
#: A reader of leases cannot use them.
_SHOWN = _COLUMNS.replace("token", "'' AS token")
_MINE = "board = :board AND token = :token AND expires > :now"


@dataclass(frozen=True)
class StateLease:
    """One board's lease. Times are seconds since 1970 by the database's clock."""

    board: str
    epoch: int
    #: Proof of the holder; empty for everybody else.
    token: str = field(repr=False)
    #: ``USER@HOST`` for whom it is held.
    holder: str
    host: str
    pid: int
    purpose: str
    #: Id of the queue's job for which it is held; None outside the queue.
    job: str | None
    #: Identity of the hardware, whatever the board's name; None if it was never contacted.
    hardware: str | None
    since: float
    expires: float
    #: Time of :func:`steady_seconds` before which its holder must have renewed it.
    stop_before: float = 0.0


def steady_seconds() -> float:
    """Return the time (s) of a clock that is never set; it also counts while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _nobody_died(_token: str) -> bool:
    return False


class BoardLeases:
    """The leases of a lab's boards."""

    def __init__(self, state: "StateDatabase"):
        self._state = state
        #: A lease that is not renewed ends after this time (s).
        self.seconds = state.lease_seconds

    def list(self) -> list[StateLease]:
        """Return the leases in force, by board. Raises HostError, ConfigError."""
        now = self._state.now
        rows = self._state.ask(
            f"SELECT {_SHOWN} FROM board_lease WHERE expires > {now} ORDER BY board", {}
        )
        return [StateLease(*row) for row in rows]

    def get(self, board: str) -> StateLease | None:
        """Return the lease in force on a board; None if it is free."""
        return next((lease for lease in self.list() if lease.board == board), None)

    def refuse_if_taken(
        self,
        board: str,
        *,
        holder: str | None = None,
        planned_seconds: float = 0.0,
        hardware: str | None = None,
        is_dead: Callable[[str], bool] = _nobody_died,
    ) -> None:
        """Raise BoardBusy if :meth:`acquire` would; change nothing."""
        now = self._state.now
        asked = {"board": board, "hardware": hardware or "", "planned": planned_seconds}
        question = (
            f"SELECT {_COLUMNS} FROM board_lease"
            f" WHERE (board = :board OR hardware = :hardware) AND expires > {now}"
        )
        for row in self._state.ask(question, asked):
            if (lease := StateLease(*row)).board != board or not is_dead(lease.token):
                raise busy(lease, board)
        kept = KEPT.replace(":begins", now).replace(":ends", f"{now} + :planned")
        for row in self._state.ask(kept, asked):
            if not (other := Reservation(*row)).lets_in(holder or this_user()):
                raise other_keeps(other)

    def refuse_other_name(self, board: str, token: str) -> None:
        """Raise BoardBusy while the lease with this token is on a board of another name.

        The lease file on the board has the token of the lease here, so it shows the name in use.
        """
        question = (
            f"SELECT {_SHOWN} FROM board_lease"
            f" WHERE token = :token AND board <> :board AND expires > {self._state.now}"
        )
        for row in self._state.ask(question, {"board": board, "token": token}):
            raise busy(StateLease(*row), board)

    def acquire(
        self,
        board: str,
        *,
        purpose: str,
        holder: str | None = None,
        job: str | None = None,
        seconds: float | None = None,
        minimum_epoch: int = 0,
        keep_epoch: int = 0,
        planned_seconds: float = 0.0,
        hardware: str | None = None,
        is_dead: Callable[[str], bool] = _nobody_died,
        token: str | None = None,
    ) -> StateLease:
        """Take a free board for ``seconds``, with an epoch of at least ``minimum_epoch``.

        Args:
            board: its name.
            purpose: description for people.
            holder: ``USER@HOST`` for whom it is taken; by default who runs this process.
            job: id of the queue's job.
            seconds: it ends after this time unless it is renewed; by default the lab's time.
            minimum_epoch: one above the board's own.
            keep_epoch: epoch of a lease on the board that continues although its holder is dead: it
                is kept, unless there was a greater one.
            planned_seconds: maximum duration of the work. It must end before the board is kept for
                another user.
            hardware: identity of the hardware; default: that of the last lease.
            is_dead: returns True if the holder of a token is known to be dead.
            token: a new token of the caller; by default one is made.

        Raises BoardBusy that names the holder, HostError, ConfigError.
        """
        began, seconds = steady_seconds(), self.seconds if seconds is None else seconds
        with self._state.changing(backup=False) as connection:
            now = clock(connection, self._state.now)
            before = find(connection, board)
            why = "its holder did not renew it"
            if before is not None and is_live(before, now):
                if not is_dead(before["token"]):
                    raise busy(StateLease(**before))
                why = "its holder died"
            hardware = hardware or (before["hardware"] if before else None)
            for other in other_names(connection, board, hardware):
                if is_live(other, now):
                    raise busy(StateLease(**other), board)
            last = before["epoch"] if before else 0
            lease = StateLease(
                board=board,
                epoch=keep_epoch if keep_epoch >= max(last, 1) else max(minimum_epoch, last + 1),
                token=token or secrets.token_hex(16),
                holder=printable_line(holder or this_user()),
                host=socket.gethostname(),
                pid=os.getpid(),
                purpose=printable_line(purpose),
                job=job,
                hardware=None if hardware is None else printable_line(hardware),
                since=now,
                expires=now + seconds,
                stop_before=began + _USABLE * seconds,
            )
            ends = now + max(planned_seconds, seconds)
            for reservation in kept(connection, board, now, ends, lease.hardware):
                if not reservation.lets_in(lease.holder):
                    raise other_keeps(reservation)
            if self._state.quotas:
                from labctl.state.quotas import QuotaCheck

                QuotaCheck(connection, now, self._state.quotas).check(board, lease.holder)
            if before is not None and before["expires"] is not None:
                ended = min(before["expires"], now)
                _note_end(connection, before, ended, before["holder"], why)
            _replace(connection, {name: getattr(lease, name) for name in _NAMES})
            facts = {"job": job} if job else None
            set_state(
                connection,
                now,
                board,
                "leased",
                by=lease.holder,
                reason=lease.purpose,
                details=facts,
            )
        return lease

    def renew(self, lease: StateLease, seconds: float | None = None) -> StateLease:
        """Extend a lease to at least ``seconds`` from now; by default the lab's time.

        Raises LeaseLost, HostError.
        """
        (renewed,) = self.renew_all([lease], seconds)
        if isinstance(renewed, LeaseLost):
            raise renewed
        return renewed

    def renew_all(
        self, leases: Sequence[StateLease], seconds: float | None = None
    ) -> Sequence[StateLease | LeaseLost]:
        """Renew several leases in one transaction; return each lease as it is now, or LeaseLost.

        Raises HostError, ConfigError.
        """
        from sqlalchemy import text

        began, seconds = steady_seconds(), self.seconds if seconds is None else seconds
        longer = "CASE WHEN expires > :now + :seconds THEN expires ELSE :now + :seconds END"
        update = text(f"UPDATE board_lease SET expires = {longer} WHERE {_MINE}")
        with self._state.changing(backup=False) as connection:
            now = clock(connection, self._state.now)
            own = {"now": now, "seconds": seconds}
            values = [{"board": one.board, "token": one.token, **own} for one in leases]
            if values:
                connection.execute(update, values)
            live = text(f"SELECT {_COLUMNS} FROM board_lease WHERE expires > :now")
            rows = {row["board"]: dict(row) for row in connection.execute(live, own).mappings()}
        stop = began + _USABLE * seconds
        found = [(one, rows.get(one.board)) for one in leases]
        return [
            StateLease(**row, stop_before=stop)
            if row is not None and row["token"] == one.token
            else lost(one, row)
            for one, row in found
        ]

    def raise_epoch(self, lease: StateLease, epoch: int) -> StateLease:
        """Give a lease a greater epoch, because the board's own was above it.

        Raises LeaseLost, HostError.
        """
        from sqlalchemy import text

        with self._state.changing(backup=False) as connection:
            own = {"board": lease.board, "token": lease.token, "epoch": epoch}
            values = own | {"now": clock(connection, self._state.now)}
            update = f"UPDATE board_lease SET epoch = :epoch WHERE {_MINE} AND epoch < :epoch"
            connection.execute(text(update), values)
            return self._held(connection, lease, lease.stop_before)

    def release(self, lease: StateLease) -> None:
        """Free a board; do nothing if the lease has ended. Raises HostError."""
        self._state.together(lease, self._release)

    def _release(self, leases: Sequence[StateLease]) -> None:
        with self._state.changing(backup=False) as connection:
            now = clock(connection, self._state.now)
            for lease in leases:
                row = find(connection, lease.board)
                if row is not None and row["token"] == lease.token and row["expires"] is not None:
                    end(connection, row, now, lease.holder, None)

    def kept_for_others(self, leases: Sequence[StateLease]) -> Mapping[str, Reservation]:
        """Return, by board, another user's reservation in force now: no trial may start there."""
        holders = {lease.board: lease.holder for lease in leases}
        return {
            board: one
            for board, one in Reservations(self._state).of_leased()
            if board in holders and not one.lets_in(holders[board])
        }

    def _held(self, connection: "Connection", lease: StateLease, stop: float) -> StateLease:
        """Return the lease as it is now. Raises LeaseLost."""
        now = clock(connection, self._state.now)
        row = find(connection, lease.board)
        if row is None or row["token"] != lease.token or not is_live(row, now):
            raise lost(lease, None if row is None or not is_live(row, now) else row)
        return StateLease(**row, stop_before=stop)


def find(connection: "Connection", board: str) -> dict[str, Any] | None:
    """Return the row of a board, in an open transaction; None if it never had a lease."""
    from sqlalchemy import text

    question = text(f"SELECT {_COLUMNS} FROM board_lease WHERE board = :board")
    row = connection.execute(question, {"board": board}).mappings().first()
    return None if row is None else dict(row)


def other_names(
    connection: "Connection", board: str, hardware: str | None
) -> Sequence[dict[str, Any]]:
    """Return the rows of the same board under other names, in an open transaction."""
    from sqlalchemy import text

    question = text(
        f"SELECT {_COLUMNS} FROM board_lease WHERE hardware = :hardware AND board <> :board"
    )
    values = {"hardware": hardware, "board": board}
    return [dict(row) for row in connection.execute(question, values).mappings()]


def find_live(connection: "Connection", board: str, now: float) -> dict[str, Any] | None:
    """Return the lease in force on a board at a moment, under any of its names."""
    own = find(connection, board)
    rows = [] if own is None else [own, *other_names(connection, board, own["hardware"])]
    return next((row for row in rows if is_live(row, now)), None)


def is_live(row: dict[str, Any], now: float) -> bool:
    """Return True if the lease of a row is in force at a moment."""
    return row["expires"] is not None and bool(row["expires"] > now)


@contextmanager
def leases_kept(connection: "Connection") -> Iterator[None]:
    """Replace all tables inside: no lease of a backup is in force, and no epoch is used twice.

    Living holders keep their boards.
    """
    from sqlalchemy import text

    rows = connection.execute(text(f"SELECT {_COLUMNS} FROM board_lease")).mappings()
    known = [dict(row) for row in rows]
    yield
    connection.execute(text("UPDATE board_lease SET expires = NULL"))
    for row in known:
        restored = find(connection, row["board"])
        if restored is None or restored["epoch"] <= row["epoch"]:
            _replace(connection, row)


def end(
    connection: "Connection",
    row: dict[str, Any],
    now: float,
    by: str,
    reason: str | None,
    *,
    epochs: int = 0,
) -> None:
    """End the lease of a row; its epoch is raised by ``epochs``."""
    from sqlalchemy import text

    update = "UPDATE board_lease SET expires = NULL, epoch = epoch + :epochs WHERE board = :board"
    connection.execute(text(update), {"board": row["board"], "epochs": epochs})
    _note_end(connection, row, now, by, reason)


def _note_end(
    connection: "Connection", row: dict[str, Any], at: float, by: str, reason: str | None
) -> None:
    """Record the end of a lease in the board's history, from which quotas count."""
    had = {"holder": row["holder"], "since": row["since"]}
    set_state(connection, at, row["board"], "idle", by=by, reason=reason, details=had)


def busy(lease: StateLease, board: str | None = None) -> BoardBusy:
    """Return the error for a board that another user has, perhaps under another name."""
    from labctl.units import local_time

    name = lease.board
    if board not in (None, name):
        name = f"{board}, which is also named {name},"
    return BoardBusy(
        f"board {name} is in use by {lease.holder} since {local_time(lease.since)}:"
        f" {lease.purpose} (process {lease.pid} on {lease.host})",
        hint="`labctl boards` shows who has what",
    )


def lost(lease: StateLease, now: dict[str, Any] | None) -> LeaseLost:
    """Return the error for a holder that lost its board; ``now`` is the new lease."""
    after = f": {now['holder']} has it now ({now['purpose']})" if now else ""
    return LeaseLost(f"the lease of board {lease.board} has ended{after}")


def _replace(connection: "Connection", values: dict[str, Any]) -> None:
    from sqlalchemy import text

    connection.execute(text("DELETE FROM board_lease WHERE board = :board"), values)
    places = ", ".join(f":{name}" for name in _NAMES)
    connection.execute(text(f"INSERT INTO board_lease ({_COLUMNS}) VALUES ({places})"), values)
