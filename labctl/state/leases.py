"""Leases of boards in the lab's state: who may use which board, why, and until when.

A lease has an epoch that is above all earlier ones of its board. It ends when it is released, and
by itself when its holder no longer renews it. Only the database's clock says when that is; a holder
stops before, by its own monotonic clock.
"""

import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labctl.errors import BoardBusy, LeaseLost
from labctl.files import user_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.state import LabState

#: A lease that is not renewed ends after these seconds.
LEASE_SECONDS = 60.0
#: ``run``: a program measures there. ``hold``: a person keeps the board.
LeaseKind = Literal["run", "hold"]

_COLUMNS = "board, epoch, token, holder, host, pid, kind, purpose, job, since, expires"


@dataclass(frozen=True)
class StateLease:
    """One board's lease. Times are seconds since 1970 by the database's clock."""

    board: str
    epoch: int
    token: str
    #: ``USER@HOST``
    holder: str
    host: str
    pid: int | None
    kind: LeaseKind
    purpose: str
    #: Id of the queue's job for which it is held; None outside the queue.
    job: str | None
    since: float
    expires: float
    #: This process's monotonic clock in s, before which its holder must have renewed it.
    stop_before: float = 0.0


class BoardLeases:
    """The leases of a lab's boards."""

    def __init__(self, state: "LabState"):
        self._state = state

    def list(self) -> list[StateLease]:
        """Return the leases that hold now, by board. Raises HostError, ConfigError."""
        now = self._state.now
        rows = self._state.ask(
            f"SELECT {_COLUMNS} FROM board_lease WHERE token IS NOT NULL AND expires > {now}"
            " ORDER BY board",
            {},
        )
        return [StateLease(*row) for row in rows]

    def get(self, board: str) -> StateLease | None:
        """Return the lease that holds a board now; None if it is free."""
        return next((lease for lease in self.list() if lease.board == board), None)

    def acquire(
        self,
        board: str,
        *,
        purpose: str,
        kind: LeaseKind = "run",
        job: str | None = None,
        seconds: float = LEASE_SECONDS,
        minimum_epoch: int = 0,
    ) -> StateLease:
        """Take a free board for ``seconds``, with an epoch of at least ``minimum_epoch``.

        Raises BoardBusy that names the holder, HostError, ConfigError.
        """
        began = time.monotonic()
        values: dict[str, Any] = {
            "board": board,
            "token": secrets.token_hex(16),
            "holder": f"{user_name()}@{socket.gethostname()}",
            "host": socket.gethostname(),
            "pid": os.getpid() if kind == "run" else None,
            "kind": kind,
            "purpose": purpose,
            "job": job,
        }
        with self._state.changing() as connection:
            now = self._now(connection)
            before = _one(connection, "SELECT * FROM board_lease WHERE board = :b", {"b": board})
            if before is not None and before["token"] is not None and before["expires"] > now:
                raise _busy(StateLease(**before))
            epoch = max(minimum_epoch, (before["epoch"] if before else 0) + 1)
            values |= {"epoch": epoch, "since": now, "expires": now + seconds}
            _run(connection, "DELETE FROM board_lease WHERE board = :b", {"b": board})
            places = ", ".join(f":{name}" for name in _COLUMNS.split(", "))
            _run(connection, f"INSERT INTO board_lease ({_COLUMNS}) VALUES ({places})", values)
        return StateLease(**values, stop_before=began + seconds)

    def renew(self, lease: StateLease, seconds: float = LEASE_SECONDS) -> StateLease:
        """Hold a board for another ``seconds`` from now. Raises LeaseLost, HostError."""
        return self._change(lease, "expires = :now + :seconds", seconds)

    def raise_epoch(self, lease: StateLease, epoch: int) -> StateLease:
        """Give a lease a greater epoch: the board's own was above it. Raises LeaseLost."""
        return self._change(lease, "epoch = :epoch", 0.0, epoch)

    def release(self, lease: StateLease) -> None:
        """Free a board; nothing if the lease ended before. Raises HostError."""
        with self._state.changing() as connection:
            _run(
                connection,
                "UPDATE board_lease SET token = NULL, expires = NULL"
                " WHERE board = :board AND token = :token",
                {"board": lease.board, "token": lease.token},
            )

    def _change(
        self, lease: StateLease, what: str, seconds: float, epoch: int | None = None
    ) -> StateLease:
        began = time.monotonic()
        with self._state.changing() as connection:
            values = {
                "board": lease.board,
                "token": lease.token,
                "now": self._now(connection),
                "seconds": seconds,
                "epoch": epoch,
            }
            used = {name: values[name] for name in values if f":{name}" in what}
            same = {name: values[name] for name in ("board", "token", "now")}
            _run(
                connection,
                f"UPDATE board_lease SET {what}"
                " WHERE board = :board AND token = :token AND expires > :now",
                {**same, **used},
            )
            row = _one(
                connection,
                "SELECT * FROM board_lease WHERE board = :board AND token = :token"
                " AND expires > :now",
                same,
            )
        if row is None:
            raise LeaseLost(f"the lease of board {lease.board} has ended")
        stop = began + seconds if seconds else lease.stop_before
        return StateLease(**row, stop_before=stop)

    def _now(self, connection: "Connection") -> float:
        row = _one(connection, f"SELECT {self._state.now} AS now", {})
        assert row is not None
        return float(row["now"])


def _busy(lease: StateLease) -> BoardBusy:
    return BoardBusy(
        f"board {lease.board} is in use by {lease.holder}: {lease.purpose}",
        hint="`labctl boards` shows who holds what, and until when",
    )


def _one(
    connection: "Connection", question: str, values: Mapping[str, object]
) -> "dict[str, Any] | None":
    from sqlalchemy import text

    row = connection.execute(text(question), values).mappings().first()
    return None if row is None else dict(row)


def _run(connection: "Connection", statement: str, values: Mapping[str, object]) -> None:
    from sqlalchemy import text

    connection.execute(text(statement), values)
