"""Noise of a board: how much repeats inside its runs differ, from the repository."""

import math
from collections.abc import Mapping
from statistics import variance

from labctl.index import Filter
from labctl.records import TrialState
from labctl.results.comparability import REVISION
from labctl.runs.planning.repeats import Noise
from labctl.runs.record.history import Wanted, is_like, runs_on
from labctl.runs.record.repository import RunRepository

#: Number of a board's last runs to read.
_RUNS = 30


def known_noise(
    repository: RunRepository, board: str, wanted: Mapping[str, Wanted]
) -> dict[str, Noise]:
    """Return the noise of trials like each wanted one, by their keys; what is not known is absent.

    The variance of the logarithm of token times inside runs, pooled. The source's revision may
    differ. Raises HostError.
    """
    ids = tuple(runs_on(repository, board, _RUNS))
    trials = repository.trials(Filter(ids=ids, board=board)) if ids else []
    found = {}
    for key, one in wanted.items():
        runs: dict[tuple[str, str], list[float]] = {}
        for row in (indexed.trial for indexed in trials):
            good = row.state == TrialState.OK and row.repeat > 0
            if good and row.mean_ns and is_like(row, one, without=REVISION):
                runs.setdefault((row.run, row.variant), []).append(math.log(row.mean_ns))
        repeated = [logs for logs in runs.values() if len(logs) > 1]
        if repeated:
            squares = sum(variance(logs) * (len(logs) - 1) for logs in repeated)
            count = sum(map(len, repeated))
            sigma = math.sqrt(squares / (count - len(repeated)))
            found[key] = Noise(sigma, count, len(repeated))
    return found
