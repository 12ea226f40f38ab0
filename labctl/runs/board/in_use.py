"""Who uses a board, as others are told: the user, the run, and how far it is."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from labctl.config.lab import Board, LabFile
from labctl.errors import BoardBusy
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.record.under_way import run_under_way
from labctl.state import lab_state, this_user
from labctl.state.tables import short_line
from labctl.units import local_time

#: Far above what :meth:`BoardUser.write` writes.
_MOST_BYTES = 16_000


@dataclass(frozen=True)
class BoardUser:
    """A process of this host that has a board, as the file of its lock tells others.

    ``board`` is the board's name in the lab whose folder is ``lab``; ``since`` is in s since 1970.
    """

    pid: int
    holder: str
    purpose: str
    since: float
    board: str
    lab: str

    @classmethod
    def this_process(cls, lab: LabFile, board: Board, use: BoardUse | None) -> "BoardUser":
        """Return this process; without a ``use`` it brings the board back."""
        holder, purpose = (use.holder, use.purpose) if use else (None, "recovery")
        root = str(lab.root.absolute())
        return cls(os.getpid(), holder or this_user(), purpose, time.time(), board.name, root)

    def write(self, file: int) -> None:
        """Write it to a lock's file; a full disk takes nobody's lock away."""
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.write(file, json.dumps(asdict(self)).encode())


def locked_by_another(lock: Path, board: str) -> BoardBusy:
    """Return the error for a board whose lock another process of this host has."""
    try:
        with lock.open("rb") as file:
            user = BoardUser(**json.loads(file.read(_MOST_BYTES)))
        run = run_under_way(Path(user.lab) / "runs", user.board, user.pid)
        return _in_use(board, user.holder, user.since, user.purpose, run)
    except (OSError, ValueError, TypeError):  # it was locked a moment ago
        return BoardBusy(f"board {board} is in use by another labctl of this host")


@contextmanager
def naming_run(lab: LabFile, board: str) -> Iterator[None]:
    """Name the run too, where the lab's state raises BoardBusy because another has the board.

    How far a run of another host is, its host alone knows.
    """
    try:
        yield
    except BoardBusy as error:
        state = lab_state(lab)
        lease = state.leases.get(board)
        if lease is None or lease.damaged:
            raise
        if lease.host == socket.gethostname():
            run = run_under_way(lab.root / "runs", board, lease.pid)
            if run is None:
                raise
        else:
            job = state.jobs.get(lease.job) if lease.job else None
            run = job.run if job else None
        what = f"{lease.purpose} on {lease.host}"
        named = _in_use(board, lease.holder, lease.since, what, run)
        named.hint = error.hint
        raise named from error


def _in_use(board: str, holder: str, since: float, purpose: str, run: str | None) -> BoardBusy:
    told = f"{holder} since {local_time(since)}: {purpose}" + (f" ({run})" if run else "")
    return BoardBusy(f"board {board} is in use by {short_line(told)}")
