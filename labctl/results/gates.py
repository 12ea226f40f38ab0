"""Bounds that a recipe sets on its results."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from labctl.config.recipe import Gate, Recipe
from labctl.config.recipe_parts import Scalar
from labctl.figures.trials import FIGURES, TrialFigure
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunRecord
from labctl.records.trial import TrialRecord
from labctl.results.summary import ESTIMATE, VariantSummary
from labctl.suggestions import did_you_mean, listed
from labctl.units import digits


def _of_summary(figure: TrialFigure) -> Callable[[VariantSummary], float | None]:
    return lambda summary: figure.in_gates(summary.figures[figure.name])


#: Metrics of gates, by their names in recipes. Durations in ms.
METRICS: Mapping[str, Callable[[VariantSummary], float | None]] = {
    **{figure.gate: _of_summary(figure) for figure in FIGURES if figure.may_gate},
    "ratio": lambda summary: summary.ratio,
}
#: Names that ``metric`` accepts, by part of a recipe.
SCHEMA_METRICS = {
    "Gate": (*METRICS,),
    "Precision": tuple(name for name in METRICS if name != "ratio"),
}
#: Metrics that can be compared with another run: only speeds with a known better side.
COMPARED = tuple(figure.gate for figure in FIGURES if figure.is_compared)


#: Engine parameters of a run's variants, by their names.
Parameters = Mapping[str, Mapping[str, Scalar]]
#: Function that judges a run's gates against other runs, from the run's record, trials and
#: parameters.
CompareGates = Callable[[RunRecord, Sequence[TrialRecord], Parameters], tuple[GateRecord, ...]]


def metric_problems(recipe: Recipe) -> Iterable[tuple[tuple[str | int, ...], str]]:
    """Yield problems of gates on unmeasured metrics, each with its place for the loader."""
    for index, gate in enumerate(recipe.gates):
        if gate.metric not in METRICS:
            near = did_you_mean(gate.metric, METRICS) or f"; known are {listed(METRICS)}"
            yield ("gates", index, "metric"), f"no metric {gate.metric!r}{near}"
        elif gate.against is not None and gate.metric not in COMPARED:
            known = listed(COMPARED)
            problem = f"{gate.metric} is not compared with other runs; these are: {known}"
            yield ("gates", index, "metric"), problem
    until = recipe.repeats_until
    if until and until.metric not in METRICS:
        near = did_you_mean(until.metric, METRICS) or f"; known are {listed(METRICS)}"
        yield ("repeats_until", "metric"), f"no metric {until.metric!r}{near}"
    elif until and until.metric == "ratio":
        yield ("repeats_until", "metric"), "a single repeat has no ratio; use another metric"


def judge(
    gates: Sequence[Gate],
    summaries: Sequence[VariantSummary],
    parameters: Parameters,
    execution: Execution,
) -> tuple[GateRecord, ...]:
    """Judge every gate with bounds, for every variant that it applies to.

    Only trials on a board are judged. A variant without a result, or with a failed check, fails
    every gate. A gate that applies to no variant stays open, and is reported. ``parameters``: the
    recipe's parameters by variant.
    """
    judged: list[GateRecord] = []
    for gate in gates:
        if gate.against is None:
            chosen = spoken_of(gate, summaries, parameters)
            judged += [_judge(gate, summary, execution) for summary in chosen]
            judged += [] if chosen else [idle(gate)]
    return tuple(judged)


def leave_open(
    run: RunRecord, _trials: Sequence[TrialRecord], _parameters: Parameters
) -> tuple[GateRecord, ...]:
    """Leave gates against other runs open, with a note: the run has no function to compare."""
    detail = "not judged: the program that started this run does not compare"
    return tuple(open_gate(gate, detail) for gate in comparing_gates(run))


def comparing_gates(run: RunRecord) -> list[Gate]:
    """Return the gates of a run's recipe that name other runs."""
    found = run.recipe_resolved.get("gates")
    gates = [Gate.model_validate(one) for one in found] if isinstance(found, list) else []
    return [gate for gate in gates if gate.against is not None]


def open_gate(gate: Gate, detail: str, variant: str = "all") -> GateRecord:
    """Return the record of a gate that could not or must not be judged."""
    return GateRecord(
        variant=variant,
        metric=gate.metric,
        limit=limit_of(gate),
        value=None,
        passed=None,
        detail=detail,
    )


def spoken_of(
    gate: Gate,
    summaries: Sequence[VariantSummary],
    parameters: Parameters,
) -> list[VariantSummary]:
    """Return the variants that a gate applies to."""
    found = []
    for summary in summaries:
        known = {**parameters[summary.variant], "model": summary.model.key}
        if all(known.get(key) == value for key, value in gate.where.items()):
            found.append(summary)
    return found


def refusal(
    gate: Gate, summary: VariantSummary, execution: Execution
) -> tuple[bool | None, str] | None:
    """Return the judgement and reason for a value that must not pass a gate; None if it may pass.

    Only trials on a board are judged. A value with failed checks fails every gate, however good it
    is.
    """
    if execution is not Execution.BOARD:
        return None, f"not judged: {execution}, not measured on a board"
    if (value := METRICS[gate.metric](summary)) is None:
        return False, "no result"
    if summary.checks_failed:
        names = ", ".join(summary.checks_failed)
        return False, f"{value:.4g}, not to be trusted: checks failed: {names}"
    return None


def _judge(gate: Gate, summary: VariantSummary, execution: Execution) -> GateRecord:
    value = METRICS[gate.metric](summary)
    passed, detail = refusal(gate, summary, execution) or _within(gate, value or 0.0)
    return GateRecord(
        variant=summary.variant,
        metric=gate.metric,
        limit=limit_of(gate),
        value=value,
        estimate=ESTIMATE,
        passed=passed,
        detail=detail,
    )


def _within(gate: Gate, value: float) -> tuple[bool, str]:
    """Return True if a value is within the bounds, and the value with its distance from them."""
    for bound, word, missed in ((gate.min, "below", -1), (gate.max, "above", 1)):
        if bound is not None and (value - bound) * missed > 0:
            share = f"{digits(100 * abs(value / bound - 1), 2)}% " if bound else ""
            return False, f"{value:.4g}, {share}{word} {bound:g}"
    return True, f"{value:.4g}"


def idle(gate: Gate) -> GateRecord:
    """Return the record of a gate that applies to no variant: it stays open."""
    where = ", ".join(f"{key}={value}" for key, value in gate.where.items())
    return open_gate(gate, f"not judged: no variant of this run has {where}", "no variant")


def limit_of(gate: Gate) -> str:
    """Return the bounds of a gate in words, `>= 2 and <= 20`, `against last-good`."""
    if gate.against is not None:
        allowed = "" if gate.tolerance is None else f", {100 * gate.tolerance:g}% allowed"
        return f"against {gate.against}{allowed}"
    low = [] if gate.min is None else [f">= {gate.min:g}"]
    high = [] if gate.max is None else [f"<= {gate.max:g}"]
    return " and ".join(low + high)
