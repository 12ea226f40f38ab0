"""Bounds that a recipe sets on accuracies."""

from collections.abc import Iterator, Sequence

from labctl.evaluation.accuracy import Accuracy, AccuracyTable
from labctl.evaluation.recipe_parts import UNLIMITED, AccuracyGate
from labctl.records.run import GateRecord


def judge_accuracies(gates: Sequence[AccuracyGate], table: AccuracyTable) -> tuple[GateRecord, ...]:
    """Judge every gate on every accuracy to which it applies.

    A gate that applies to no accuracy stays open, and is reported.
    """
    judged: list[GateRecord] = []
    for gate in gates:
        chosen = [cell for cell in table.cells if _speaks_of(gate, cell)]
        judged += [_judge(gate, cell) for cell in chosen] or [_idle(gate)]
    return tuple(judged)


def _speaks_of(gate: AccuracyGate, cell: Accuracy) -> bool:
    model, _, prompt = cell.variant.partition("/")
    known = {
        "model": model,
        "prompt": prompt,
        "budget": UNLIMITED if cell.budget is None else str(cell.budget),
        "grader": cell.grader,
    }
    return all(known[key] == str(value) for key, value in gate.where.items())


def _judge(gate: AccuracyGate, cell: Accuracy) -> GateRecord:
    budget = UNLIMITED if cell.budget is None else f"{cell.budget} tokens"
    share = cell.share
    within = share is not None and all(
        bound is None or (share - bound) * sign >= 0
        for bound, sign in ((gate.min, 1), (gate.max, -1))
    )
    detail = "no answer" if share is None else f"{share:.4g} of {cell.total} answers"
    return GateRecord(
        variant=f"{cell.variant}, {budget}, {cell.grader}",
        metric=gate.metric,
        limit=" and ".join(_bounds(gate)),
        value=share,
        passed=within,
        detail=detail,
    )


def _idle(gate: AccuracyGate) -> GateRecord:
    where = ", ".join(f"{key}={value}" for key, value in gate.where.items())
    return GateRecord(
        variant="no variant",
        metric=gate.metric,
        limit=" and ".join(_bounds(gate)),
        value=None,
        passed=None,
        detail=f"not judged: nothing of this run has {where}" if where else "not judged: no answer",
    )


def _bounds(gate: AccuracyGate) -> Iterator[str]:
    if gate.min is not None:
        yield f">= {gate.min:g}"
    if gate.max is not None:
        yield f"<= {gate.max:g}"
