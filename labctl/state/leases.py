"""Leases of boards in the lab's state: who may use which board, why, and until when.

A lease has a higher epoch than all earlier leases of its board. It ends when it is released, or
when its holder no longer renews it. Only the database's clock decides; a holder stops earlier, by
its own monotonic clock.

Each lease belongs to a job: the job has claimed the board, or begins and ends with the lease, in
the same transactions. :mod:`labctl.state.admission` decides who may have the board.

After a lease has ended, its token stays: a host recognises the lease of its own dead process by it.
The hardware's identity stays too: a board with two names, for example in the devices.yaml of two
users, is one board here.
"""

import builtins
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labctl.database.questions import select
from labctl.errors import BoardBusy, LeaseLost
from labctl.state import sql
from labctl.state.attempts import free_lost
from labctl.state.events import clock, set_state
from labctl.state.lease import (
    NAMES,
    TABLE,
    StateLease,
    busy,
    end,
    find,
    kept,
    lease_of,
    note_end,
    steady_seconds,
    write,
)
from labctl.state.lease_wish import Decision, Wish, left_run
from labctl.state.reservations import Reservation, Reservations
from labctl.state.tables import short_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

#: Columns for readers of leases, who do not get the token.
_SHOWN = tuple("'' AS token" if name == "token" else name for name in NAMES)
#: The holder of a lease stops at the latest after this share of its time. The rest is for data
#: still on the way, and for differences between clocks.
_USABLE = 0.9


class BoardLeases:
    """The leases of a lab's boards."""

    def __init__(self, state: "StateDatabase"):
        self._state = state
        #: Time (s) after which a lease ends unless it is renewed.
        self.seconds = state.lease_seconds

    def list(self) -> list[StateLease]:
        """Return the leases in force, by board. Raises HostError, ConfigError."""
        return [lease for now, lease in self._known(_SHOWN) if lease.is_live(now)]

    def _known(self, names: Sequence[str]) -> builtins.list[tuple[float, StateLease]]:
        """Return the last lease of each board, each with the present time."""
        question = select((self._state.now, *names), TABLE, order="board")
        return [(now, lease_of(row)) for now, *row in self._state.ask(question, {})]

    def get(self, board: str) -> StateLease | None:
        """Return the lease in force on a board; None if it is free."""
        return next((lease for lease in self.list() if lease.board == board), None)

    def refuse_if_taken(self, wish: Wish) -> None:
        """Raise the errors of :meth:`acquire`, except for a left run; change nothing."""

        def check(ask: "Ask") -> None:
            if now := ask(f"SELECT {self._state.now}", {}):
                Decision(ask, float(now[0][0]), self._state, replace(wish, is_idle=True)).check()

        self._state.asking(check)

    def left_run(self, wish: Wish) -> BoardBusy | None:
        """Return an error if a run whose process died may be on the board with the wish's token."""

        def answer(ask: "Ask") -> BoardBusy | None:
            now, lease = ask(f"SELECT {self._state.now}", {}), find(ask, wish.board)
            if not now or lease is None or lease.token != wish.token:
                return None
            return left_run(ask, float(now[0][0]), lease, wish)

        return self._state.asking(answer)

    def refuse_other_name(self, board: str, token: str) -> None:
        """Raise BoardBusy while the lease with this token is on a board with another name.

        The lease file on the board has the token of the lease here, so the token shows the name in
        use.
        """
        for now, lease in self._known(NAMES):
            if lease.token == token and lease.board != board and lease.is_live(now):
                raise busy(lease, board)

    def acquire(
        self,
        board: str,
        *,
        purpose: str,
        seconds: float | None = None,
        minimum_epoch: int = 0,
        keep_epoch: int = 0,
        token: str | None = None,
        **more: Any,
    ) -> StateLease:
        """Take a board as :meth:`take` does; ``more``: fields of the wish."""
        more["token"] = token or secrets.token_hex(16)
        epochs = {"minimum_epoch": minimum_epoch, "keep_epoch": keep_epoch}
        return self.take(Wish(board, purpose, **more), seconds=seconds, **epochs)

    def take(
        self,
        wish: Wish,
        *,
        seconds: float | None = None,
        minimum_epoch: int = 0,
        keep_epoch: int = 0,
    ) -> StateLease:
        """Take a free board for ``seconds``, with an epoch of at least ``minimum_epoch``.

        Args:
            wish: the board, and the purpose.
            seconds: the lease ends after this time unless it is renewed; default: the lab's time.
            minimum_epoch: the board's own epoch plus 1.
            keep_epoch: epoch of a lease on the board that continues although its holder is dead;
                kept unless a higher epoch was used.

        Raises BoardBusy with the holder, BoardOutOfService, LeaseLost if the wish's job was lost,
        HostError, ConfigError.
        """
        lasting, board = self.seconds if seconds is None else seconds, wish.board

        def take(connection: "Connection") -> StateLease:
            began, now = steady_seconds(), clock(connection, self._state.now)
            free_lost(connection, now)
            decision = Decision(sql.asker(connection), now, self._state, wish)
            decision.check()
            before, last = decision.before, decision.before.epoch if decision.before else 0
            if before is not None and before.expires is not None and not decision.is_again:
                is_dead = before.is_live(now)
                why = "its holder died" if is_dead else "its holder did not renew it"
                at, by = min(before.expires, now), before.holder
                note_end(connection, before, at, by, why, is_dead=is_dead)
            job = decision.begin(connection, lasting)
            lease = StateLease(
                board=board,
                epoch=keep_epoch if keep_epoch >= max(last, 1) else max(minimum_epoch, last + 1),
                token=wish.token,
                holder=wish.holder,
                host=job.host,
                pid=os.getpid(),
                kind=wish.kind,
                purpose=short_line(wish.purpose) or "",
                job=job.id,
                hardware=short_line(decision.hardware),
                since=now,
                expires=now + lasting,
                stop_before=began + _USABLE * lasting,
            )
            write(connection, lease)
            facts, by = {"kind": lease.kind, "job": job.id}, lease.holder
            set_state(connection, now, board, "leased", by=by, reason=lease.purpose, details=facts)
            return lease

        lease = self._state.change(take, backup=False)
        if steady_seconds() < lease.stop_before:
            return lease
        return self._state.change(take, backup=False)  # the first answer of the database was lost

    def renew(self, lease: StateLease, seconds: float | None = None) -> StateLease:
        """Extend a lease to at least ``seconds`` from now; by default the lab's time.

        Raises LeaseLost, HostError.
        """
        (renewed,) = self.renew_all([lease], seconds)
        return _still(renewed)

    def renew_all(
        self, leases: Sequence[StateLease], seconds: float | None = None
    ) -> Sequence[StateLease | LeaseLost]:
        """Renew several leases in one transaction; return each lease as it is now, or LeaseLost.

        Raises HostError, ConfigError.
        """
        lasting = self.seconds if seconds is None else seconds

        def renew(connection: "Connection") -> tuple[float, dict[str, StateLease]]:
            from labctl.state.statements import RENEW_JOB_OF_LEASE, RENEW_LEASE

            began, now = steady_seconds(), clock(connection, self._state.now)
            if values := [{**_mine(one, now), "until": now + lasting} for one in leases]:
                connection.execute(RENEW_LEASE, values)
                of_jobs = [one | {"of_job": it.job} for one, it in zip(values, leases, strict=True)]
                connection.execute(RENEW_JOB_OF_LEASE, of_jobs)
            every = map(lease_of, sql.asker(connection)(select(NAMES, TABLE), {}))
            live = {one.board: one for one in every if one.is_live(now)}
            return began + _USABLE * lasting, live

        stop, live = self._state.change(renew, backup=False)
        return [kept(one, live.get(one.board), stop) for one in leases]

    def raise_epoch(self, lease: StateLease, epoch: int) -> StateLease:
        """Give a lease a higher epoch, because the board's own epoch was higher.

        Raises LeaseLost, HostError.
        """

        def change(connection: "Connection") -> StateLease:
            from labctl.state.statements import RAISE_EPOCH

            now = clock(connection, self._state.now)
            connection.execute(RAISE_EPOCH, {**_mine(lease, now), "number": epoch})
            found = find(sql.asker(connection), lease.board)
            live = found if found is not None and found.is_live(now) else None
            return _still(kept(lease, live, lease.stop_before))

        return self._state.change(change, backup=False)

    def release(self, lease: StateLease) -> None:
        """Free a board; do nothing if the lease has ended. Raises HostError."""
        self._state.together(lease, self._release)

    def _release(self, leases: Sequence[StateLease]) -> None:
        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            for lease in leases:
                found = find(sql.asker(connection), lease.board)
                if found is None or found.token != lease.token or found.damaged:
                    continue
                if found.expires is not None:
                    end(connection, found, now, lease.holder, None)

        self._state.change(change, backup=False)

    def kept_for_others(self, leases: Sequence[StateLease]) -> Mapping[str, Reservation]:
        """Return other users' reservations in force now, by board: no trial may start there."""
        holders = {lease.board: lease.holder for lease in leases}
        return {
            board: one
            for board, one in Reservations(self._state).of_leased()
            if board in holders and not one.lets_in(holders[board])
        }


@contextmanager
def leases_kept(connection: "Connection") -> Iterator[None]:
    """Protect leases while the block restores all tables: end the backup's leases, reuse no epoch.

    Living holders keep their boards.
    """
    from labctl.state.sql_tables import UNTYPED
    from labctl.state.statements import END_LEASES

    known = sql.asker(connection)(select(NAMES, TABLE), {})
    yield
    connection.execute(END_LEASES)
    for row in known:
        lease = lease_of(row)
        restored = find(sql.asker(connection), lease.board)
        if restored is None or lease.damaged or restored.epoch <= lease.epoch:
            # Unchanged: a damaged lease keeps its board.
            values = dict(zip(NAMES, row, strict=True))
            sql.delete(connection, TABLE, {"board": values["board"]})
            connection.execute(UNTYPED[TABLE].insert(), values)


def _still(lease: StateLease | LeaseLost) -> StateLease:
    if isinstance(lease, LeaseLost):
        raise lease
    return lease


def _mine(lease: StateLease, now: float) -> dict[str, object]:
    """Return the values that identify a lease, as long as the same holder has it."""
    return {"of_board": lease.board, "of_token": lease.token, "moment": now}
