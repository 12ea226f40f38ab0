"""Results of a load test, computed from its files, and the judgement of its gates."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.figures import OF_A_STAGE, OF_THE_TEST
from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.recipe import LoadGate, recipe_of
from labctl.evaluation.serving.sweep import FOLLOWS, Knee, knee
from labctl.records import GateRecord, RequestRecord, ServingRecord, StageRecord
from labctl.units import counted, digits, duration

#: A client is late if the 99th percentile of the lateness of its requests or stamps exceeds both of
#: these: a time, and a share of the median latency.
_LATE_NS, _LATE_SHARE = 5_000_000, 0.05
#: Metrics of times between two stamps of one answer: they shrink if all pieces are read late.
_BETWEEN_STAMPS = ("tpot", "itl")
#: Note deviations above this: tokens per piece, length of answers, cached prompt tokens.
_NOTABLE = 0.02


@dataclass(frozen=True)
class StageResult:
    """One load with its figures; ``metrics`` None: no measured request ended."""

    stage: StageRecord
    metrics: StageMetrics | None
    failures: tuple[tuple[str, int], ...] = ()

    @property
    def is_client_late(self) -> bool:
        """True if this computer, and not the server, limits the figures."""
        found = self.metrics
        latency = found.latency_ns.p50 if found and found.latency_ns else 0.0
        lateness = found.lateness_ns.p99 if found and found.lateness_ns else 0.0
        worst = max(lateness, self.stage.client_lag_p99_ns or 0)
        return worst > _LATE_NS and worst > _LATE_SHARE * latency


@dataclass(frozen=True)
class LoadTestResults:
    """All loads of a test, and the knee of its open loops, if there is one."""

    record: ServingRecord
    stages: tuple[StageResult, ...]
    knee: Knee | None


def results_of(directory: LoadTestDirectory) -> LoadTestResults:
    """Compute the results from the files of a test. Raises ConfigError."""
    return make_results(directory.serving(), directory.stages, directory.requests)


def make_results(
    record: ServingRecord, stages: Sequence[StageRecord], requests: Sequence[RequestRecord]
) -> LoadTestResults:
    """Compute the results of stages and their requests."""
    by_stage: defaultdict[int, list[RequestRecord]] = defaultdict(list)
    for row in requests:
        by_stage[row.stage].append(row)
    found = tuple(
        StageResult(
            stage,
            measure(by_stage[stage.number], record.limits, stage.unfinished),
            tuple(
                Counter(
                    row.failure.message
                    for row in by_stage[stage.number]
                    if row.failure and not row.warm_up
                ).most_common()
            ),
        )
        for stage in stages
    )
    return LoadTestResults(record, found, knee((one.stage, one.metrics) for one in found))


def knee_sentence(found: Knee) -> str:
    """Return the knee in words."""
    if found.rate is None:
        return f"the server followed no rate: the lowest was {found.beyond:.4g} requests/s"
    kept = f"follows {found.rate:.4g} requests/s"
    if found.beyond is None:
        return f"{kept}, the highest rate tried: it is not saturated"
    return f"{kept}, and {found.beyond:.4g} no more"


def notes(results: LoadTestResults) -> Iterator[str]:
    """Yield notes for the reader of the figures, one line each."""
    for one in results.stages:
        for text in _of_stage(one, results.record):
            yield f"{one.stage.name}: {text}"
    short = [
        one.metrics.latency_ns.count
        for one in results.stages
        if one.metrics and one.metrics.latency_ns and one.metrics.latency_ns.p99_high is None
    ]
    if short:
        yield (
            f"p99*: {min(short)} requests give no upper limit of the 99th percentile; 368 do (95 %"
            " confidence)"
        )


def _of_stage(one: StageResult, record: ServingRecord) -> Iterator[str]:
    stage, metrics = one.stage, one.metrics
    if stage.failure is not None:
        yield f"ended early ({stage.failure.blame}): {stage.failure.message}"
    elif stage.stop in _CUT:
        yield _CUT[stage.stop]
    if stage.unfinished:
        yield f"{counted(stage.unfinished, 'request')} had no answer at its end; not counted"
    if one.is_client_late:
        lateness = metrics.lateness_ns.p99 if metrics and metrics.lateness_ns else None
        worst = max(filter(None, (lateness, stage.client_lag_p99_ns)))
        yield f"CLIENT LATE by {duration(worst)} (p99): this computer limited the figures"
    for message, count in one.failures[:3]:
        yield f"{count} failed: {message}"
    if metrics is not None:
        yield from _of_tokens(metrics, record)
        if metrics.departures is not None and metrics.departures < FOLLOWS and stage.stop == "done":
            yield f"the server does not follow: answers end at {metrics.departures:.0%} of the rate"


_CUT = {
    "overloaded": "cut off: the server was too far behind; times cover the first requests only",
    "max-time": "cut off at the end of max_time",
    "interrupted": "interrupted",
}


def _of_tokens(metrics: StageMetrics, record: ServingRecord) -> Iterator[str]:
    if metrics.output_tokens_per_second is None and metrics.completed:
        yield "the server did not count the tokens of all answers; pieces are not counted as tokens"
    pieces = metrics.tokens_per_piece
    if pieces is not None and abs(pieces - 1) > _NOTABLE:
        yield f"ITL is between pieces; a piece has {digits(pieces)} tokens on average"
    if metrics.cached_share is not None and metrics.cached_share > _NOTABLE:
        yield f"{metrics.cached_share:.0%} of the prompt tokens came from the server's cache"
    asked, got = metrics.asked_output_tokens, metrics.output_tokens
    if asked and got and got.mean < (1 - _NOTABLE) * asked.mean:
        how = (
            "although ignore_eos was requested" if record.workload.ignore_eos else "see ignore_eos"
        )
        yield (
            f"answers of {got.mean:.0f} tokens on average, {asked.mean:.0f} were requested ({how})"
        )


def judge(results: LoadTestResults) -> tuple[GateRecord, ...]:
    """Judge the gates of a test's recipe. A load without its end misses its gates."""
    judged: list[GateRecord] = []
    for gate in recipe_of(results.record).gates:
        if gate.metric in OF_THE_TEST:
            found = results.knee
            judged.append(_judged(gate, "all", None if found is None else found.rate))
            continue
        chosen = [one for one in results.stages if _is_of(gate, one.stage)]
        for one in chosen:
            value = OF_A_STAGE[gate.metric](one.metrics) if one.metrics else None
            cut_off = one.stage.stop != "done"
            late = one.is_client_late
            judged.append(_judged(gate, one.stage.name, value, late=late, cut_off=cut_off))
        if not chosen:
            judged.append(_judged(gate, "no load", None))
    return tuple(judged)


def _is_of(gate: LoadGate, stage: StageRecord) -> bool:
    if gate.concurrency is not None:
        return stage.concurrency == gate.concurrency
    if gate.rate is not None:
        return stage.rate == gate.rate
    # Figures that only open loops have do not apply to closed ones.
    return stage.rate is not None or not gate.metric.startswith(("departures", "lateness"))


def _judged(
    gate: LoadGate, name: str, value: float | None, *, late: bool = False, cut_off: bool = False
) -> GateRecord:
    low = [] if gate.min is None else [f">= {gate.min:g}"]
    high = [] if gate.max is None else [f"<= {gate.max:g}"]
    passed, spoilt = False, []
    if value is not None:
        passed = (gate.min is None or value >= gate.min) and (gate.max is None or value <= gate.max)
        # A late client makes every time look longer, except times between its stamps.
        if late and (not passed or gate.metric.startswith(_BETWEEN_STAMPS)):
            spoilt.append("the client was late")
        # A load that was cut off did not wait for its slowest answers.
        if cut_off:
            spoilt.append("the load was cut off")
    shown = "no result" if value is None else f"{value:.4g}"
    return GateRecord(
        variant=name,
        metric=gate.metric,
        limit=" and ".join(low + high),
        value=value,
        passed=passed and not spoilt,
        detail=", and ".join([shown, *spoilt]),
    )
