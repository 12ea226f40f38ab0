"""Series of runs that differ only in their source: one figure of one variant, by nights.

A night of ``labctl nightly`` is identified by its id; all other runs of a day (this host's clock)
form one night too. A night has one value for each build, from any number of runs. In a night with
an id only head counts; its measurements of the last good source and of searched commits do not.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

from labctl.compare.figures import FIGURES, figures_of
from labctl.compare.likeness import row_values, short_hash
from labctl.compare.sides import is_good
from labctl.figures.trials import TrialFigure
from labctl.index.index import IndexedTrial
from labctl.index.rows import RunRow, TrialRow, parameter_text
from labctl.records.run import NightPart
from labctl.results.comparability import REVISION
from labctl.stats.describe import median
from labctl.units import counted

#: Statistic for the value of a night: a single throttled repeat hardly changes a median.
NIGHT_ESTIMATE = "median"
_DIGITS = 10
#: Values that agree in all trials of a series, by key.
_Agreed: TypeAlias = tuple[tuple[str, str], ...]
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class NightRun:
    """The good repeats of a variant in one run. ``value`` is their median, ns or tokens/s."""

    run: str
    started: str
    value: float
    repeats: tuple[TrialRow, ...] = field(repr=False)


@dataclass(frozen=True)
class Night:
    """Measurements of one build in one night. ``value`` is the median of its runs, ns or tokens/s.

    ``name``: the night's id, or a day. ``revision``: equal for equal programs; None if unknown.
    ``source``: name for people. ``committed``: time of its commit if the build knew it. ``runs``:
    in the order of time.
    """

    name: str
    revision: str | None
    source: str
    committed: datetime | None
    version: str | None
    value: float
    runs: tuple[NightRun, ...] = field(repr=False)
    #: True if it was measured beside head: the last good source, or a searched commit.
    is_beside: bool = False

    @property
    def started(self) -> str:
        """The start of its first run."""
        return self.runs[0].started

    @property
    def run(self) -> str:
        """Its last run."""
        return self.runs[-1].run


@dataclass(frozen=True)
class Series:
    """A figure of one variant over the revisions of its source.

    ``nights``: in the order of the revisions, by commit time if all have one, else by first
    measurement. ``again``: nights that measured an older revision again, after a newer one or
    beside it. ``lost``: runs after the last night without a value. All trials agree in ``agreed``;
    ``apart`` describes the differences from other series of the same name.
    """

    recipe: str
    variant: str
    board: str
    target: str
    model: str
    execution: str
    figure: TrialFigure
    nights: tuple[Night, ...]
    again: tuple[Night, ...] = ()
    lost: tuple[str, ...] = ()
    agreed: Mapping[str, str] = field(default_factory=dict, repr=False)
    apart: str = ""

    @property
    def name(self) -> str:
        """A name for people."""
        return f"{self.recipe} {self.variant} on {self.board}{self.apart}"

    @property
    def values(self) -> list[float]:
        """The value of each night."""
        return [night.value for night in self.nights]

    @property
    def run_values(self) -> list[float]:
        """The value of each run of the nights."""
        return [run.value for night in self.nights for run in night.runs]


@dataclass(frozen=True)
class Unmeasured:
    """A variant of a recipe on a board that has no sound result. ``runs``: oldest first."""

    recipe: str
    variant: str
    board: str
    runs: tuple[str, ...]

    def __str__(self) -> str:
        runs = f"{counted(len(self.runs), 'run')}, the last is {self.runs[-1]}"
        return f"{self.recipe} {self.variant} on {self.board}: no sound result in {runs}"


def unmeasured(
    trials: Iterable[IndexedTrial], known: Iterable[Series], since: str = ""
) -> list[Unmeasured]:
    """Return variants that are in no series and were last run at or after ``since``."""
    places = {_place(series) for series in known}
    return [
        Unmeasured(*place, tuple(sorted(runs, key=runs.__getitem__)))
        for place, runs in sorted(_tried(trials).items())
        if place not in places and max(runs.values()) >= since
    ]


def _tried(trials: Iterable[IndexedTrial]) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the runs with their start times, by recipe, variant and board."""
    tried: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in trials:
        if one.run.is_history and one.trial.repeat > 0:
            place = (one.run.recipe, one.trial.variant, one.trial.board or one.run.board or "")
            tried.setdefault(place, {})[one.run.id] = one.run.started
    return tried


def series_of(trials: Iterable[IndexedTrial], figures: Sequence[str] = ()) -> list[Series]:
    """Return the series in trials, by recipe, variant, board and start.

    All keys of comparability agree in a series, except the revision of the source: another
    compiler, flags, firmware or model starts a new series. Failed trials, trials with failed
    checks, and runs that do not count as history are left out. ``figures`` are names in FIGURES; by
    default the time of a token, or the rate if there is no such time.
    """
    groups: dict[tuple[str, str, _Agreed], dict[str, tuple[RunRow, list[TrialRow]]]] = {}
    trials = list(trials)
    tried = _tried(trials)
    for one in trials:
        row = one.trial
        if one.run.is_history and is_good(row) and not row.checks_failed:
            runs = groups.setdefault(_key(one.run, row), {})
            runs.setdefault(one.run.id, (one.run, []))[1].append(row)
    found = [
        replace(series, agreed=dict(agreed))
        for (_, _, agreed), runs in groups.items()
        for series in _of_group(runs, figures)
    ]
    shown: dict[tuple[str, str, str], set[str]] = {}
    named: dict[tuple[str, ...], list[Series]] = {}
    for series in found:
        nights = (*series.nights, *series.again)
        names = {run.run for night in nights for run in night.runs}
        shown.setdefault(_place(series), set()).update(names)
        named.setdefault((*_place(series), series.figure.gate), []).append(series)
    found = [
        replace(one, lost=_lost(one, tried, shown[_place(one)]), apart=_apart(one, of_name))
        for of_name in named.values()
        for one in of_name
    ]
    return sorted(found, key=lambda s: (s.recipe, s.variant, s.board, _began(s)))


def _apart(series: Series, of_name: Sequence[Series]) -> str:
    """Describe the differences of a series from others of the same name."""
    keys = sorted({key for one in of_name for key in one.agreed})
    own = [
        f"{key}: {short_hash(series.agreed.get(key, 'not known'))}"
        for key in keys
        if len({one.agreed.get(key) for one in of_name}) > 1
    ]
    return f" ({', '.join(own)})" if own else ""


def _place(series: Series) -> tuple[str, str, str]:
    return series.recipe, series.variant, series.board


def _lost(
    series: Series, tried: Mapping[tuple[str, str, str], Mapping[str, str]], shown: Collection[str]
) -> tuple[str, ...]:
    """Return the runs after the last night of a series that have no value in any series."""
    last = max(run.started for night in series.nights for run in night.runs)
    runs = tried.get(_place(series), {}).items()
    return tuple(run for run, started in runs if started > last and run not in shown)


def contradicted(trials: Iterable[IndexedTrial]) -> list[str]:
    """Name the successful repeats that are in no series because their checks failed."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in trials:
        row = one.trial
        if one.run.is_history and is_good(row) and row.checks_failed:
            of = (one.run.recipe, row.variant, row.board or "")
            found.setdefault(of, []).append(row.checks_failed)
    return [
        f"left out: {counted(len(failed), 'repeat')} of {recipe} {variant} on {board} whose checks"
        f" failed ({', '.join(sorted(set(' '.join(failed).split())))})"
        for (recipe, variant, board), failed in sorted(found.items())
    ]


def _key(run: RunRow, row: TrialRow) -> tuple[str, str, _Agreed]:
    values = {key: value for key, value in row_values(row).items() if key not in REVISION}
    if "build_spec" not in values:  # an older record: only the run names the compiler
        values["compiler"] = run.compiler
    same = ((k, parameter_text(v)) for k, v in values.items() if v is not None)
    return run.recipe, row.variant, tuple(sorted(same))


def _of_group(
    runs: dict[str, tuple[RunRow, list[TrialRow]]], figures: Sequence[str]
) -> Iterator[Series]:
    rows = [row for _, trials in runs.values() for row in trials]
    chosen = [FIGURES[name] for name in figures] or figures_of(rows)[:1]
    first = rows[0]
    for figure in chosen:
        nights = [night for run, trials in runs.values() if (night := _night(run, trials, figure))]
        nights.sort(key=lambda night: night.started)
        beside = [night for night in nights if night.is_beside]
        ahead, again = _in_order([night for night in nights if not night.is_beside])
        if not ahead:  # only last good sources have a value
            ahead, again, beside = *_in_order(beside), []
        if ahead:
            yield Series(
                recipe=next(iter(runs.values()))[0].recipe,
                variant=first.variant,
                board=first.board or "",
                target=first.target or "",
                model=first.model_file,
                execution=first.execution,
                figure=figure,
                nights=_joined(ahead),
                again=_joined(sorted([*again, *beside], key=lambda night: night.started)),
            )


def _joined(nights: Sequence[Night]) -> tuple[Night, ...]:
    """Join the runs of the same night and build. The order of the builds is kept."""
    joined: dict[tuple[str, str | None], list[Night]] = {}
    for night in nights:
        joined.setdefault((night.name, night.revision), []).append(night)
    return tuple(_one_night(own) for own in joined.values())


def _one_night(parts: Sequence[Night]) -> Night:
    runs = sorted((run for one in parts for run in one.runs), key=lambda run: run.started)
    return replace(parts[0], value=_middle([run.value for run in runs]), runs=tuple(runs))


def _middle(values: Sequence[float]) -> float:
    """Return the median on a log scale, so that times and rates have the same steps."""
    return math.exp(median([math.log(value) for value in values]))


def _night_name(run: RunRow) -> str:
    return run.night or f"{datetime.fromisoformat(run.started).astimezone():%Y-%m-%d}"


def _night(run: RunRow, trials: Sequence[TrialRow], figure: TrialFigure) -> Night | None:
    having = [(row, value) for row in trials if (value := row.figures[figure.column])]
    if not having:
        return None
    known = trials[0].comparability
    program = known.get("program_sha256")
    revision = program or run.build_key or run.build_commit
    source = run.build_commit or run.build_key or program
    committed = known.get("build_committed")
    value = _middle([value for _, value in having])
    return Night(
        name=_night_name(run),
        revision=None if revision is None else str(revision),
        source=str(source)[:_DIGITS] if source else "not known",
        committed=datetime.fromisoformat(committed) if isinstance(committed, str) else None,
        version=run.version,
        value=value,
        runs=(NightRun(run.id, run.started, value, tuple(row for row, _ in having)),),
        is_beside=run.night_side not in (None, NightPart.HEAD),
    )


def _in_order(nights: Sequence[Night]) -> tuple[list[Night], list[Night]]:
    """Sort nights (given by time) by revision; return repeated ones separately."""
    order = _order(nights)
    seen: set[str | None] = set()
    newest = -1
    ahead: list[Night] = []
    again: list[Night] = []
    for night in nights:
        place = order[night.revision]
        (again if night.revision in seen and place < newest else ahead).append(night)
        seen.add(night.revision)
        newest = max(newest, place)
    return sorted(ahead, key=lambda night: (order[night.revision], night.started)), again


def _order(nights: Sequence[Night]) -> dict[str | None, int]:
    """Return the place of each revision; the same commit may have been built more than once."""
    if all(night.committed for night in nights):
        nights = sorted(nights, key=lambda night: (night.committed or _NEVER, night.started))
    revisions = dict.fromkeys(night.revision for night in nights)
    return {revision: place for place, revision in enumerate(revisions)}


def _began(series: Series) -> str:
    return series.nights[0].started
