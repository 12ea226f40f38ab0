"""History of a board in a lab, without contact to it: its last facts, its runs and its noise.

Noise is the difference between repeats inside a run.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import variance

from pydantic import JsonValue

from labctl.board.probe_files import latest_probe
from labctl.errors import ConfigError
from labctl.figures.trials import TOKEN
from labctl.index.filters import Filter
from labctl.index.rows import TrialRow
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import TrialState
from labctl.results.comparability import REVISION
from labctl.runs.planning.needed_repeats import Noise
from labctl.runs.planning.time_limits import trial_seconds
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository

#: Number of a board's last runs to read: older ones say little about the board today.
_RUNS = 50
#: Number of these runs whose repeats are read for its noise.
_RUNS_FOR_NOISE = 30


@dataclass(frozen=True)
class SeenBoard:
    """Facts of a board at a given time; ``source`` names their origin for people."""

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

    A virtual board may have had the name of a real board, so the ``execution`` must be the same.
    """

    model_sha256: str
    comparability: Mapping[str, JsonValue]
    execution: Execution


def last_seen(lab_root: Path, board: str) -> SeenBoard | None:
    """Return a board as last seen; None if it was never probed or used. Raises HostError."""
    seen: list[tuple[datetime, SeenBoard]] = []
    probe = latest_probe(lab_root, board)
    if probe is not None:
        source = f"its probe of {probe.taken:%Y-%m-%d %H:%M}"
        seen.append((probe.taken, SeenBoard(probe.facts, source)))
    repository = RunRepository(lab_root / "runs")
    for run_id in runs_on(repository, board):
        with suppress(ConfigError):  # damaged since it was listed
            run = RunDirectory(lab_root / "runs" / run_id).run()
            seen.append((run.started, SeenBoard(run.facts, f"run {run.id}")))
            break
    return max(seen, key=lambda moment: moment[0])[1] if seen else None


def last_measured(lab_root: Path, board: str, wanted: Mapping[str, Wanted]) -> dict[str, Measured]:
    """Return the last good trial on the board for each wanted trial, by their keys.

    Raises HostError.
    """
    repository = RunRepository(lab_root / "runs")
    ids = tuple(runs_on(repository, board))
    rows = repository.trials(Filter(ids=ids, board=board)) if ids else []
    found: dict[str, Measured] = {}
    for row in (one.trial for one in reversed(rows)):
        keys = [k for k, one in wanted.items() if k not in found and is_like(row, one)]
        if not keys or row.state != TrialState.OK:
            continue
        with suppress(ConfigError):  # damaged, as `labctl report` says
            trial = RunDirectory(lab_root / "runs" / row.run).trial(row.number, row.slug)
            found |= dict.fromkeys(keys, Measured(trial_seconds(trial), row.run))
    return found


def is_like(row: TrialRow, wanted: Wanted, *, without: Collection[str] = ()) -> bool:
    """Return True if a trial has the same model bytes, execution and key.

    Only the wanted parts of the key count: before a trial some parts are unknown. Parts in
    ``without`` may differ.
    """
    return (
        row.model_sha256 == wanted.model_sha256
        and row.execution == wanted.execution
        and all(
            row.comparability.get(key) == value
            for key, value in wanted.comparability.items()
            if key not in without
        )
    )


def runs_on(repository: RunRepository, board: str, limit: int = _RUNS) -> list[str]:
    """Return the ids of the last runs that began on a board of this lab, newest first."""
    return [
        one.run.id
        for one in repository.query(Filter(board=board, kind="timing"), limit=limit)
        # Another lab's board of this name is another board.
        if one.run.board == board and one.run.imported_from is None
    ]


def known_noise(
    repository: RunRepository, board: str, wanted: Mapping[str, Wanted]
) -> dict[str, Noise]:
    """Return the noise of trials like each wanted trial, by their keys, without unknown noise.

    Noise is from the pooled variance of the logarithm of token times inside runs. The source's
    revision may differ. Raises HostError.
    """
    ids = tuple(runs_on(repository, board, _RUNS_FOR_NOISE))
    trials = repository.trials(Filter(ids=ids, board=board)) if ids else []
    found = {}
    for key, one in wanted.items():
        runs: dict[tuple[str, str], list[float]] = {}
        for row in (indexed.trial for indexed in trials):
            good = row.state == TrialState.OK and row.repeat > 0
            time = row.figures[TOKEN.column]
            if good and time and is_like(row, one, without=REVISION):
                runs.setdefault((row.run, row.variant), []).append(math.log(time))
        repeated = [logs for logs in runs.values() if len(logs) > 1]
        if repeated:
            squares = sum(variance(logs) * (len(logs) - 1) for logs in repeated)
            count = sum(map(len, repeated))
            sigma = math.sqrt(squares / (count - len(repeated)))
            found[key] = Noise(sigma, count, len(repeated))
    return found
