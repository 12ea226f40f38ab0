"""Runs and trials read for figures, and the series that a figure distinguishes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labctl.board.probe_files import last_probes
from labctl.compare.tuned import Tuned, tuned
from labctl.errors import printable_line
from labctl.figures.trials import token_time
from labctl.records.board import Execution
from labctl.records.probe import BoardProbe
from labctl.records.run import RunRecord
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import TrialRecord
from labctl.report.figures.theme import MOST_SERIES
from labctl.report.names import short_names
from labctl.results.summary import good_trials
from labctl.results.telemetry import read_telemetry
from labctl.runs.record.directory import RunDirectory
from labctl.stats.describe import geometric_mean


def _no_telemetry(_trial: TrialRecord) -> Sequence[TelemetrySample]:
    return ()


@dataclass(frozen=True)
class MeasuredRun:
    """A run with its records.

    ``probes``: probes of its board with the same execution, newest first. ``telemetry`` reads a
    trial's samples when a figure needs them.
    """

    run: RunRecord
    trials: Sequence[TrialRecord]
    probes: Sequence[BoardProbe] = ()
    telemetry: Callable[[TrialRecord], Sequence[TelemetrySample]] = _no_telemetry
    #: Results of a search; None for another run.
    tuned: Tuned | None = None

    @property
    def short_id(self) -> str:
        """End of the id, by which every command finds the run."""
        return self.run.id.rpartition("-")[2]


def measured_run(directory: RunDirectory) -> MeasuredRun:
    """Read a run for its figures. Raises ConfigError if its files cannot be read."""
    run = directory.run()
    lab_root = directory.path.resolve().parent.parent

    def telemetry(trial: TrialRecord) -> Sequence[TelemetrySample]:
        folder = directory.trial_path(trial.number, trial.slug)
        return read_telemetry(folder / "telemetry").samples

    probes = last_probes(lab_root, run.board, run.facts.execution)
    trials, search = directory.trials(), directory.tuning()
    found = None if search is None else tuned(run, trials, search)
    return MeasuredRun(run, trials, probes, telemetry, found)


@dataclass(frozen=True)
class Series:
    """Good trials that a figure shows as one series: of a variant, in one or several runs."""

    label: str
    trials: Sequence[TrialRecord]
    runs: Sequence[MeasuredRun]

    @property
    def token_times(self) -> list[int]:
        """Mean time per token of each trial that has it, in ns."""
        return [time for trial in self.trials if (time := token_time(trial))]

    @property
    def independent_times(self) -> list[float]:
        """Token times of the repeats, in ns; for several runs, the estimate of each run.

        Only several runs show run-to-run variation, because its causes are common to a run's
        repeats.
        """
        if len(self.runs) == 1:
            return [*self.token_times]
        by_run: dict[str, list[int]] = {}
        for trial in self.trials:
            if time := token_time(trial):
                by_run.setdefault(self.run_of(trial).run.id, []).append(time)
        return [geometric_mean(times) for times in by_run.values()]

    def run_of(self, trial: TrialRecord) -> MeasuredRun:
        """Return the run of a trial of the series."""
        return next(run for run in self.runs if any(one is trial for one in run.trials))

    @property
    def typical(self) -> TrialRecord | None:
        """The trial whose token time is nearest to the estimate; None if no token was timed."""
        times = self.token_times
        timed = [trial for trial in self.trials if token_time(trial)]
        if not timed:
            return None
        middle = geometric_mean(times)
        return min(timed, key=lambda trial: abs((token_time(trial) or 0) - middle))


def all_series(runs: Sequence[MeasuredRun], *, by_run: bool = True) -> list[Series]:
    """Return the series of runs, one for each variant of a run.

    If a figure cannot distinguish so many, or ``by_run`` is False, a series has the trials of one
    variant, recipe, board and model in all runs.
    """
    apart = _grouped(runs, by_run=True) if by_run else []
    return apart if 0 < len(apart) <= MOST_SERIES else _grouped(runs, by_run=False)


def distinguishable(series: Sequence[Series], most: int = MOST_SERIES) -> list[Series]:
    """Return at most the number of series that a figure can distinguish: its colours, or ``most``.

    Chosen are the first, the fastest, the slowest, and others evenly between these.
    """
    if len(series) <= most:
        return list(series)
    timed = [one for one in series[1:] if one.token_times]
    ranked = sorted(timed, key=lambda one: geometric_mean(one.token_times))
    wanted = most - 1
    step = (len(ranked) - 1) / (wanted - 1)
    chosen = [ranked[round(n * step)] for n in range(wanted)] if len(ranked) > wanted else ranked
    return [one for one in series if one is series[0] or any(one is other for other in chosen)]


def _grouped(runs: Sequence[MeasuredRun], *, by_run: bool) -> list[Series]:
    groups: dict[tuple[str, ...], list[TrialRecord]] = {}
    parts: dict[tuple[str, ...], dict[str, MeasuredRun]] = {}
    for run in runs:
        order = {variant: n for n, variant in enumerate(run.run.variants)}
        good = good_trials(run.trials)
        for trial in sorted(good, key=lambda trial: order.get(trial.variant, len(order))):
            shared = (run.run.recipe, trial.board, trial.model.sha256, trial.execution)
            origin = (run.run.id,) if by_run else shared
            key = (trial.variant, *origin)
            groups.setdefault(key, []).append(trial)
            parts.setdefault(key, {})[run.run.id] = run
    labels = _labels(list(groups))
    kinds = {trial.execution for trials in groups.values() for trial in trials}
    found = []
    for key, trials in groups.items():
        kind = trials[0].execution
        mark = "" if len(kinds) == 1 or kind is Execution.BOARD else f" · {kind.upper()}"
        found.append(Series(labels[key] + mark, trials, tuple(parts[key].values())))
    return found


def _labels(keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return a name for each key: the variant, and its difference from others with this name."""
    labels, short = {}, short_names(key[0] for key in keys)
    for key in keys:
        alike = [other for other in keys if other[0] == key[0]]
        differing = [n for n, _ in enumerate(key[1:4], 1) if len({other[n] for other in alike}) > 1]
        words = (short[key[0]], *(key[n].rpartition("-")[2][:12] for n in differing))
        labels[key] = printable_line(" · ".join(words))
    return labels


def executions_of(runs: Sequence[MeasuredRun]) -> set[Execution]:
    """Return the executions of the trials."""
    found = {trial.execution for run in runs for trial in run.trials}
    return found | {run.run.facts.execution for run in runs}
