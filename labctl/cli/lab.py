"""Finding the lab that a command works in."""

from pathlib import Path

from labctl.cli.root import Invocation
from labctl.config.lab import Board, LabFile, find_lab
from labctl.files import host_reads
from labctl.transport import OpenOptions, Transport
from labctl.transport.registry import TRANSPORTS


def lab_of(invocation: Invocation) -> LabFile:
    """Return the lab named by ``--lab``, else the nearest parent folder's. Raises ConfigError."""
    return find_lab(invocation.lab or Path.cwd(), TRANSPORTS)


def runs_folder(invocation: Invocation, run: str) -> Path:
    """Folder of the lab's runs; no lab is needed for a run named by its path."""
    direct = Path(run)
    with host_reads(run):
        if (direct / "run.json").is_file() or (direct / "events.jsonl").is_file():
            return direct.resolve().parent
    return lab_of(invocation).root / "runs"


def connect_board(board: Board, options: OpenOptions | None = None) -> Transport:
    """Return a board's transport; the first operation opens the link. Raises ConfigError."""
    transport: Transport = board.transport.open(options or OpenOptions())
    return transport
