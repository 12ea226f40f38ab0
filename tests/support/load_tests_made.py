"""Load tests on disk, of a server in simulated time: with all kinds of ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulated_servers import one_slot, rows_of, stage_of

from labctl.errors import HostError
from labctl.evaluation.serving.directory import REQUESTS, STAGES, LoadTestDirectory
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.results import judge, results_of
from labctl.records.evaluation import EndpointRecord
from labctl.records.run import RunEnd
from labctl.records.serving import (
    LatencyLimits,
    LengthRange,
    RequestRecord,
    ServingRecord,
    StageRecord,
    WorkloadRecord,
)
from labctl.records.trial import Failure

RECIPE = """\
name: checked
models: {m: {declared: {name: Tiny}}}
endpoint: {model: m, url: 'http://127.0.0.1:1', api: openai-chat}
rates: [5]
"""
LOST = Failure.of(HostError("the server is gone", hint="check the server's log"))


@dataclass(frozen=True)
class Load:
    """One load: a rate, its end, its requests; ``failure``: that of every ``each``-th of them."""

    rate: float | None = 5.0
    stop: Any = "done"
    requests: int = 60
    failure: Failure | None = None
    each: int = 1


def made_load_test(
    runs: Path, name: str, loads: Sequence[Load], state: Any, limits: LatencyLimits | None = None
) -> Path:
    """Write a load test of a server of one slot of 100 ms; state None: it has not ended."""
    runs.mkdir(parents=True, exist_ok=True)
    recipe = runs.parent / f"{name}.yaml"
    recipe.write_text(RECIPE)
    resolved = LoadTestRecipe.read(recipe).resolved()
    directory = LoadTestDirectory(runs / f"20261120T22300{len(name) % 10}Z-{name}-abcdef")
    directory.begin()
    record = _record(directory.path.name, resolved)
    if limits is not None:
        record = record.model_copy(update={"limits": limits})
    directory.open_test(record, RECIPE)
    for number, load in enumerate(loads, 1):
        stage = stage_of(load.rate, load.stop, number)
        failure = load.failure if load.stop == "server-lost" else None
        name_of = f"rate {load.rate:g}" if load.rate else "concurrency 1"
        changes = {"name": name_of, "failure": failure, "unfinished": 0 if load.requests else 2}
        directory.append(STAGES, [stage.model_copy(update=changes)])
        directory.append(REQUESTS, _rows(load, stage))
    if state is not None:
        results = results_of(LoadTestDirectory(directory.path))
        gates = judge(results) if state == "finished" else ()
        failed = LOST if state == "failed" else None
        end = RunEnd(state=state, failure=failed, gates=gates, finished=datetime.now(UTC))
        directory.finish(end)
    return directory.path


def _rows(load: Load, stage: StageRecord) -> list[RequestRecord]:
    times = [number / (load.rate or 10.0) for number in range(load.requests)]
    rows = rows_of(times, one_slot(0.1)(times), planned=load.rate is not None)
    good = {"completion_tokens": 8, "counted_by": "usage", "prompt_tokens": 9}
    failed: dict[str, Any] = {"failure": load.failure, "arrivals_ns": ()}
    return [
        row.model_copy(update={"stage": stage.number, **(failed if fails else good)})
        for number, row in enumerate(rows)
        for fails in [load.failure is not None and number % load.each == 0]
    ]


def _record(run: str, resolved: Any) -> ServingRecord:
    return ServingRecord(
        id=run,
        recipe="checked",
        recipe_resolved=resolved,
        endpoint=EndpointRecord(
            name="endpoint",
            api="openai-chat",
            address="http://127.0.0.1:1",
            model="m",
            sha256_proven=False,
        ),
        workload=WorkloadRecord(
            output_tokens=LengthRange(low=8, high=8), ignore_eos=False, prompt_cache="as-served"
        ),
        seed=1,
        request_timeout_s=60.0,
        labctl_version="0.1.0",
        host="here",
        started=datetime.now(UTC),
    )
