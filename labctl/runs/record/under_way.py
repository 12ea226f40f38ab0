"""The present run of a process on a board, read from the run's directory."""

from pathlib import Path

from labctl.errors import ConfigError
from labctl.runs.record.directory import RunDirectory, run_directories
from labctl.runs.record.journal import Journal

#: Number of the newest runs in which to look for the run that has a board now.
_RUNS = 20


def last_board(directory: RunDirectory) -> str:
    """Return the name of the last board of a run. Raises ConfigError."""
    run = directory.run()
    return Journal(directory.path, run.id).board or run.board


def run_under_way(runs: Path, board: str, pid: int) -> str | None:
    """Return the run of a process of this host on a board, with its trial: ``k of n``.

    Returns None if no such run is planned yet.
    """
    for directory in reversed(run_directories(runs)[-_RUNS:]):
        try:
            if directory.is_held(by=pid) and last_board(directory) == board:
                planned = directory.run().trials_planned
                number = min(len(directory.records()) + 1, planned)
                return f"{directory.path.name}, trial {number} of {planned}"
        except ConfigError:
            continue  # an evaluation, or it was moved away meanwhile
    return None
