"""Compute the results of a load test from its files, and judge its gates."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.figures import BY_GATE, OF_THE_TEST
from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.recipe import LoadGate, LoadTestRecipe
from labctl.evaluation.serving.second_clock import (
    SecondClock,
    second_clock,
    sentences,
)
from labctl.evaluation.serving.sweep import (
    Knee,
    allowance,
    behind,
    follows,
    knee,
    offered,
    own_latency_ns,
    too_short,
)
from labctl.records.run import GateRecord
from labctl.records.serving import RequestRecord, ServingRecord, StageRecord
from labctl.units import counted, digits, duration

#: A client is late if the 99th percentile of the lateness of its requests or stamps exceeds both
#: limits: a time, and a share of the median latency.
_LATE_NS, _LATE_SHARE = 5_000_000, 0.05
#: Metrics between two stamps of one answer; they shrink if all pieces are read late.
_BETWEEN_STAMPS = ("tpot", "itl")
#: Limits of deviations without a note: tokens per piece, length of answers, cached prompt tokens.
_NOTABLE = 0.02


@dataclass(frozen=True)
class StageResult:
    """One load with its figures. ``metrics`` None: no measured request ended.

    ``requests``: measured requests in the order of their ends. ``follows``: the server followed the
    rate; None: no verdict, for the reason ``undecided``. ``clock``: comparison with the server's
    own figures; None: not available.
    """

    stage: StageRecord
    metrics: StageMetrics | None
    requests: tuple[RequestRecord, ...] = ()
    failures: tuple[tuple[str, int], ...] = ()
    follows: bool | None = None
    undecided: str | None = None
    behind: float | None = None
    clock: SecondClock | None = None

    @property
    def is_client_late(self) -> bool:
        """True if this computer, not the server, limits the figures."""
        found, worst = self.metrics, self.client_lateness_ns
        if found is None or found.latency_ns is None or worst is None:
            return False  # no answer, so no times
        return worst > max(_LATE_NS, _LATE_SHARE * found.latency_ns.p50)

    @property
    def client_lateness_ns(self) -> float | None:
        """Lateness of this computer, p99: of requests or of time stamps; None: unknown."""
        sent = self.metrics.lateness_ns if self.metrics else None
        known = (sent.p99 if sent else None, self.stage.client_lag_p99_ns)
        return max((one for one in known if one is not None), default=None)


@dataclass(frozen=True)
class LoadTestResults:
    """All loads of a test, and the knee of its open loops, if any."""

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
    measured = [
        (stage, measure(by_stage[stage.number], record.limits, stage.unfinished))
        for stage in stages
    ]
    latency = own_latency_ns(measured)
    found = []
    for stage, metrics in measured:
        rows = by_stage[stage.number]
        extra = record.workload.extra_body
        clock = second_clock(stage, rows, extra_body=extra)
        found.append(replace(_result(stage, metrics, rows, latency), clock=clock))
    return LoadTestResults(record, tuple(found), knee(measured))


def _result(
    stage: StageRecord,
    metrics: StageMetrics | None,
    rows: Sequence[RequestRecord],
    latency_ns: float | None,
) -> StageResult:
    measured = tuple(row for row in rows if not row.warm_up)
    failed = (row.failure.message for row in measured if row.failure)
    is_judged = stage.rate is not None and stage.stop == "done" and metrics is not None
    is_rated = is_judged and metrics is not None and metrics.departures is not None
    return StageResult(
        stage,
        metrics,
        measured,
        tuple(Counter(failed).most_common()),
        follows(stage, metrics, latency_ns),
        too_short(metrics, latency_ns) if is_judged and metrics else None,
        behind(metrics, latency_ns) if is_rated and metrics else None,
    )


def notes(results: LoadTestResults) -> Iterator[str]:
    """Yield notes for readers of the figures, one line each."""
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
            f"p99*: {min(short)} requests give no upper limit of the 99th percentile; 368 do (95%"
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
        worst = duration(one.client_lateness_ns)
        yield f"CLIENT LATE by {worst} (p99): this computer limited the figures"
    for message, count in one.failures[:3]:
        yield f"{count} failed: {message}"
    if metrics is not None:
        yield from _of_tokens(metrics, record)
        yield from _of_rate(one, metrics)
    if one.clock is not None and stage.server is not None:
        if metrics is None or metrics.cached_share is None:
            yield from _of_cache(one.clock)
        yield from sentences(one.clock, stage.server, stage.client_lag_p99_ns)


def _of_rate(one: StageResult, metrics: StageMetrics) -> Iterator[str]:
    if one.undecided is not None:
        yield f"no verdict on the rate: {one.undecided}"
    elif (
        one.follows is False
        and one.behind is not None
        and one.behind > allowance(one.stage, metrics)
    ):
        rate = offered(one.stage, metrics)
        yield (
            f"the server does not follow {digits(rate)}/s: it is behind by {one.behind:.0%} of the"
            f" requests; {counted(metrics.outstanding or 0, 'request')} had no answer when the last"
            " was to be sent"
        )


def _of_cache(clock: SecondClock) -> Iterator[str]:
    if clock.cached_share is not None and clock.cached_share > _NOTABLE:
        yield (
            f"{clock.cached_share:.0%} of the prompt tokens came from the server's cache, by its"
            " own counters: it does not report them with each answer"
        )


_CUT = {
    "overloaded": "cut off: the server was too far behind; times cover the first requests only",
    "max-time": "cut off at the end of max_time",
    "interrupted": "interrupted",
}


def _of_tokens(metrics: StageMetrics, record: ServingRecord) -> Iterator[str]:
    if metrics.output_tokens_per_second is None and metrics.completed:
        yield "the server did not count the tokens of all answers; pieces are not counted as tokens"
    if metrics.whole_share is not None and metrics.whole_share > _NOTABLE:
        yield (
            f"{metrics.whole_share:.0%} of the answers of several tokens came all at once: their"
            " TTFT is their latency (the server does not stream, or a proxy holds the text back)"
        )
    pieces = metrics.tokens_per_piece
    if pieces is not None and abs(pieces - 1) > _NOTABLE:
        yield (f"ITL is between pieces; a piece has {digits(pieces)} tokens on average")
    if metrics.tpot_unknown and metrics.output_tokens_per_second is not None:
        why = "the server does not say how many tokens came after the first piece"
        if metrics.several_answers:
            why = "the requests asked for several answers each (n), which are counted together"
        yield f"TPOT of {metrics.tpot_unknown} of {metrics.completed} answers is unknown: {why}"
    if metrics.hidden_tokens:
        yield (
            f"{metrics.hidden_tokens / metrics.completed:.0f} tokens of an answer on average were"
            " thoughts that the server did not send: they are part of TTFT, not of TPOT"
        )
    if metrics.unknown_ends:
        yield f"the server did not say why {counted(metrics.unknown_ends, 'answer')} ended"
    if metrics.cached_share is not None and metrics.cached_share > _NOTABLE:
        yield f"{metrics.cached_share:.0%} of the prompt tokens came from the server's cache"
    if metrics.accepted_share is not None:
        yield f"{metrics.accepted_share:.0%} of the tokens that the server guessed were right"
    asked, got = metrics.asked_output_tokens, metrics.output_tokens
    if asked and got and got.mean < (1 - _NOTABLE) * asked.mean:
        how = (
            "although ignore_eos was requested" if record.workload.ignore_eos else "see ignore_eos"
        )
        yield (
            f"answers of {got.mean:.0f} tokens on average, {asked.mean:.0f} were requested ({how})"
        )


def judge(results: LoadTestResults) -> tuple[GateRecord, ...]:
    """Judge the gates of a test's recipe. A load without an end misses its gates.

    A load with too many failed requests misses an extra gate, and so does a test without an answer:
    so every reader of the run agrees with the exit status.
    """
    recipe = LoadTestRecipe.of_run(results.record)
    judged = list(_failures(results, recipe))
    for gate in recipe.gates:
        if gate.metric in OF_THE_TEST:
            found = results.knee
            judged.append(_judged(gate, "all", None if found is None else found.rate))
            continue
        chosen = [one for one in results.stages if _is_of(gate, one.stage)]
        for one in chosen:
            figure = BY_GATE[gate.metric]
            value = figure.in_gates(figure.value(one.metrics)) if one.metrics else None
            cut_off = one.stage.stop != "done"
            late = one.is_client_late
            unknown = one.metrics.tpot_unknown if one.metrics and "tpot" in gate.metric else 0
            judged.append(
                _judged(gate, one.stage.name, value, late=late, cut_off=cut_off, unknown=unknown)
            )
        if not chosen:
            judged.append(_judged(gate, "no load", None))
    return tuple(judged)


def _failures(results: LoadTestResults, recipe: LoadTestRecipe) -> Iterator[GateRecord]:
    limit = LoadGate(metric="failed_share", max=recipe.max_failed)
    own = [gate for gate in recipe.gates if gate.metric == limit.metric]
    for one in results.stages:
        share = one.metrics.failed / one.metrics.requests if one.metrics else 0.0
        if share > recipe.max_failed and not any(_is_of(gate, one.stage) for gate in own):
            yield _judged(limit, one.stage.name, share)
    if not any(one.metrics and one.metrics.completed for one in results.stages):
        answered = LoadGate(metric="requests_per_second", min=0)
        yield _judged(answered, "all", None)


def _is_of(gate: LoadGate, stage: StageRecord) -> bool:
    if gate.concurrency is not None:
        return stage.concurrency == gate.concurrency
    if gate.rate is not None:
        return stage.rate == gate.rate
    # Figures that only open loops have do not apply to closed ones.
    return stage.rate is not None or not gate.metric.startswith(
        ("departures", "lateness", "offered")
    )


def _judged(
    gate: LoadGate,
    name: str,
    value: float | None,
    *,
    late: bool = False,
    cut_off: bool = False,
    unknown: int = 0,
) -> GateRecord:
    low = [] if gate.min is None else [f">= {gate.min:g}"]
    high = [] if gate.max is None else [f"<= {gate.max:g}"]
    passed, spoilt = False, []
    if value is not None:
        passed = (gate.min is None or value >= gate.min) and (gate.max is None or value <= gate.max)
        # A late client makes every time look longer, except times between its stamps.
        if late and (not passed or gate.metric.startswith(_BETWEEN_STAMPS)):
            spoilt.append("the client was late")
        # An interrupted load did not wait for its slowest answers.
        if cut_off:
            spoilt.append("the load was cut off")
        if unknown:
            spoilt.append(f"{counted(unknown, 'answer')} without it")
    shown = "no result"
    if value is not None:
        shown = f"{value:.4g}" if value < 9999.5 else f"{value:.0f}"
    return GateRecord(
        variant=name,
        metric=gate.metric,
        limit=" and ".join(low + high),
        value=value,
        passed=passed and not spoilt,
        detail=", and ".join([shown, *spoilt]),
    )
