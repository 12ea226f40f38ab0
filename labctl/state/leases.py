"""Leases of boards in the lab's state: who may use which board, why, and until when.

A lease has an epoch above all earlier ones of its board. It ends when it is released, or when its
holder no longer renews it. Only the database's clock counts for that; a holder stops earlier, by
its own monotonic clock.

The token of a board's last lease stays after its end: by it a host recognises the lease of one of
its dead processes. The hardware of the lease stays too: a board with two names, for instance in the
devices.yaml of two users, is one board here.
"""

import builtins
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from labctl.errors import BoardBusy, LeaseLost
from labctl.state import sql
from labctl.state.events import clock, set_state, this_user
from labctl.state.reservations import Reservation, Reservations, kept, other_keeps
from labctl.state.tables import MOST_WHOLE, insert, read, short_line

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
    #: None: it has ended.
    expires: float | None
    #: Why its row cannot be read; the board then counts as taken. None: it can.
    damaged: str | None = None
    #: Time of :func:`steady_seconds` before which its holder must have renewed it.
    stop_before: float = 0.0

    def is_live(self, now: float) -> bool:
        """Return True if the lease is in force at a moment."""
        return self.damaged is not None or (self.expires is not None and self.expires > now)


def steady_seconds() -> float:
    """Return the time (s) of a clock that is never set; it also counts while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BoardLeases:
    """The leases of a lab's boards."""

    def __init__(self, state: "StateDatabase"):
        self._state = state
        #: A lease that is not renewed ends after this time (s).
        self.seconds = state.lease_seconds

    def list(self) -> list[StateLease]:
        """Return the leases in force, by board. Raises HostError, ConfigError."""
        return [lease for now, lease in self._known(_SHOWN) if lease.is_live(now)]

    def _known(self, columns: str) -> builtins.list[tuple[float, StateLease]]:
        """Return the last lease of each board, by board, with the present time."""
        question = f"SELECT {self._state.now}, {columns} FROM board_lease ORDER BY board"
        return [(now, _lease(row)) for now, *row in self._state.ask(question, {})]

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
        is_dead: Callable[[str], bool] = lambda _token: False,
    ) -> None:
        """Raise BoardBusy if :meth:`acquire` would; change nothing."""
        names = {board}
        for now, lease in self._known(_COLUMNS):
            if lease.board != board and (hardware is None or lease.hardware != hardware):
                continue
            names.add(lease.board)
            if lease.is_live(now) and (lease.board != board or not is_dead(lease.token)):
                raise busy(lease, board)
        for now, other in Reservations(self._state).to_come():
            is_kept = other.board in names and other.is_between(now, now + planned_seconds)
            if is_kept and not other.lets_in(holder or this_user()):
                raise other_keeps(other)

    def refuse_other_name(self, board: str, token: str) -> None:
        """Raise BoardBusy while the lease with this token is on a board of another name.

        The lease file on the board has the token of the lease here, so it shows the name in use.
        """
        for now, lease in self._known(_COLUMNS):
            if lease.token == token and lease.board != board and lease.is_live(now):
                raise busy(lease, board)

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
        is_dead: Callable[[str], bool] = lambda _token: False,
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
        lasting, own = self.seconds if seconds is None else seconds, token or secrets.token_hex(16)

        def take(connection: "Connection") -> StateLease:
            began, now = steady_seconds(), clock(connection, self._state.now)
            before = find(connection, board)
            why = "its holder did not renew it"
            if before is not None and before.is_live(now):
                if before.damaged or (before.token != own and not is_dead(before.token)):
                    raise busy(before)
                why = "its holder died"
            known = hardware or (before.hardware if before else None)
            for other in other_names(connection, board, known):
                if other.is_live(now):
                    raise busy(other, board)
            last = before.epoch if before else 0
            lease = StateLease(
                board=board,
                epoch=keep_epoch if keep_epoch >= max(last, 1) else max(minimum_epoch, last + 1),
                token=own,
                holder=short_line(holder or this_user()) or "",
                host=socket.gethostname(),
                pid=os.getpid(),
                purpose=short_line(purpose) or "",
                job=job,
                hardware=short_line(known),
                since=now,
                expires=now + lasting,
                stop_before=began + _USABLE * lasting,
            )
            ends = now + max(planned_seconds, lasting)
            for reservation in kept(connection, board, now, ends, lease.hardware):
                if not reservation.lets_in(lease.holder):
                    raise other_keeps(reservation)
            if self._state.quotas:
                from labctl.state.quotas import QuotaCheck

                QuotaCheck(sql.asker(connection), now, self._state.quotas).check(
                    board, lease.holder
                )
            if before is not None and before.expires is not None and before.token != own:
                _note_end(connection, before, min(before.expires, now), before.holder, why)
            _replace(connection, lease)
            facts, by, what = {"job": job} if job else None, lease.holder, lease.purpose
            set_state(connection, now, board, "leased", by=by, reason=what, details=facts)
            return lease

        lease = self._state.change(take, backup=False)
        if steady_seconds() < lease.stop_before:
            return lease
        return self._state.change(take, backup=False)  # the database was away before it answered

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

        lasting = self.seconds if seconds is None else seconds
        longer = "CASE WHEN expires > :now + :seconds THEN expires ELSE :now + :seconds END"
        update = text(f"UPDATE board_lease SET expires = {longer} WHERE {_MINE}")

        def renew(connection: "Connection") -> tuple[float, dict[str, StateLease]]:
            began, now = steady_seconds(), clock(connection, self._state.now)
            own = {"now": now, "seconds": lasting}
            if values := [{"board": one.board, "token": one.token, **own} for one in leases]:
                connection.execute(update, values)
            every = map(_lease, connection.execute(text(f"SELECT {_COLUMNS} FROM board_lease")))
            live = {one.board: one for one in every if one.is_live(now)}
            return began + _USABLE * lasting, live

        stop, live = self._state.change(renew, backup=False)
        return [_kept(one, live.get(one.board), stop) for one in leases]

    def raise_epoch(self, lease: StateLease, epoch: int) -> StateLease:
        """Give a lease a greater epoch, because the board's own was above it.

        Raises LeaseLost, HostError.
        """
        from sqlalchemy import text

        def change(connection: "Connection") -> StateLease:
            now = clock(connection, self._state.now)
            values = {"board": lease.board, "token": lease.token, "epoch": epoch, "now": now}
            update = f"UPDATE board_lease SET epoch = :epoch WHERE {_MINE} AND epoch < :epoch"
            connection.execute(text(update), values)
            return self._held(connection, lease, lease.stop_before)

        return self._state.change(change, backup=False)

    def release(self, lease: StateLease) -> None:
        """Free a board; do nothing if the lease has ended. Raises HostError."""
        self._state.together(lease, self._release)

    def _release(self, leases: Sequence[StateLease]) -> None:
        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            for lease in leases:
                found = find(connection, lease.board)
                if found is None or found.token != lease.token or found.damaged:
                    continue
                if found.expires is not None:
                    end(connection, found, now, lease.holder, None)

        self._state.change(change, backup=False)

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
        found, now = find(connection, lease.board), clock(connection, self._state.now)
        kept = _kept(lease, found if found is not None and found.is_live(now) else None, stop)
        if isinstance(kept, LeaseLost):
            raise kept
        return kept


def find(connection: "Connection", board: str) -> StateLease | None:
    """Return the last lease of a board, in an open transaction; None if it never had one."""
    from sqlalchemy import text

    question = text(f"SELECT {_COLUMNS} FROM board_lease WHERE CAST(board AS TEXT) = :board")
    row = connection.execute(question, {"board": board}).first()
    return None if row is None else _lease(row)


def other_names(connection: "Connection", board: str, hardware: str | None) -> Sequence[StateLease]:
    """Return the last leases of the same board under other names, in an open transaction."""
    from sqlalchemy import text

    question = text(
        f"SELECT {_COLUMNS} FROM board_lease WHERE hardware = :hardware AND board <> :board"
    )
    values = {"hardware": hardware, "board": board}
    return [_lease(row) for row in connection.execute(question, values)]


def find_live(connection: "Connection", board: str, now: float) -> StateLease | None:
    """Return the lease in force on a board at a moment, under any of its names."""
    own = find(connection, board)
    known = [] if own is None else [own, *other_names(connection, board, own.hardware)]
    return next((lease for lease in known if lease.is_live(now)), None)


@contextmanager
def leases_kept(connection: "Connection") -> Iterator[None]:
    """Replace all tables inside: no lease of a backup is in force, and no epoch is used twice.

    Living holders keep their boards.
    """
    from sqlalchemy import text

    known = connection.execute(text(f"SELECT {_COLUMNS} FROM board_lease")).mappings().all()
    yield
    connection.execute(text("UPDATE board_lease SET expires = NULL"))
    for row in known:
        lease = _lease(tuple(row.values()))
        restored = find(connection, lease.board)
        if restored is None or lease.damaged or restored.epoch <= lease.epoch:
            # As it is: a damaged one keeps its board.
            delete = text("DELETE FROM board_lease WHERE board = :board")
            connection.execute(delete, dict(row))
            places = ", ".join(f":{name}" for name in _NAMES)
            add = text(f"INSERT INTO board_lease ({_COLUMNS}) VALUES ({places})")
            connection.execute(add, dict(row))


def end(
    connection: "Connection",
    lease: StateLease,
    now: float,
    by: str,
    reason: str | None,
    *,
    epochs: int = 0,
) -> None:
    """End a lease; its epoch is raised by ``epochs``. What can be read of a damaged one stays."""
    epoch = min(lease.epoch + epochs, MOST_WHOLE)
    _replace(connection, replace(lease, epoch=epoch, expires=None))
    _note_end(connection, lease, now, by, reason)


def _note_end(
    connection: "Connection", lease: StateLease, at: float, by: str, reason: str | None
) -> None:
    """Record the end of a lease in the board's history, from which quotas count."""
    had = None if lease.damaged else {"holder": lease.holder, "since": lease.since}
    set_state(connection, at, lease.board, "idle", by=by, reason=reason, details=had)


def busy(lease: StateLease, board: str | None = None) -> BoardBusy:
    """Return the error for a board that another user has, perhaps under another name."""
    from labctl.units import local_time

    if lease.damaged is not None:
        return BoardBusy(
            f"board {lease.board} counts as in use: its lease is {lease.damaged}",
            hint="`labctl boards` shows who has what",
        )
    name = lease.board
    if board not in (None, name):
        name = f"{board}, which is also named {name},"
    return BoardBusy(
        f"board {name} is in use by {lease.holder} since {local_time(lease.since)}:"
        f" {lease.purpose} (process {lease.pid} on {lease.host})",
        hint="`labctl boards` shows who has what",
    )


def lost(lease: StateLease, now: StateLease | None) -> LeaseLost:
    """Return the error for a holder that lost its board; ``now`` is the new lease."""
    after = f": {now.damaged or f'{now.holder} has it now ({now.purpose})'}" if now else ""
    return LeaseLost(f"the lease of board {lease.board} has ended{after}")


def _kept(lease: StateLease, now: StateLease | None, stop: float) -> StateLease | LeaseLost:
    """Return a holder's lease as it is ``now``, if that is still its own."""
    if now is None or now.damaged or now.token != lease.token:
        return lost(lease, now)
    return replace(now, stop_before=stop)


def _lease(row: Sequence[Any]) -> StateLease:
    values, why = read("board_lease", _NAMES, row)
    return StateLease(**values, damaged=why)


def _replace(connection: "Connection", lease: StateLease) -> None:
    from sqlalchemy import text

    values = {name: getattr(lease, name) for name in _NAMES}
    connection.execute(text("DELETE FROM board_lease WHERE board = :board"), values)
    insert(connection, "board_lease", values)
