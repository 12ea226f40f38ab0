"""Test cases of a load test: one for each load that was planned or begun, and one for each gate."""

from collections.abc import Iterator, Sequence

from labctl.errors import Blame
from labctl.evaluation.serving.figures import OF_A_LOAD
from labctl.evaluation.serving.preview import load_plan
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.results import LoadTestResults, StageResult
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunEnd
from labctl.records.trial import Failure
from labctl.report.ci.cases import (
    Case,
    Outcome,
    Suite,
    failure_text,
    gate_case,
    group_of,
    why_missing,
)
from labctl.units import counted, digits, duration


def load_test_suite(
    results: LoadTestResults,
    gates: Sequence[GateRecord],
    end: RunEnd | None,
    *,
    strict: bool = False,
) -> Suite:
    """Return the cases of a load test, in the order of its table.

    With ``strict``, a load whose figures are not to be trusted is a failure.
    """
    record = results.record
    group = group_of(record.recipe, record.endpoint.board or record.endpoint.name)
    cases = [_of_load(one, results, group, strict=strict) for one in results.stages]
    cases += _not_begun(results, group, end)
    cases += [gate_case(record.recipe, group, gate, strict=strict) for gate in gates]
    return Suite(
        name=f"{record.recipe}: load test",
        cases=tuple(cases),
        host=record.host,
        started=record.started,
        properties={
            "run": record.id,
            "server": record.endpoint.server or "",
            "execution": str(record.endpoint.execution or ""),
            "labctl": record.labctl_version,
            "lab_revision": record.lab_revision or "",
        },
    )


def _of_load(one: StageResult, results: LoadTestResults, group: str, *, strict: bool) -> Case:
    record, stage = results.record, one.stage
    outcome, kind, message = _found(one, record.endpoint.execution, strict=strict)
    failures: dict[str, Failure] = {}
    for failure in (stage.failure, *(row.failure for row in one.requests)):
        if failure is not None:
            failures.setdefault(failure.message, failure)
    return Case(
        record.recipe,
        f"{group}.{stage.name}",
        "measured",
        outcome,
        kind,
        message,
        failure_text(list(failures.values())[:3]),
        max((row.done_ns / 1e9 for row in one.requests), default=0.0),
        _figures(one),
        {
            "recipe": record.recipe,
            "board": record.endpoint.board or "",
            "load": stage.name,
            "execution": str(record.endpoint.execution or ""),
        },
    )


def _figures(one: StageResult) -> dict[str, float]:
    """Return the figures that have a better side."""
    if one.metrics is None:
        return {}
    found = {figure.name: figure.value(one.metrics) for figure in OF_A_LOAD if figure.better}
    return {name: value for name, value in found.items() if value is not None}


def _found(
    one: StageResult, execution: Execution | None, *, strict: bool
) -> tuple[Outcome, str, str]:
    """Return outcome, kind and message of a load."""
    stage, found = one.stage, one.metrics
    if stage.failure is not None:
        outcome = Outcome.FAILED if stage.failure.blame is Blame.JOB else Outcome.ERROR
        return outcome, stage.failure.kind, stage.failure.message
    if found is None or not found.completed:
        failed = counted(found.failed if found else 0, "failed request")
        return Outcome.ERROR, "no result", f"no request was answered, {failed}"
    latency = found.latency_ns.p50 if found.latency_ns else None
    value = (
        f"{found.completed} of {counted(found.requests + stage.unfinished, 'request')} answered,"
        f" {digits(found.requests_per_second)}/s, median latency {duration(latency)}"
    )
    doubt = Outcome.FAILED if strict else Outcome.SKIPPED
    if one.is_client_late:
        return doubt, "client late", f"{value}, but this computer limited the figures"
    if execution not in (None, Execution.BOARD):
        return Outcome.SKIPPED, str(execution), f"{value}, but {execution}: not judged"
    if stage.stop != "done":
        return doubt, stage.stop, f"{value}, but the load was cut off ({stage.stop})"
    return Outcome.PASSED, "", value


def _not_begun(results: LoadTestResults, group: str, end: RunEnd | None) -> Iterator[Case]:
    """Yield the loads of the recipe that have no record."""
    begun = {one.stage.name for one in results.stages}
    for load in load_plan(LoadTestRecipe.of_run(results.record)).loads:
        if load.name not in begun:
            why = (
                why_missing(end) if end is None or end.state != "finished" else "max_time was over"
            )
            yield Case(
                results.record.recipe,
                f"{group}.{load.name}",
                "measured",
                Outcome.ERROR,
                "no result",
                f"the load did not begin: {why}",
            )
