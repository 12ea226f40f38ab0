"""Bounds that a recipe sets on its results."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from labctl.config.names import did_you_mean, listed
from labctl.config.recipe import Gate, Recipe
from labctl.config.variants import Scalar
from labctl.records import Execution, GateRecord
from labctl.results.summary import VariantSummary


def _milliseconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


#: What a gate can bound, by the name that recipes use. Durations in ms.
METRICS: Mapping[str, Callable[[VariantSummary], float | None]] = {
    "tokens_per_second": lambda summary: summary.tokens_per_second,
    "prefill_tokens_per_second": lambda summary: summary.prefill_tokens_per_second,
    "tpot_ms": lambda summary: _milliseconds(summary.token_ns),
    "ttft_ms": lambda summary: _milliseconds(summary.ttft_ns),
    "tpot_p10_ms": lambda summary: _milliseconds(summary.token_p10_ns),
    "tpot_p50_ms": lambda summary: _milliseconds(summary.token_p50_ns),
    "tpot_p90_ms": lambda summary: _milliseconds(summary.token_p90_ns),
    "ratio": lambda summary: summary.ratio,
    "joules_per_token": lambda summary: (
        None if summary.energy is None else summary.energy.joules_per_token
    ),
    "mean_watts": lambda summary: None if summary.energy is None else summary.energy.mean_watts,
}


def metric_problems(recipe: Recipe) -> Iterable[tuple[tuple[str | int, ...], str]]:
    """Gates on something that is not measured, placed for the loader."""
    for index, gate in enumerate(recipe.gates):
        if gate.metric not in METRICS:
            near = did_you_mean(gate.metric, METRICS) or f"; known are {listed(METRICS)}"
            yield ("gates", index, "metric"), f"no metric {gate.metric!r}{near}"
    until = recipe.repeats_until
    if until and until.metric not in METRICS:
        near = did_you_mean(until.metric, METRICS) or f"; known are {listed(METRICS)}"
        yield ("repeats_until", "metric"), f"no metric {until.metric!r}{near}"
    elif until and until.metric == "ratio":
        yield ("repeats_until", "metric"), "one repeat alone has no ratio; name another metric"


def judge(
    gates: Sequence[Gate],
    summaries: Sequence[VariantSummary],
    parameters: Mapping[str, Mapping[str, Scalar]],
    execution: Execution,
) -> tuple[GateRecord, ...]:
    """Judge every gate on every variant it speaks of.

    Only what ran on a board is judged. A variant without a result passes no gate, nor does one with
    a failed check. A gate that speaks of none of the variants stays open, and is reported.
    ``parameters`` are the recipe's parameters by variant.
    """
    judged: list[GateRecord] = []
    for gate in gates:
        spoken_of = [s for s in summaries if _applies(gate, s, parameters[s.variant])]
        judged += [_judge(gate, summary, execution) for summary in spoken_of]
        if not spoken_of:
            judged.append(_idle(gate))
    return tuple(judged)


def _applies(gate: Gate, summary: VariantSummary, parameters: Mapping[str, Scalar]) -> bool:
    known = {**parameters, "model": summary.model.key}
    return all(known.get(key) == value for key, value in gate.where.items())


def _judge(gate: Gate, summary: VariantSummary, execution: Execution) -> GateRecord:
    value = METRICS[gate.metric](summary)
    passed: bool | None
    if execution is not Execution.BOARD:
        passed, detail = None, f"not judged: {execution}, not measured on a board"
    elif value is None:
        passed, detail = False, "no result"
    else:
        passed = (gate.min is None or value >= gate.min) and (gate.max is None or value <= gate.max)
        detail = f"{value:.4g}"
        if summary.checks_failed:
            # A number that its own checks contradict keeps no promise, however good it looks.
            passed = False
            detail += f", not to be trusted: checks failed: {', '.join(summary.checks_failed)}"
    return GateRecord(
        variant=summary.variant,
        metric=gate.metric,
        limit=limit_of(gate),
        value=value,
        passed=passed,
        detail=detail,
    )


def _idle(gate: Gate) -> GateRecord:
    where = ", ".join(f"{key}={value}" for key, value in gate.where.items())
    return GateRecord(
        variant="no variant",
        metric=gate.metric,
        limit=limit_of(gate),
        value=None,
        passed=None,
        detail=f"not judged: no variant of this run has {where}",
    )


def limit_of(gate: Gate) -> str:
    """Return the bounds of a gate in words, `>= 2 and <= 20`."""
    low = [] if gate.min is None else [f">= {gate.min:g}"]
    high = [] if gate.max is None else [f"<= {gate.max:g}"]
    return " and ".join(low + high)
