"""The present run of a process on a board, read from the run's directory."""

from collections.abc import Iterator
from pathlib import Path

from labctl.errors import ConfigError
from labctl.records.events import Answers, AnyEvent, Evaluation, Load
from labctl.runs.record.directory import RunDirectory, run_directories
from labctl.runs.record.event_log import EVENTS, EventReader
from labctl.runs.record.journal import Journal

#: Number of the newest runs in which to look for the run that has a board now.
_RUNS = 20


def last_board(directory: RunDirectory) -> str:
    """Return the name of the last board of a run. Raises ConfigError."""
    run = directory.run()
    return Journal(directory.path, run.id).board or run.board


def run_under_way(runs: Path, board: str, pid: int) -> str | None:
    """Return the run of a process of this host on a board, with its progress.

    Returns None if no such run is planned yet.
    """
    for directory in reversed(run_directories(runs)[-_RUNS:]):
        try:
            if directory.is_held(by=pid) and (progress := _progress(directory, board)):
                return f"{directory.path.name}, {progress}"
        except ConfigError:
            continue  # it was moved away meanwhile, or is damaged
    return None


def _progress(directory: RunDirectory, board: str) -> str | None:
    """Return how far a run on this board is; None if it uses another board."""
    if directory.is_evaluation:
        asked = directory.evaluation()
        if board not in {one.board for one in asked.endpoints}:
            return None
        done = (one.done for one in _events(directory) if isinstance(one, Evaluation | Answers))
        return f"{max(done, default=0)} of {asked.planned} answers"
    if directory.is_load_test:
        if board != directory.serving().endpoint.board:
            return None
        loads = [one.load for one in _events(directory) if isinstance(one, Load)]
        return f"load {loads[-1]}" if loads else "before the first load"
    if board != last_board(directory):
        return None
    planned = directory.run().trials_planned
    return f"trial {min(len(directory.records()) + 1, planned)} of {planned}"


def _events(directory: RunDirectory) -> Iterator[AnyEvent]:
    return EventReader(directory.path / EVENTS).read()
