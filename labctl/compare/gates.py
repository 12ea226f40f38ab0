"""Gates against a baseline, or against the last runs that passed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from labctl.compare.comparison import Row, Verdict
from labctl.compare.estimates import History
from labctl.compare.figures import FIGURES
from labctl.compare.likeness import differences
from labctl.compare.selecting import baseline_sides, directory_sides
from labctl.compare.session_noise import board_history
from labctl.compare.sides import Side, is_good, match_sides, pool_sides, run_sides
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.compare.words import change, interval_text, percent
from labctl.config.lab import LabFile
from labctl.config.recipe import Gate, Recipe
from labctl.errors import LabctlError
from labctl.index.filters import Filter
from labctl.records.run import GateRecord, RunRecord
from labctl.records.trial import TrialRecord
from labctl.results.gates import (
    METRICS,
    Parameters,
    comparing_gates,
    idle,
    limit_of,
    open_gate,
    refusal,
    spoken_of,
)
from labctl.results.summary import ESTIMATE, VariantSummary, summarise, wanted_precision
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository
from labctl.state.baselines import Baseline
from labctl.state.state import lab_state
from labctl.text_types import LAST_GOOD

#: Number of last good runs that are searched for comparable ones.
_LAST_RUNS = 30
#: Number of runs that form the reference together; a single run may have been lucky.
_POOLED = 5


@dataclass(frozen=True)
class _NoReference(Exception):
    """There is no reference; ``reason`` says what is missing and what to do."""

    reason: str


def missing_references(lab: LabFile, recipe: Recipe, board: str) -> Iterator[str]:
    """Yield a line for each gate of a recipe that has no reference yet."""
    for gate in recipe.gates:
        if gate.against is None:
            continue
        try:
            if gate.against == LAST_GOOD:
                next(_good_runs(lab, recipe.name, board))
            else:
                _baseline(lab, gate.against)
        except (_NoReference, LabctlError) as error:
            yield f"gate {gate.metric} {limit_of(gate)} will not be judged: {_reason(error)}"


def judge_gates(
    lab: LabFile, run: RunRecord, trials: Sequence[TrialRecord], parameters: Parameters
) -> tuple[GateRecord, ...]:
    """Judge the gates of a run that name other runs of the lab.

    Raises nothing: a gate that cannot be judged stays open, with the reason.
    """
    found: list[GateRecord] = []
    for gate in comparing_gates(run):
        rows = spoken_of(gate, summarise(trials, run.variants, wanted_precision(run)), parameters)
        try:
            found += _judge(lab, gate, run, trials, rows) if rows else [idle(gate)]
        except (_NoReference, LabctlError) as error:
            detail = f"not judged: {_reason(error)}"
            found += [open_gate(gate, detail, row.variant) for row in rows]
    return tuple(found)


def _reason(error: _NoReference | LabctlError) -> str:
    return error.reason if isinstance(error, _NoReference) else error.message


def _judge(
    lab: LabFile,
    gate: Gate,
    run: RunRecord,
    trials: Sequence[TrialRecord],
    rows: Sequence[VariantSummary],
) -> list[GateRecord]:
    """Judge one gate on all its variants, as one family of comparisons."""
    assert gate.against is not None
    execution = run.facts.execution
    refused = {row.variant: found for row in rows if (found := refusal(gate, row, execution))}
    references: list[Side] = []
    if len(refused) < len(rows):
        references = _reference(lab, gate.against, run, trials)
    sides = [
        side for side in run_sides(run, trials) if side.variant in {row.variant for row in rows}
    ]
    limits = _limits(gate, run)
    history = _steady_history(lab, run.recipe, run.board)
    pairs = [pair for pair in match_sides(references, sides) if pair[1].variant not in refused]
    compared = compare(pairs, figures=(gate.metric,), thresholds=limits, history=history)
    by_variant = {
        side.variant: (reference, row)
        for (reference, side), row in zip(pairs, compared.rows, strict=True)
    }
    judged = []
    for row in rows:
        record = GateRecord(
            variant=row.variant,
            metric=gate.metric,
            limit=limit_of(gate),
            value=METRICS[gate.metric](row),
            estimate=ESTIMATE,
            passed=None,
            detail=f"not judged: {gate.against} has no good trial of this variant",
        )
        if row.variant in refused:
            passed, detail = refused[row.variant]
            record = record.model_copy(update={"passed": passed, "detail": detail})
        elif row.variant in by_variant:
            record = _judged(record, *by_variant[row.variant], limits)
        judged.append(record)
    return judged


def _steady_history(lab: LabFile, recipe: str, board: str) -> History:
    """Return the past sessions, without runs that missed such a gate.

    A step in the speed is not a random difference of runs. Counted as noise, it would hide itself.
    """
    runs, repository = lab.root / "runs", RunRepository(lab.root / "runs")
    known = board_history(repository)
    failed = repository.query(Filter(recipe=recipe, board=board, verdict="failed"))
    ids = (one.run.id for one in failed[:_LAST_RUNS])
    missed = {run for run in ids if _has_missed(RunDirectory(runs / run))}
    return lambda side, without: known(side, {*without, *missed})


def _has_missed(directory: RunDirectory) -> bool:
    end = directory.end()
    return end is not None and any(g.passed is False and g.reference for g in end.gates)


def _judged(record: GateRecord, reference: Side, row: Row, limits: Thresholds) -> GateRecord:
    interval = row.interval
    passed, detail = _verdict(row, limits)
    runs = tuple(dict.fromkeys(session.run for session in reference.sessions))
    return record.model_copy(
        update={
            "passed": passed,
            "detail": f"{detail} (against {', '.join(runs)})",
            "verdict": str(row.verdict),
            "reference": runs,
            "ratio": row.ratio,
            "ratio_low": interval.low if interval else None,
            "ratio_high": interval.high if interval else None,
        }
    )


def _verdict(row: Row, limits: Thresholds) -> tuple[bool | None, str]:
    """Return True if a gate is kept, False if missed, None if unclear; and the reason."""
    allowed = f"{percent(limits.practical)} allowed"
    if row.verdict is Verdict.SLOWER:
        return False, f"{change(row)}, {allowed}: {interval_text(row.interval)}"
    if row.verdict in (Verdict.SAME, Verdict.FASTER):
        return True, f"{row.verdict}: {row.reason}"
    if row.interval is not None:
        # One-sided: a side that looks faster, even by chance, is not slower.
        end = 1 / row.interval.low if row.more_is_faster else row.interval.high
        if end < 1 + limits.practical:
            return True, f"not slower by more than allowed: {interval_text(row.interval)}"
    return None, f"not judged: {row.verdict}: {row.reason}"


def _limits(gate: Gate, run: RunRecord) -> Thresholds:
    limits = Thresholds.of_recipe(run.recipe_resolved)
    if gate.tolerance is None:
        return limits
    return replace(limits, same_within=gate.tolerance, practical=gate.tolerance)


def _reference(
    lab: LabFile, against: str, run: RunRecord, trials: Sequence[TrialRecord]
) -> list[Side]:
    """Return the reference sides, from a baseline or from the last comparable good runs.

    If no run is comparable, return the newest one's sides: the comparison then gives the reason.
    Raises _NoReference, ConfigError for a damaged run, HostError.
    """
    if against != LAST_GOOD:
        return baseline_sides(_baseline(lab, against), lab.root / "runs")
    found: dict[str, list[Side]] = {}
    unlike: dict[str, Side] = {}
    own = run_sides(run, trials)
    good = _good_runs(lab, run.recipe, run.board, without=run.id)
    for directory, variants in islice(good, _LAST_RUNS):
        sides = [side for side in directory_sides(directory) if side.variant in variants]
        for side, mine in match_sides(sides, own):
            pooled = found.setdefault(mine.variant, [])
            unlike.setdefault(mine.variant, side)
            if len(pooled) < _POOLED and _is_alike(side, mine):
                pooled.append(side)
        if all(len(found.get(side.variant, ())) == _POOLED for side in own):
            break
    return pool_sides(pooled or [unlike[variant]] for variant, pooled in found.items())


def _baseline(lab: LabFile, name: str) -> Baseline:
    baselines = lab_state(lab).baselines
    if (found := baselines.get(name)) is None:
        known = ", ".join(one.name for one in baselines.list())
        there = f"; there is {known}" if known else ""
        raise _NoReference(
            f"no baseline {name!r}{there}; `labctl baseline set {name} RUN` makes it"
        )
    return found


def _good_runs(
    lab: LabFile, recipe: str, board: str, without: str = ""
) -> Iterator[tuple[RunDirectory, set[str]]]:
    """Yield the runs that passed, newest first, each with its variants that count.

    A variant does not count if its checks failed, if its run is untrusted, or if it is suspected to
    be slower: later slow runs would be compared with it, and pass. If a gate was unclear, all
    count: otherwise only lucky runs would be the reference, and equal runs would miss the gate.
    Raises _NoReference, HostError.
    """
    runs = lab.root / "runs"
    repository = RunRepository(runs)
    passed = repository.query(Filter(recipe=recipe, board=board, verdict="passed", kind="timing"))
    names = [one.run.id for one in passed if one.run.id != without]
    untrusted = {one.run.id: one.run.untrusted for one in passed}
    is_any = False
    for first in range(0, len(names), _LAST_RUNS):
        some = names[first : first + _LAST_RUNS]
        measured = [one for one in repository.trials(Filter(ids=tuple(some))) if is_good(one.trial)]
        for name in some:
            directory = RunDirectory(runs / name)
            own = [one.trial for one in measured if one.run.id == name]
            good = {row.variant for row in own} - {row.variant for row in own if row.checks_failed}
            if untrusted[name] or directory.is_imported:
                continue
            if good := good - _suspected(directory):
                is_any = True
                yield directory, good
    if not is_any:
        left = f" ({len(names)} left out: checks failed, or suspected slower)" if names else ""
        raise _NoReference(f"no earlier run of recipe {recipe} on {board} passed{left}")


def _suspected(directory: RunDirectory) -> set[str]:
    """Return the variants that a gate suspects to be slower than their reference."""
    end = directory.end()
    return {gate.variant for gate in end.gates if _is_suspected(gate)} if end else set()


def _is_suspected(gate: GateRecord) -> bool:
    if gate.verdict != Verdict.SUSPECTED or not gate.ratio:
        return False
    return (gate.ratio > 1) is not FIGURES[gate.metric].more_is_faster


def _is_alike(reference: Side, side: Side) -> bool:
    return all(one.allowed is not None for one in differences(reference, side))
