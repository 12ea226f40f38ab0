"""Finding the lab that a command works in."""

from pathlib import Path

from labctl.cli.root import Invocation
from labctl.config.lab import (
    Board,
    HdcServerTransport,
    HdcTcpTransport,
    LabFile,
    LocalTransport,
    find_lab,
)
from labctl.files import host_reads
from labctl.hdc import Consent
from labctl.transport import Transport, connect


def lab_of(invocation: Invocation) -> LabFile:
    """The lab named by ``--lab``, else the nearest parent folder's. Raises ConfigError."""
    return find_lab(invocation.lab or Path.cwd())


def runs_folder(invocation: Invocation, run: str) -> Path:
    """Where the lab keeps its runs; no lab is needed for a run named by its path."""
    direct = Path(run)
    with host_reads(run):
        if (direct / "run.json").is_file():
            return direct.resolve().parent
    return lab_of(invocation).root / "runs"


def connect_board(
    board: Board, *, key_file: Path | None = None, consent: Consent | None = None
) -> Transport:
    """The way to a board; the link is opened by the first operation.

    ``key_file`` wins over the lab's; ``consent``: see :func:`labctl.transport.connect`.
    """
    way = board.transport
    match way:
        case HdcTcpTransport():
            if key_file is None and way.key_file is not None:
                key_file = Path(way.key_file)
            return connect(
                way.kind,
                link=way.link,
                address=way.address,
                key_file=key_file,
                consent=consent,
            )
        case HdcServerTransport():
            return connect(
                way.kind, link=way.link, key=way.key, server=way.server, private=way.private
            )
        case LocalTransport():
            return connect(way.kind)
