"""Sides of a comparison: one variant, measured in one run or, for a baseline, in several."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pydantic import JsonValue

from labctl.compare.thresholds import Thresholds
from labctl.config.recipe import MODEL_AXIS
from labctl.index.entry import trial_row
from labctl.index.rows import TrialRow
from labctl.records.run import RunRecord
from labctl.records.trial import TrialBound, TrialRecord
from labctl.results.summary import wanted_precision
from labctl.units import size


@dataclass(frozen=True)
class Session:
    """The good repeats of a variant in one run, warm-ups left out.

    ``stopped``: the stop rule may have ended the repeats. ``facts``: of the run. ``original``: id
    in the run's record; for an imported bundle the other lab's id, else ``run``. ``bounds``: of the
    repeats that have one.
    """

    run: str
    repeats: tuple[TrialRow, ...]
    stopped: bool = False
    facts: Mapping[str, JsonValue] = field(default_factory=dict)
    original: str | None = None
    bounds: tuple[TrialBound, ...] = ()


@dataclass(frozen=True)
class Side:
    """One side. ``name`` is for people; ``varied``: keys in which its recipe's variants differ on
    purpose.
    """

    name: str
    variant: str
    sessions: tuple[Session, ...]
    varied: frozenset[str] = frozenset()
    thresholds: Thresholds | None = None

    @property
    def repeats(self) -> tuple[TrialRow, ...]:
        """All its repeats."""
        return tuple(row for session in self.sessions for row in session.repeats)

    @property
    def runs(self) -> frozenset[str]:
        """Ids of its runs."""
        return frozenset(session.run for session in self.sessions)

    @property
    def shares(self) -> dict[str, list[float]]:
        """Shares (above 0) of every bound of its board that all repeats have."""
        bounds = [one.shares for session in self.sessions for one in session.bounds if one.shares]
        if not bounds or len(bounds) != len(self.repeats):
            return {}
        kinds = set.intersection(*({kind for kind in one if one[kind] > 0} for one in bounds))
        return {kind: [shares[kind] for shares in bounds] for kind in sorted(kinds)}

    def copies(self, other: "Side") -> bool:
        """Return True if the other side has the same measurements, from a copy of the run."""
        originals = ({one.original or one.run for one in side.sessions} for side in (self, other))
        return self.runs != other.runs and bool(set.intersection(*originals))


Pair = tuple[Side, Side]
"""The reference, and the side compared with it."""


def run_sides(
    run: RunRecord,
    trials: Iterable[TrialRecord],
    name: str | None = None,
    *,
    directory: str | None = None,
    imported_from: str | None = None,
) -> list[Side]:
    """Return a side for each variant of a run, even without a result, in its recipe's order.

    ``name`` replaces the run's id in the sides' names. ``directory`` is the run's id in this lab;
    an imported run's record does not contain it. An imported run's boards are different boards,
    even with equal names.
    """
    known_as = directory or run.id
    rows: dict[str, list[TrialRow]] = {variant: [] for variant in run.variants}
    bounds: dict[str, list[TrialBound]] = defaultdict(list)
    for trial in trials:
        group = rows.setdefault(trial.variant, [])
        if is_good(row := trial_row(known_as, trial)):
            group.append(row)
            if trial.bound:
                bounds[trial.variant].append(trial.bound)
    stopped = wanted_precision(run) is not None
    varied = _varied(run)
    thresholds = Thresholds.of_recipe(run.recipe_resolved)
    facts = {"lab": imported_from or "this lab", **_facts(run)}
    return [
        Side(
            f"{name or known_as}:{variant}",
            variant,
            (
                Session(
                    known_as, tuple(found), stopped, facts, run.id, tuple(bounds.get(variant, ()))
                ),
            ),
            varied,
            thresholds,
        )
        for variant, found in rows.items()
    ]


def pool_sides(runs: Iterable[Sequence[Side]]) -> list[Side]:
    """Return a side for each variant, with a session for each run that has it."""
    found: dict[str, Side] = {}
    for side in chain.from_iterable(runs):
        before = found.get(side.variant)
        sessions = (*before.sessions, *side.sessions) if before else side.sessions
        found[side.variant] = replace(before or side, sessions=sessions)
    return list(found.values())


def is_good(row: TrialRow) -> bool:
    """Return True if a trial counts: successful, not warm-up."""
    return row.state == "ok" and row.repeat > 0


def match_sides(references: Sequence[Side], others: Sequence[Side]) -> list[Pair]:
    """Return the pairs of sides of the same variant, in the order of the references.

    Two single sides are a pair even if their variants differ.
    """
    if len(references) == len(others) == 1:
        return [(references[0], others[0])]
    by_variant = {side.variant: side for side in others}
    return [(one, by_variant[one.variant]) for one in references if one.variant in by_variant]


def _varied(run: RunRecord) -> frozenset[str]:
    matrix = run.recipe_resolved.get("matrix")
    axes = set(matrix) if isinstance(matrix, dict) else set()
    return frozenset(axes | ({MODEL_AXIS} if len(run.models) > 1 else set()))


def _facts(run: RunRecord) -> dict[str, JsonValue]:
    """Return the facts of a run that its older trials do not contain."""
    compiler = next((one.toolchain for one in run.artifacts if one.product != "agent"), None)
    found = {
        "kernel": run.facts.kernel,
        "os_version": run.facts.os_version,
        "compiler": compiler,
        "cpu": run.facts.cpu_names,
        "memory": None if (memory := run.facts.memory_total_bytes) is None else size(memory),
        "transport": run.transport,
    }
    return {key: value for key, value in found.items() if value is not None}
