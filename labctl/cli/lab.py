"""The lab and the board of a command."""

from pathlib import Path
from typing import TYPE_CHECKING

from labctl.cli.output import note
from labctl.cli.root import Invocation
from labctl.config.lab import FILE_NAME, Board, Lab, LabFile, find_lab, find_lab_root
from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.folders import state_dir
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.built_in import TRANSPORTS

if TYPE_CHECKING:
    from labctl.runs.record.directory import RunDirectory


def lab_of(invocation: Invocation) -> LabFile:
    """Return the lab of ``--lab``, else of the nearest parent folder. Raises ConfigError."""
    return find_lab(invocation.lab or Path.cwd(), TRANSPORTS)


def lab_and_board(
    invocation: Invocation, named: str | None, target: str | None = None
) -> tuple[LabFile, Board]:
    """Return a board by its name or its HOST:PORT, with its lab; an address needs no devices.yaml.

    A board that was once named by its address can also be named as in its runs. Without a
    devices.yaml, runs are kept in the user's state folder. Raises ConfigError, and for an address
    what :func:`labctl.runs.board.addressed.addressed_board` raises.
    """
    lab = lab_or_own(invocation)
    from labctl.runs.board.addressed import addressed_board, known_address
    from labctl.text_types import split_endpoint

    if named is not None and named not in lab.lab.boards:
        named = known_address(lab.root, named) or named
    if named is None or ":" not in named:
        if not lab.path.is_file():
            raise ConfigError(
                f"no {FILE_NAME} in {Path.cwd()} or a folder above it",
                hint="name the board by its address, --board HOST:PORT; or write a first one:"
                " `labctl init`; or name the lab's folder: `labctl --lab DIR …`",
            )
        board = lab.board(named)
        if target not in (None, board.target):
            raise ConfigError(
                f"--target {target}: board {board.name} is a {board.target}",
                hint="--target is for a board that is named by its address",
            )
        return lab, board
    try:
        split_endpoint(named)
    except ValueError as error:
        raise ConfigError(f"--board {named}: {error}") from None
    lab, board, known_from = addressed_board(named, lab, target)
    note(known_from)
    return lab, board


def lab_or_own(invocation: Invocation) -> LabFile:
    """Return the lab; without a devices.yaml, a lab without boards in the user's state folder."""
    if invocation.lab is None and find_lab_root(_start(invocation)) is None:
        return LabFile(state_dir() / "lab", Lab(boards={}))
    return lab_of(invocation)


def runs_folder(invocation: Invocation, run: str) -> Path:
    """Find the lab's folder of runs; a run named by its path needs no lab.

    A run of another host is fetched from the lab's shared store.
    """
    direct = Path(run)
    with host_reads(run):
        files = ("run.json", "evaluation.json", "serving.json", "events.jsonl")
        if any((direct / name).is_file() for name in files):
            return direct.resolve().parent
    lab = lab_or_own(invocation)
    own = lab.root / "runs"
    if lab.lab.store is not None:
        from labctl.farm.run_archives import fetch_named

        fetch_named(lab, own, run, note)
    return own if own.is_dir() else lab_of(invocation).root / "runs"


def find_runs(invocation: Invocation, name: str) -> "list[RunDirectory]":
    """Return the runs of the baseline of this name, or else the run of this name.

    Raises as :func:`labctl.runs.record.baselines.find_named`.
    """
    from labctl.runs.record.baselines import find_named

    return find_named(_lab_to_read(invocation), runs_folder(invocation, name), name)[1]


def find_only_run(invocation: Invocation, name: str) -> "RunDirectory":
    """Return the run of this name, or of a baseline with one run. Raises as find_runs."""
    from labctl.runs.record.baselines import find_only_run as find

    return find(_lab_to_read(invocation), runs_folder(invocation, name), name)


def _lab_to_read(invocation: Invocation) -> LabFile:
    """Return the lab that has the baselines; an empty lab if ``--lab`` has no devices.yaml."""
    if invocation.lab is not None and find_lab_root(invocation.lab) is None:
        return LabFile(invocation.lab, Lab(boards={}))
    return lab_or_own(invocation)


def connect_board(board: Board, options: OpenOptions | None = None) -> Transport:
    """Return a board's transport; the first operation opens the link. Raises ConfigError."""
    transport: Transport = board.transport.open(options or OpenOptions())
    return transport


def _start(invocation: Invocation) -> Path:
    return invocation.lab or Path.cwd()
