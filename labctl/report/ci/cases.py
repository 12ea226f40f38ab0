"""Test cases of a run: one for each variant that was planned, and one for each gate.

Only measured and judged cases pass. Other cases are in the result too, with the reason: without a
failure on a CI server, all numbers exist.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from labctl.config.recipe import Gate, Recipe
from labctl.errors import Blame, LabctlError
from labctl.figures.trials import FIGURES
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunEnd, RunRecord
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.results.gates import limit_of
from labctl.results.summary import ESTIMATE, VariantSummary, summarise, wanted_precision
from labctl.runs.record.directory import RunDirectory
from labctl.units import counted, duration, plus_minus


class Outcome(StrEnum):
    """Outcome of a case, named as in JUnit's elements."""

    PASSED = "passed"
    FAILED = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Case:
    """One expected result of a recipe's run. ``group``: a name with dots, like a class name.

    ``kind``: kind of failure or doubt. ``message``: sentence with the problem, or the result.
    ``figures``: measured values by name, for CI servers that show their change; ``labels``
    distinguish them. ``file``: the file concerned; "" for the recipe's file.
    """

    recipe: str
    group: str
    name: str
    outcome: Outcome
    kind: str
    message: str
    details: str = ""
    seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


@dataclass(frozen=True)
class Suite:
    """All cases of one or several runs. ``verdict``: their summary in a sentence."""

    name: str
    cases: tuple[Case, ...]
    host: str = ""
    started: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""

    def number(self, outcome: Outcome) -> int:
        """Return the number of cases with an outcome."""
        return sum(case.outcome is outcome for case in self.cases)

    @property
    def failed(self) -> bool:
        """True if a case failed or has an error."""
        return any(case.outcome in (Outcome.FAILED, Outcome.ERROR) for case in self.cases)


def run_suite(
    directory: RunDirectory,
    run: RunRecord,
    trials: Sequence[TrialRecord],
    gates: Sequence[GateRecord],
    *,
    strict: bool = False,
) -> Suite:
    """Return the cases of a run, in the order of its table.

    With ``strict``, a gate that was not judged for any reason is a failure, and so is a result with
    failed checks.
    """
    plan, end = directory.plan(), directory.end()
    group = group_of(run.recipe, run.board)
    rows = {row.variant: row for row in summarise(trials, run.variants, wanted_precision(run))}
    cases = []
    for variant in dict.fromkeys((*run.variants, *(one.variant for one in plan.trials))):
        own = [trial for trial in trials if trial.variant == variant]
        done = {trial.number for trial in own}
        due = [one for one in plan.trials if one.variant == variant and one.repeat > 0]
        row = _Row(
            rows.get(variant),
            own,
            planned=len(due),
            missing=sum(one.number not in done and not one.optional for one in due),
        )
        cases.append(_of_row(group, variant, run, row, end, strict=strict))
    cases += [gate_case(run.recipe, group, gate, strict=strict) for gate in gates]
    if end is None or end.state != "finished":
        cases += _open_gates(group, run)
    return Suite(
        name=f"{run.recipe} on {run.board}",
        cases=tuple(cases),
        host=run.host,
        started=run.started,
        properties=_properties(run),
    )


def refused_suite(recipe: Recipe, board: str, error: LabctlError) -> Suite:
    """Return the cases of a run that did not begin: an error for each variant."""
    group = group_of(recipe.name, board)
    failure = Failure.of(error)
    cases = (
        Case(
            recipe.name,
            f"{group}.{variant.slug}",
            "measured",
            Outcome.ERROR,
            failure.kind,
            f"no result: {failure.message}",
            failure_text([failure]),
        )
        for variant in recipe.variants()
    )
    return Suite(f"{recipe.name} on {board}", tuple(cases))


@dataclass(frozen=True)
class _Row:
    """A variant: summary (None without trials), trials, number of planned and missing trials."""

    summary: VariantSummary | None
    trials: Sequence[TrialRecord]
    planned: int
    missing: int


def _of_row(
    group: str, variant: str, run: RunRecord, row: _Row, end: RunEnd | None, *, strict: bool
) -> Case:
    found = _no_result(row, end)
    if found is None:
        assert row.summary is not None  # else _no_result returns a result
        found = _judged(row.summary, run.facts.execution, strict=strict)
    outcome, kind, message = found
    failures = [trial.failure for trial in row.trials if trial.failure]
    spent = (trial.finished - trial.started for trial in row.trials)
    return Case(
        run.recipe,
        f"{group}.{variant}",
        "measured",
        outcome,
        kind,
        message,
        failure_text(failures),
        sum(one.total_seconds() for one in spent),
        _figures(row.summary),
        {
            "recipe": run.recipe,
            "board": run.board,
            "variant": variant,
            "execution": run.facts.execution,
        },
    )


_Found = tuple[Outcome, str, str]


def _no_result(row: _Row, end: RunEnd | None) -> _Found | None:
    """Return outcome, kind and message of a failed or incomplete variant; else None."""
    failed = [trial for trial in row.trials if trial.state is TrialState.FAILED]
    # Failures of the program come first: failures of host, link or board are not results.
    failed.sort(key=lambda trial: not (trial.failure and trial.failure.blame is Blame.JOB))
    if failed:
        number, failure = failed[0].number, failed[0].failure
        if failure is None:
            return Outcome.ERROR, "no reason", f"trial {number} failed without a reason"
        outcome = Outcome.FAILED if failure.blame is Blame.JOB else Outcome.ERROR
        return outcome, failure.kind, f"trial {number}: {failure.message}"
    if row.missing or row.summary is None:
        kind = end.failure.kind if end and end.failure else "no result"
        number_of = f"{row.missing} of {counted(row.planned, 'trial')}"
        return Outcome.ERROR, kind, f"{number_of} without result: {why_missing(end)}"
    if not row.summary.trials_ok:
        return Outcome.SKIPPED, "skipped", row.summary.skip_reason or "nothing was to be measured"
    return None


def _judged(summary: VariantSummary, execution: Execution, *, strict: bool) -> _Found:
    """Return outcome, kind and message of a measured variant."""
    value = _value(summary)
    if summary.checks_failed:
        names = ", ".join(summary.checks_failed)
        doubt = Outcome.FAILED if strict else Outcome.SKIPPED
        return doubt, "checks failed", f"{value}, not to be trusted: checks failed: {names}"
    if execution is not Execution.BOARD:
        return Outcome.SKIPPED, str(execution), f"{value}, but {execution}: not judged"
    if summary.trials_skipped:
        why = f"{value}, but {counted(summary.trials_skipped, 'trial')} skipped"
        return Outcome.SKIPPED, "skipped", f"{why}: {summary.skip_reason}"
    if not summary.checked:
        return Outcome.SKIPPED, "not judged", f"{value}, but no check applied to each trial"
    return Outcome.PASSED, "", value


def why_missing(end: RunEnd | None) -> str:
    """Return why a run has no more results."""
    if end is None:
        return "the run has not ended, or its controller died"
    return end.failure.message if end.failure else f"the run is {end.state}"


def _value(row: VariantSummary) -> str:
    """Return the estimate of a variant with its interval, for people."""
    if row.token_ns is None:
        return counted(row.trials_ok, "good trial")
    known = row.token_interval
    spread = ""
    if known and not known.is_vague:
        spread = f" {plus_minus(row.token_ns, known.low, known.high)}"
    few = "" if row.trials_timed == row.trials_ok else f"{row.trials_timed} of "
    of = f"{few}{counted(row.trials_ok, 'good trial')}"
    return f"{duration(row.token_ns)} per token{spread} ({ESTIMATE} of {of})"


def _figures(row: VariantSummary | None) -> dict[str, float]:
    """Return the figures that have a better side."""
    if row is None or not row.trials_ok:
        return {}
    found = {one.name: row.figures[one.name] for one in FIGURES if one.over and one.better}
    return {name: value for name, value in found.items() if value is not None}


def gate_case(recipe: str, group: str, gate: GateRecord, *, strict: bool) -> Case:
    """Return the case of a gate; with ``strict``, one that was not judged is a failure."""
    if gate.passed is None:
        outcome, kind = Outcome.FAILED if strict else Outcome.SKIPPED, "gate not judged"
    elif gate.passed:
        outcome, kind = Outcome.PASSED, ""
    elif gate.value is None:
        outcome, kind = Outcome.ERROR, "no result"
    else:
        outcome, kind = Outcome.FAILED, "gate missed"
    name = f"gate {gate.metric} {gate.limit}"
    return Case(recipe, f"{group}.{gate.variant}", name, outcome, kind, gate.detail)


def _open_gates(group: str, run: RunRecord) -> Iterator[Case]:
    """Yield the gates that were not judged because the run ended earlier."""
    wanted = run.recipe_resolved.get("gates")
    for document in wanted if isinstance(wanted, list) else []:
        gate = Gate.model_validate(document)
        yield Case(
            run.recipe,
            f"{group}.gates",
            f"gate {gate.metric} {limit_of(gate)}",
            Outcome.SKIPPED,
            "gate not judged",
            "the run ended before its gates were judged",
        )


def _properties(run: RunRecord) -> dict[str, str]:
    found = {
        "run": run.id,
        "target": run.target,
        "execution": str(run.facts.execution),
        "labctl": run.labctl_version,
        "lab_revision": run.lab_revision or "",
    }
    for build in run.artifacts:
        found[f"build {build.product}"] = f"{build.version} {build.commit or build.key}"
    for model in run.models:
        found[f"model {model.key}"] = f"{model.file} sha256:{model.sha256}"
    return found


def failure_text(failures: Sequence[Failure]) -> str:
    """Return failures with their evidence and hints, each line once."""
    lines = []
    for one in failures:
        lines.append(f"{one.kind} ({one.blame}): {one.message}")
        lines += [one.details] if one.details else []
        lines += [f"hint: {one.hint}"] if one.hint else []
    return "\n".join(dict.fromkeys(lines))


def group_of(recipe: str, board: str) -> str:
    """Return the first part of a case's group; dots in an address are replaced."""
    return f"{recipe}.{board.replace('.', '_')}"
