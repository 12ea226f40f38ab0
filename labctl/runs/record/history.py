"""History of a board in a lab, without contact to it: its probes and runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from pydantic import JsonValue

from labctl.board.probe_files import latest_probe
from labctl.errors import ConfigError
from labctl.records import BoardFacts, Execution, RunRecord, TrialState
from labctl.results.comparability import is_like
from labctl.runs.planning.time_limits import trial_seconds
from labctl.runs.record.directory import RunDirectory, run_directories

#: So many of the last runs are looked through: older ones say little of how a board is today.
_RUNS = 50


@dataclass(frozen=True)
class SeenBoard:
    """Facts of a board at a given time; ``source`` says for people where they come from."""

    facts: BoardFacts
    source: str


@dataclass(frozen=True)
class Measured:
    """Time of the last good trial, without the wait for the board."""

    seconds: float
    run: str


@dataclass(frozen=True)
class Wanted:
    """Conditions for a trial of the history: the same model bytes, and the same ``comparability``.

    A virtual board may have had the name of a real one: it ran in the same ``execution``.
    """

    model_sha256: str
    comparability: Mapping[str, JsonValue]
    execution: Execution


def last_seen(lab_root: Path, board: str) -> SeenBoard | None:
    """Return a board as last seen; None if it was never probed or used."""
    seen: list[tuple[datetime, SeenBoard]] = []
    probe = latest_probe(lab_root, board)
    if probe is not None:
        source = f"its probe of {probe.taken:%Y-%m-%d %H:%M}"
        seen.append((probe.taken, SeenBoard(probe.facts, source)))
    for _, run in islice(_runs_on(lab_root, board), 1):
        source = f"run {run.id}"
        seen.append((run.started, SeenBoard(run.facts, source)))
    return max(seen, key=lambda moment: moment[0])[1] if seen else None


def last_measured(lab_root: Path, board: str, wanted: Mapping[str, Wanted]) -> dict[str, Measured]:
    """Return the last good trial on the board for each wanted one, by their keys."""
    found: dict[str, Measured] = {}
    for directory, run in _runs_on(lab_root, board):
        models = {model.sha256 for model in run.models}
        missing = {k: w for k, w in wanted.items() if k not in found and w.model_sha256 in models}
        if not missing:
            continue
        try:
            trials = directory.trials()
        except ConfigError:
            continue  # damaged, as `labctl report` says
        for trial in reversed(trials):
            if trial.state is not TrialState.OK or trial.board != board:
                continue
            for key, one in missing.items():
                if key not in found and is_like(trial, **vars(one)):
                    found[key] = Measured(trial_seconds(trial), run.id)
    return found


def _runs_on(lab_root: Path, board: str) -> Iterator[tuple[RunDirectory, RunRecord]]:
    """Yield the last runs that began on a board, newest first."""
    for directory in islice(reversed(run_directories(lab_root / "runs")), _RUNS):
        try:
            run = directory.run()
        except ConfigError:
            continue
        # Another lab's board of this name is another board.
        if run.board == board and not directory.is_imported:
            yield directory, run
