"""Who uses a board: controllers that live are respected, those of this host are known again."""

from collections.abc import Callable
from pathlib import Path

from labctl.board import ALIVE_SECONDS, BoardAgent, Lease, LeaseStatus
from labctl.board.running_jobs import running_jobs
from labctl.config.lab import Board
from labctl.errors import BoardBusy
from labctl.files import state_dir
from labctl.transport import Transport


def refuse_conflict(
    board: Board,
    transport: Transport,
    before: LeaseStatus,
    agent: Callable[[], BoardAgent | None],
    *,
    orphans: bool = False,
) -> None:
    """Raise BoardBusy rather than drive out a controller that lives, or whose job runs.

    ``orphans``: also a job whose controller was of this host, and died.
    """
    lease, own = before.lease, is_own(before.lease)
    if own and not orphans:
        return  # whoever had it is dead: its lock is ours
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
    """The tokens of all leases that this host took, of whatever board and by whatever way."""
    return state_dir() / "leases"


def is_own(lease: Lease) -> bool:
    """Tell whether this host took a lease."""
    try:
        return bool(lease.token) and lease.token in own_leases().read_text().split()
    except FileNotFoundError:
        return False
