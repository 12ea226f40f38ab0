"""Holding boards for people, and releasing them.

A hold keeps a board for a user from now on, without a running process. The holder's own runs take
leases under it.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from labctl.errors import printable_line
from labctl.state import sql
from labctl.state.audit import add_audit, checked_reason
from labctl.state.events import clock
from labctl.state.lease import busy, end, find, find_live
from labctl.state.lease_wish import left_run
from labctl.state.quotas import QuotaCheck, check_reserved
from labctl.state.reservations import (
    Reservation,
    add_reservation,
    check_force,
    check_length,
    end_reservation,
    is_same_user,
    kept,
    other_keeps,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: Default duration (s) of a hold.
HOLD_SECONDS = 8 * 3600.0


def ended_document(ended: Mapping[str, Sequence[str]]) -> list[dict[str, object]]:
    """Return as JSON the ends that :meth:`Holds.release` made on each board."""
    return [{"board": board, "ended": what} for board, what in ended.items()]


class Holds:
    """The holds of a lab's boards."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def hold(
        self,
        board: str,
        *,
        by: str,
        via: str = "cli",
        reason: str | None = None,
        seconds: float = HOLD_SECONDS,
    ) -> Reservation:
        """Keep a board for ``by`` (``USER@HOST``) from now on; replace their earlier hold.

        Raises BoardBusy if another user uses or keeps the board in that time, or the user would
        have too many boards; ConfigError for an invalid time or reason; HostError.
        """
        check_length(seconds)
        why = checked_reason(reason)

        def change(connection: "Connection") -> Reservation:
            now = clock(connection, self._state.now)
            lease = find_live(sql.asker(connection), board, now)
            if lease is not None and (lease.damaged or not is_same_user(lease.holder, by)):
                raise busy(lease, board)
            quotas, ends = self._state.quotas, now + seconds
            QuotaCheck(sql.asker(connection), now, quotas).check(board, by)
            check_reserved(connection, board, by, now, ends, quotas=quotas)
            for other in kept(connection, board, now, ends):
                if not other.lets_in(by):
                    raise other_keeps(other)
                if other.kind == "hold":
                    end_reservation(connection, other)
            new = Reservation(secrets.token_hex(4), board, "hold", by, now, ends, why, by, now)
            return add_reservation(connection, now, new, via)

        return self._state.change(change)

    def release(
        self,
        board: str,
        *,
        by: str,
        via: str = "cli",
        force: bool = False,
        reason: str | None = None,
    ) -> list[str]:
        """End a hold on a board; with ``force`` also another user's hold and the current lease.

        Ending a lease raises the board's epoch, so that its holder is refused everywhere. Returns a
        description of each ended hold and lease; empty if the board was free. Raises ConfigError if
        force or a reason is missing, HostError.
        """
        why = checked_reason(reason)

        def change(connection: "Connection") -> list[str]:
            now = clock(connection, self._state.now)
            lease = find_live(sql.asker(connection), board, now)
            soon = math.nextafter(now, math.inf)
            holds = [
                one
                for one in kept(connection, board, now, soon)
                if one.kind == "hold" or (force and one.damaged and one.kind != "job")
            ]
            owners = [one.holder for one in holds if not is_same_user(one.holder, by)]
            if lease is None and force and (last := find(sql.asker(connection), board)):
                lease = last if left_run(sql.asker(connection), now, last) else None
            if lease is not None and (force or not holds):
                owners.append(lease.holder)
            if owners:
                check_force(owners[-1], f"board {board}", force=force, reason=why)
            for one in holds:
                end_reservation(connection, one)
            ended = [f"the hold of {one.holder}" for one in holds]
            if lease is not None and force:
                ended.append(f"the lease of {lease.holder}: {lease.purpose}")
                end(connection, lease, now, printable_line(by), why, epochs=1)
            if ended:
                action = "release --force" if force else "release"
                details = {"ended": ended}
                add_audit(
                    connection,
                    now,
                    by,
                    via,
                    action,
                    subject=board,
                    reason=why,
                    details=details,
                )
            return ended

        return self._state.change(change)
