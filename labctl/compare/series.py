"""Series of runs that differ in their source alone: one figure of one variant, by nights."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from labctl.compare.figures import FIGURES, Figure, figures_of
from labctl.compare.likeness import row_values
from labctl.compare.sides import is_good
from labctl.index import IndexedTrial, RunRow, TrialRow
from labctl.index.rows import parameter_text
from labctl.results.comparability import REVISION
from labctl.stats import median

_DIGITS = 10


@dataclass(frozen=True)
class Night:
    """The good repeats of a variant in one run. ``value`` is their median, ns or tokens/s.

    ``revision`` is equal where the program is, None where nobody knows it; ``source`` is a name for
    people.
    """

    run: str
    started: str
    revision: str | None
    source: str
    version: str | None
    value: float
    repeats: tuple[TrialRow, ...] = field(repr=False)


@dataclass(frozen=True)
class Series:
    """A figure of one variant over the revisions of its source.

    ``nights`` are in the order of their time, which is that of the revisions; ``again`` are those
    of a revision that was measured again after a newer one.
    """

    recipe: str
    variant: str
    board: str
    target: str
    model: str
    execution: str
    figure: Figure
    nights: tuple[Night, ...]
    again: tuple[Night, ...] = ()

    @property
    def name(self) -> str:
        """A name for people."""
        return f"{self.recipe} {self.variant} on {self.board}"

    @property
    def values(self) -> list[float]:
        """The value of each night."""
        return [night.value for night in self.nights]


def series_of(trials: Iterable[IndexedTrial], figures: Sequence[str] = ()) -> list[Series]:
    """Return the series in trials, by recipe, variant and board, the one that began first before.

    All that must agree in comparable records agrees in a series, but for the revision of the
    source: another compiler, flags, firmware or model begins a new one. Trials that failed, and
    those that their own checks contradict, are left out. ``figures`` are names in FIGURES; by
    default the time of a token, or the rate where there is no such time.
    """
    groups: dict[tuple[object, ...], dict[str, tuple[RunRow, list[TrialRow]]]] = {}
    for one in trials:
        row = one.trial
        # Another lab's board of this name is another board.
        own = one.run.imported_from is None
        if own and is_good(row) and not row.checks_failed:
            runs = groups.setdefault(_key(one.run, row), {})
            runs.setdefault(one.run.id, (one.run, []))[1].append(row)
    found = [series for runs in groups.values() for series in _of_group(runs, figures)]
    return sorted(found, key=lambda s: (s.recipe, s.variant, s.board, _began(s)))


def _key(run: RunRow, row: TrialRow) -> tuple[object, ...]:
    values = {key: value for key, value in row_values(row).items() if key not in REVISION}
    if "build_spec" not in values:  # an older record: the run knows the compiler
        values["compiler"] = run.compiler
    same = ((k, parameter_text(v)) for k, v in values.items() if v is not None)
    return (run.recipe, row.variant, *sorted(same))


def _of_group(
    runs: dict[str, tuple[RunRow, list[TrialRow]]], figures: Sequence[str]
) -> Iterator[Series]:
    rows = [row for _, trials in runs.values() for row in trials]
    chosen = [FIGURES[name] for name in figures] or figures_of(rows)[:1]
    first = rows[0]
    for figure in chosen:
        nights = [night for run, trials in runs.values() if (night := _night(run, trials, figure))]
        nights.sort(key=lambda night: night.started)
        ahead, again = _in_order(nights)
        if ahead:
            yield Series(
                recipe=next(iter(runs.values()))[0].recipe,
                variant=first.variant,
                board=first.board or "",
                target=first.target or "",
                model=first.model_file,
                execution=first.execution,
                figure=figure,
                nights=tuple(ahead),
                again=tuple(again),
            )


def _night(run: RunRow, trials: Sequence[TrialRow], figure: Figure) -> Night | None:
    having = [(row, value) for row in trials if (value := figure.value(row))]
    if not having:
        return None
    known = trials[0].comparability
    program = known.get("program_sha256")
    revision = program or run.build_key or run.build_commit
    source = run.build_commit or run.build_key or program
    return Night(
        run=run.id,
        started=run.started,
        revision=None if revision is None else str(revision),
        source=str(source)[:_DIGITS] if source else "not known",
        version=run.version,
        # Of logarithms: times and rates have the same steps.
        value=math.exp(median([math.log(value) for _, value in having])),
        repeats=tuple(row for row, _ in having),
    )


def _in_order(nights: Sequence[Night]) -> tuple[list[Night], list[Night]]:
    """Part the nights that go forward in the source's history from those that go back."""
    order: dict[str | None, int] = {}
    ahead: list[Night] = []
    again: list[Night] = []
    for night in nights:
        place = order.setdefault(night.revision, len(order))
        (ahead if place == len(order) - 1 else again).append(night)
    return ahead, again


def _began(series: Series) -> str:
    return series.nights[0].started
