"""Finding the lab that a command works in."""

from pathlib import Path

from labctl.cli.root import Invocation
from labctl.config.lab import LabFile, find_lab


def lab_of(invocation: Invocation) -> LabFile:
    """The lab named by ``--lab``, else the nearest parent folder's. Raises ConfigError."""
    return find_lab(invocation.lab or Path.cwd())


def runs_folder(invocation: Invocation, run: str) -> Path:
    """Where the lab keeps its runs; no lab is needed for a run named by its path."""
    direct = Path(run)
    if (direct / "run.json").is_file():
        return direct.resolve().parent
    return lab_of(invocation).root / "runs"
