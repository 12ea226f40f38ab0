"""Who uses a board, as others are told: the user, the run, and how far it is."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.config.lab import Board, LabFile
from labctl.errors import BoardBusy
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.record.under_way import run_under_way
from labctl.state import lab_state, this_user
from labctl.state.tables import short_line
from labctl.units import local_time

#: Far above the length of a note.
_MOST_BYTES = 16_000


def note_of_use(lab: LabFile, board: Board, use: BoardUse | None) -> str:
    """Return the note by which :func:`locked_by_another` knows that this process uses a board.

    Without a ``use`` the process brings the board back.
    """
    holder, purpose = (use.holder, use.purpose) if use else (None, "recovery")
    note = {"holder": holder or this_user(), "purpose": purpose, "since": time.time()}
    run = {"runs": str(lab.root.absolute() / "runs"), "board": board.name, "pid": os.getpid()}
    return json.dumps(note | run)


def locked_by_another(lock: Path, board: str) -> BoardBusy:
    """Return the error for a board whose lock another process of this host has."""
    try:
        with lock.open("rb") as file:
            told = json.loads(file.read(_MOST_BYTES))
        run = run_under_way(Path(told["runs"]), told["board"], told["pid"])
        return _in_use(board, told["holder"], told["since"], told["purpose"], run)
    except (OSError, ValueError, TypeError, KeyError):  # it was locked a moment ago
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
