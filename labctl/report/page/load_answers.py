"""The answer of a load test: which load the server carries, how sure that is, where it breaks."""

from collections.abc import Iterator, Sequence

from labctl.evaluation.serving.results import LoadTestResults, StageResult
from labctl.evaluation.serving.sweep import FOLLOWS, offered
from labctl.records.serving import LatencyLimits
from labctl.report.load_tables import FEWEST_FOR_P99, TIMES, LimitedTime, load_name
from labctl.report.page.language import Language
from labctl.units import digits, duration


def load_answers(results: LoadTestResults, words: Language) -> Iterator[str]:
    """Yield which load the server carries, how sure that is, and the most answers per second."""
    answered = [
        (one.metrics.requests_per_second, one)
        for one in results.stages
        if one.metrics and one.metrics.completed
    ]
    if not answered:
        yield words("No measured request was answered.")
        return
    rates = [one for one in results.stages if one.stage.rate is not None]
    streams = [one for one in results.stages if one.stage.concurrency is not None]
    if results.knee is not None:
        yield from _of_knee(results, rates, words)
    elif rates:
        yield words(
            "The highest rate that the server follows is not known: fewer than two loads have a"
            " verdict."
        )
    if len(streams) > 1 or not rates:
        yield from _of_streams(results, streams, words)
    rate, best = max(answered, key=lambda pair: pair[0])
    yield words(
        "Most answers per second: {rate}, with a planned load of {load}.",
        rate=digits(rate),
        load=load_name(best.stage),
    )


def _of_knee(
    results: LoadTestResults, rates: Sequence[StageResult], words: Language
) -> Iterator[str]:
    found = results.knee
    assert found is not None
    limited = results.record.limits != LatencyLimits()
    beyond = "" if found.beyond is None else digits(found.beyond)
    if found.rate is None:
        yield words(
            "The server followed no rate; the lowest offered was {beyond} requests/s.",
            beyond=beyond,
        )
    elif found.beyond is None:
        yield words(
            "The server follows {rate} requests/s, the highest rate tried: it is not saturated.",
            rate=digits(found.rate),
        )
    elif limited:
        yield words(
            "Up to {rate} requests/s the server follows, and {least}% of the requests or more keep"
            " every limit; at {beyond} it does not.",
            rate=digits(found.rate),
            least=round(100 * FOLLOWS),
            beyond=beyond,
        )
    else:
        yield words(
            "The server follows {rate} requests/s, and does not follow {beyond}.",
            rate=digits(found.rate),
            beyond=beyond,
        )
    if found.beyond is not None:
        broken = [one for one in rates if offered(one.stage, one.metrics) == found.beyond]
        yield from (_why(one, results, words) for one in broken[:1])
    if found.rate is not None and found.beyond is not None:
        counts = [one.metrics.requests for one in rates if one.metrics and one.follows is not None]
        yield words(
            "How sure: the highest rate lies between these two, by loads of {least} requests or"
            " more; bursts can shift it by some 15%.",
            least=min(counts, default=0),
        )


def _of_streams(
    results: LoadTestResults, streams: Sequence[StageResult], words: Language
) -> Iterator[str]:
    """Yield the highest number of streams up to which the limits are kept."""
    if results.record.limits == LatencyLimits():
        return
    kept: StageResult | None = None
    for one in sorted(streams, key=lambda one: one.stage.concurrency or 0):
        share = one.metrics.good_share if one.metrics else None
        if share is None or share < FOLLOWS:
            if kept is None:
                yield words(
                    "No number of streams keeps the limits; the lowest was {load}.",
                    load=_name(one),
                )
            else:
                yield words(
                    "Up to {load}, {least}% of the requests or more keep every limit; at {beyond}"
                    " they do not.",
                    load=_name(kept),
                    least=round(100 * FOLLOWS),
                    beyond=_name(one),
                )
            yield _why(one, results, words)
            return
        kept = one
    if kept is not None:
        yield words(
            "Up to {load}, the most that was tried, {least}% of the requests or more keep every"
            " limit.",
            load=_name(kept),
            least=round(100 * FOLLOWS),
        )


def _name(one: StageResult) -> str:
    return load_name(one.stage)


def _why(one: StageResult, results: LoadTestResults, words: Language) -> str:
    """Return why a load is too much: the limit that most requests miss, or the queue."""
    found, load = one.metrics, _name(one)
    if one.stage.rate is not None:
        load = words("{rate} requests/s", rate=digits(offered(one.stage, found)))
    if found is None or not found.completed:
        return words("At {load} no request was answered.", load=load)
    share = found.good_share
    missed, times, limit = _most_missed(one, results.record.limits)
    if found.failed > max(missed, 0 if one.behind is None else one.behind * found.requests):
        return words(
            "At {load} {failed} of {count} requests failed.",
            load=load,
            failed=found.failed,
            count=found.requests,
        )
    if times is None or share is None or share >= FOLLOWS:
        if one.behind is not None:
            return words(
                "At {load} the server is behind by {share} of the requests.",
                load=load,
                share=f"{100 * one.behind:.0f}%",
            )
        return words("At {load} the server was too far behind: the load was cut off.", load=load)
    if not missed:
        return words(
            "At {load} {share} of the requests keep every limit: times of the others are unknown.",
            load=load,
            share=_share(share),
        )
    sample = getattr(found, f"{times.key}_ns")
    part = "p99" if sample.count >= FEWEST_FOR_P99 else "p50"
    return words(
        "At {load} {share} of the requests keep every limit: {part} of {figure} is {time}, limit"
        " {limit}.",
        load=load,
        share=_share(share),
        part=part,
        figure=times.title if times.key != "latency" else words("latency"),
        time=duration(getattr(sample, part)),
        limit=duration(limit),
    )


def _share(value: float) -> str:
    return f"{100 * value:.0f}%"


def _most_missed(one: StageResult, limits: LatencyLimits) -> tuple[int, LimitedTime | None, int]:
    """Return the time whose limit (ns) most answers exceed, after their number; None if none is."""

    def missed(times: LimitedTime, limit: int) -> int:
        known = (times.of(row) for row in one.requests if row.failure is None)
        return sum(value is not None and value > limit for value in known)

    limited = [(times, limit) for times in TIMES if (limit := times.limit(limits)) is not None]
    found = [(missed(times, limit), times, limit) for times, limit in limited]
    return max(found, key=lambda one: one[0], default=(0, None, 0))
