"""Use of a board by others: by another labctl of this host, or by one of another host.

Controllers of other hosts are not driven out while they live; those of this host are known again by
the tokens of their leases.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.board import (
    ALIVE_SECONDS,
    BoardAgent,
    Lease,
    LeaseStatus,
)
from labctl.board.running_jobs import running_jobs
from labctl.config.lab import Board
from labctl.errors import BoardBusy, HostTimeout
from labctl.files import locked, state_dir
from labctl.transport import Transport


def board_state(way: str, board: Board) -> Path:
    """Return this host's folder for a workdir, by its address or by the boot that it is on."""
    key = hashlib.sha256(f"{way}\n{board.workdir}".encode()).hexdigest()[:16]
    return state_dir() / "boards" / key


@contextmanager
def lock_board(board: Board, lock: Path) -> Iterator[None]:
    """Keep other processes of this host out of a board. Raises BoardBusy."""
    held = False
    try:
        with locked(lock, timeout=0, holder="another labctl"):
            held = True
            yield
    except HostTimeout as error:
        if held:
            raise
        raise BoardBusy(
            f"board {board.name} is in use: {error.message}", hint=error.hint
        ) from error


def refuse_conflict(
    board: Board,
    transport: Transport,
    before: LeaseStatus,
    agent: Callable[[], BoardAgent | None],
    *,
    own: bool,
    orphans: bool = False,
) -> None:
    """Raise BoardBusy rather than drive out a controller that is alive, or whose job runs.

    ``own``: it is known to be over, since this host or the lab's state gave the lease. ``orphans``:
    also a job whose controller was one of these, and died.
    """
    lease = before.lease
    if own and not orphans:
        return  # its holder is dead: the lock is ours
    if before.alive and not own:
        why = f"it gave a sign of life {before.silent_seconds:.0f} s ago"
    elif (asked := agent()) and running_jobs(transport, board.workdir, asked).jobs:
        why = "a job runs there"
    else:
        return
    raise BoardBusy(
        f"board {board.name} is in use by {lease.lab} on {lease.host} since {lease.utc}: {why}",
        hint="wait for its end; a controller that died holds a board for"
        f" {ALIVE_SECONDS / 60:.0f} minutes, and as long as its job runs",
    )


def own_leases() -> Path:
    """Return the file with the tokens of all leases that this host took, of whatever board."""
    return state_dir() / "leases"


def is_own(lease: Lease) -> bool:
    """Tell whether this host took a lease."""
    return is_own_token(lease.token)


def is_own_token(token: str) -> bool:
    """Tell whether this host took the lease with a token."""
    try:
        return bool(token) and token in own_leases().read_text().split()
    except FileNotFoundError:
        return False
