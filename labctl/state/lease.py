"""One lease of a board in the lab's state: its row, its end, and the errors that name it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from labctl.database.questions import select
from labctl.errors import BoardBusy, LeaseLost
from labctl.state import sql
from labctl.state.events import set_state
from labctl.state.job import end as end_job
from labctl.state.job import jobs_of
from labctl.state.tables import COLUMNS, MOST_WHOLE, read
from labctl.state.uses import UseKind

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask

#: Table with the last lease of each board, and its columns.
TABLE = "board_lease"
NAMES = tuple(COLUMNS[TABLE])
_OF_BOARD = select(NAMES, TABLE, "CAST(board AS TEXT) = :board")
_OTHER_NAMES = select(NAMES, TABLE, "hardware = :hardware AND board <> :board")


@dataclass(frozen=True)
class StateLease:
    """The lease of one board. Times are seconds since 1970 by the database's clock."""

    board: str
    epoch: int
    #: Proof of the holder; empty for all other readers.
    token: str = field(repr=False)
    #: ``USER@HOST`` that holds it.
    holder: str
    host: str
    pid: int
    kind: UseKind
    purpose: str
    #: Id of the job for which it is held; the job may be gone.
    job: str | None
    #: Identity of the hardware, whatever the board's name; None if it was never contacted.
    hardware: str | None
    since: float
    #: None if it has ended.
    expires: float | None
    #: Why its row cannot be read; the board then counts as taken. None if it can.
    damaged: str | None = None
    #: Time of :func:`steady_seconds` before which its holder must have renewed it.
    stop_before: float = 0.0

    def is_live(self, now: float) -> bool:
        """Return True if the lease is in force at a moment."""
        return self.damaged is not None or (self.expires is not None and self.expires > now)


def steady_seconds() -> float:
    """Return the time (s) of a clock that is never set, and also runs while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def find(ask: "Ask", board: str) -> StateLease | None:
    """Return the last lease of a board; None if the board was never leased."""
    rows = ask(_OF_BOARD, {"board": board})
    return lease_of(rows[0]) if rows else None


def other_names(ask: "Ask", board: str, hardware: str | None) -> Sequence[StateLease]:
    """Return the last leases of the same board under its other names."""
    return [*map(lease_of, ask(_OTHER_NAMES, {"hardware": hardware, "board": board}))]


def find_live(ask: "Ask", board: str, now: float) -> StateLease | None:
    """Return the lease in force on a board at a moment, under any of its names."""
    own = find(ask, board)
    known = [] if own is None else [own, *other_names(ask, board, own.hardware)]
    return next((lease for lease in known if lease.is_live(now)), None)


def end(
    connection: "Connection",
    lease: StateLease,
    now: float,
    by: str,
    reason: str | None,
    *,
    epochs: int = 0,
) -> None:
    """End a lease; raise its epoch by ``epochs``. Readable values of a damaged lease stay."""
    epoch = min(lease.epoch + epochs, MOST_WHOLE)
    write(connection, replace(lease, epoch=epoch, expires=None))
    note_end(connection, lease, now, by, reason)


def note_end(
    connection: "Connection",
    lease: StateLease,
    at: float,
    by: str,
    reason: str | None,
    *,
    is_dead: bool = False,
) -> None:
    """Record the end of a lease in the board's history, from which quotas count.

    The job of the lease ends with it. With ``is_dead``, so does the job of the dead process.
    """
    runners = ("lease", "process") if is_dead else ("lease",)
    job = None if lease.job is None else jobs_of(sql.asker(connection), {lease.job}).get(lease.job)
    if job is not None and job.state == "running" and job.runner in runners:
        end_job(connection, job, at, reason, state="done" if reason is None else "cancelled")
    had = {"holder": lease.holder, "since": lease.since, "kind": lease.kind}
    details = None if lease.damaged else had
    set_state(connection, at, lease.board, "idle", by=by, reason=reason, details=details)


def busy(lease: StateLease, board: str | None = None) -> BoardBusy:
    """Return the error for a board that another user uses, perhaps under another name."""
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


def kept(lease: StateLease, now: StateLease | None, stop: float) -> StateLease | LeaseLost:
    """Return a holder's lease as it is ``now``, or LeaseLost if another holder has the board."""
    if now is None or now.damaged or now.token != lease.token:
        after = f": {now.damaged or f'{now.holder} has it now ({now.purpose})'}" if now else ""
        return LeaseLost(f"the lease of board {lease.board} has ended{after}")
    return replace(now, stop_before=stop)


def lease_of(row: Sequence[Any]) -> StateLease:
    """Return the lease of a row with the columns ``NAMES``, which may be damaged."""
    values, why = read(TABLE, NAMES, row)
    return StateLease(**values, damaged=why)


def write(connection: "Connection", lease: StateLease) -> None:
    """Make a lease the last one of its board."""
    sql.delete(connection, TABLE, {"board": lease.board})
    sql.insert(connection, TABLE, {name: getattr(lease, name) for name in NAMES})
