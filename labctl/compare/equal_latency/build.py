"""The whole result of a latency match."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from labctl.compare.equal_latency.joining import Joined, join
from labctl.compare.equal_latency.matching import (
    RESAMPLES,
    budget_points,
    match,
    rescaled_grid,
    without_deadlines,
)
from labctl.compare.equal_latency.result import LatencyMatch, Quoted, RescaledGrid
from labctl.compare.equal_latency.sources import find_sources
from labctl.compare.equal_latency.words import sentence
from labctl.config.references import Reference, known_references
from labctl.errors import ConfigError
from labctl.suggestions import unknown

#: Token limits of the experiment's small model that its text states.
_EXPERIMENT_GRID = (100, 200, 300)
#: Means all known references.
_ALL = "all"
_NO_CURVE = sentence("no published curve: the experiment's curves exist only as pictures")
_NO_LIMIT = sentence(
    "published accuracies are points without a limit of tokens: they are on no curve"
)


def latency_match(
    runs: Path,
    words: Sequence[str],
    *,
    deadlines: Sequence[float] = (),
    grader: str | None = None,
    assume_same_model: bool = False,
    resamples: int = RESAMPLES,
) -> LatencyMatch:
    """Match runs of a lab; see :func:`labctl.compare.equal_latency.sources.find_sources`.

    Raises ConfigError if the runs do not belong together.
    """
    sources = find_sources(runs, words)
    joined = join(sources, grader=grader, assume=assume_same_model)
    found = match(
        joined.sets, joined.times, joined.questions, deadlines=deadlines, resamples=resamples
    )
    notes = [*joined.notes, *found.gaps]
    if missing := without_deadlines(joined.sets, joined.times):
        notes.append(
            sentence(
                "no deadlines, because lengths or prefill are unknown: {names}",
                names=", ".join(missing),
            )
        )
    notes += _pictures(joined)
    return LatencyMatch(
        heading=joined.heading,
        evaluations=tuple(one.id for one in sources.evaluations),
        grader=joined.grader,
        questions=joined.questions,
        timings=tuple(one.timing for one in joined.times.values()),
        grids=_grids(joined),
        curves=tuple(one.curve() for one in found.curves),
        crossings=found.crossings,
        shifts=found.shifts,
        points=budget_points(joined.sets, joined.times, joined.questions),
        choices=found.choices,
        notes=tuple(notes),
    )


def _pictures(joined: Joined) -> list[str]:
    """Name the models without a curve over budgets: one limit gives no curve."""
    single = [one.name for one in joined.sets if len(one.limited) < 2]
    text = "no curve over budgets of {names}: it needs two limits"
    return [sentence(text, names=", ".join(single))] if single else []


def _grids(joined: Joined) -> tuple[RescaledGrid, ...]:
    times = {name: one.timing.token_seconds for name, one in joined.times.items()}
    if len(times) < 2:
        return ()
    faster = min(times, key=lambda name: times[name])
    limits = {
        cell.budget
        for one in joined.sets
        if one.model == faster
        for cell in one.limited
        if cell.budget is not None
    }
    return tuple(
        rescaled_grid((faster, times[faster]), (name, times[name]), sorted(limits))
        for name in sorted(times, key=lambda name: times[name])
        if name != faster
    )


def published_match(lab_root: Path | None, names: Sequence[str]) -> LatencyMatch:
    """Return results from published figures only: ratios, rescaled limits, and quoted points.

    Raises ConfigError for an unknown name and an invalid references.yaml.
    """
    quoted = _references(lab_root, names)
    groups: dict[tuple[str, str, str | None], dict[str, float]] = defaultdict(dict)
    for one in quoted.values():
        if one.token_ns is not None:
            of_group = groups[one.device, one.model, one.program]
            of_group[one.quantization or one.model] = one.token_ns / 1e9
    grids = []
    for times in groups.values():
        (faster, least), *others = sorted(times.items(), key=lambda pair: pair[1])
        grids += [rescaled_grid((faster, least), other, _EXPERIMENT_GRID) for other in others]
    notes = [_NO_CURVE, *map(_two_decimals, grids)]
    if any(one.is_accuracy for one in quoted.values()):
        notes.append(_NO_LIMIT)
    return LatencyMatch(
        heading=(sentence("QUOTED from publications; labctl measured nothing here"),),
        evaluations=(),
        grader=None,
        questions=0,
        grids=tuple(grids),
        quoted=quoted_figures(lab_root, names),
        notes=tuple(notes),
    )


def _two_decimals(grid: RescaledGrid) -> str:
    """Truncate a ratio to two decimals, as the experiment does: 2.7354 is 2.73."""
    return sentence(
        "{slower} / {faster} = {ratio}: {cut} when cut after two decimals, as the experiment"
        " writes it, {rounded} when rounded",
        slower=f"{grid.slower_token_seconds:g}",
        faster=f"{grid.faster_token_seconds:g}",
        ratio=f"{grid.ratio:.4f}",
        cut=f"{math.floor(100 * grid.ratio) / 100:.2f}",
        rounded=f"{grid.ratio:.2f}",
    )


def quoted_figures(lab_root: Path | None, names: Sequence[str]) -> tuple[Quoted, ...]:
    """Return published figures to show beside measured ones. Raises ConfigError."""
    return tuple(
        Quoted(name, one.model, one.quantization, one.value, one.unit, one.source, one.is_accuracy)
        for name, one in _references(lab_root, names).items()
    )


def _references(lab_root: Path | None, names: Sequence[str]) -> dict[str, Reference]:
    known = known_references(lab_root)
    asked = [one for name in names for one in (known if name == _ALL else (name,))]
    for name in asked:
        if name not in known:
            raise ConfigError(
                unknown("reference", name, known), hint=f"--references {_ALL} takes every known one"
            )
    return {name: known[name] for name in dict.fromkeys(asked)}
