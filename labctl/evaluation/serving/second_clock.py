"""The server's own figures of a load beside labctl's, like for like.

A server counts every request, warm-up too, from its own receipt. So labctl's means here are over
all answered requests of the stage, from their real sending. There is a mean of the server only if
it counted as many requests. What it answered for others is known only if each request of this test
had its answer: one that was given up may be counted at its end, later, or never.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from labctl.evaluation.serving.metrics import tokens_of
from labctl.records.serving import CountersGap, RequestRecord, ServerCounters, StageRecord
from labctl.units import counted, duration

#: A difference above both of these is said: a share of the server's mean, and a time. It must also
#: be above the lateness of the client's own stamps.
_APART_SHARE, _APART_NS = 0.10, 5_000_000
#: Generated tokens above both of these are of others: a server may generate a few after a stop.
_MORE_SHARE, _MORE_TOKENS = 0.02, 16


@dataclass(frozen=True)
class SecondClock:
    """Means of one load by the server and by labctl. None: unknown, or not comparable.

    ``own_ttft_count``, ``own_latency_count``: number of requests in labctl's means.
    ``other_requests``, ``other_tokens``: what the server finished, generated beyond this test.
    """

    ttft_ns: float | None
    own_ttft_ns: float | None
    own_ttft_count: int
    latency_ns: float | None
    own_latency_ns: float | None
    own_latency_count: int
    other_requests: int | None
    other_tokens: int | None
    cached_share: float | None


def second_clock(
    stage: StageRecord,
    rows: Sequence[RequestRecord],
    *,
    extra_body: Mapping[str, JsonValue],
) -> SecondClock | None:
    """Return the comparison of a stage with all its rows; None if the server has no counters."""
    found = stage.server
    if found is None:
        return None
    done = [row for row in rows if row.failure is None]
    firsts = [row.arrivals_ns[0] - row.sent_ns for row in done if row.arrivals_ns]
    lasts = [row.done_ns - row.sent_ns for row in done]
    is_alone = len(done) == found.requests_sent and not found.may_count_earlier
    others = None
    if is_alone and found.requests_finished is not None:
        sent = found.requests_sent * _most_counted(extra_body)
        others = max(0, found.requests_finished - sent)
    same_firsts = len(firsts) == found.ttft_count
    same_lasts = len(lasts) == found.latency_count
    cached, prompt = found.cached_prompt_tokens, found.prompt_tokens
    return SecondClock(
        ttft_ns=_mean(found.ttft_sum_ns, found.ttft_count) if same_firsts else None,
        own_ttft_ns=_mean(sum(firsts), len(firsts)) if same_firsts else None,
        own_ttft_count=len(firsts),
        latency_ns=_mean(found.latency_sum_ns, found.latency_count) if same_lasts else None,
        own_latency_ns=_mean(sum(lasts), len(lasts)) if same_lasts else None,
        own_latency_count=len(lasts),
        other_requests=others,
        other_tokens=_other_tokens(found, done) if is_alone else None,
        cached_share=min(1.0, cached / prompt) if cached is not None and prompt else None,
    )


def _most_counted(extra_body: Mapping[str, JsonValue]) -> int:
    """Return for how many requests a server counts one at most.

    One that wants several answers counts for each of them (vLLM), and SGLang counts one more for
    their common prefix (``TokenizerManager._handle_batch_request``).
    """
    asked = [extra_body.get(name) for name in ("n", "best_of")]
    most = max([1, *(one for one in asked if isinstance(one, int))])
    return most if most == 1 else most + 1


def _mean(total: int | None, count: int | None) -> float | None:
    return total / count if total is not None and count else None


def _other_tokens(found: ServerCounters, done: Sequence[RequestRecord]) -> int | None:
    """Return the tokens beyond those of this test; None if its own are not all known."""
    own = [tokens_of(row) for row in done if row.counted_by == "usage"]
    if found.generated_tokens is None or len(own) < found.requests_sent:
        return None
    known = sum(one or 0 for one in own)
    more = found.generated_tokens - known
    return more if more > max(_MORE_TOKENS, _MORE_SHARE * known) else 0


#: What a reader is told of a gap.
_GAPS: Mapping[CountersGap, str] = {
    "rounded": "its counters are not used: the server rounds them, it writes six digits",
    "slow": "partial: /metrics was too slow",
    "look-failed": "partial: /metrics failed",
    "max-time": "partial: max_time was over",
    "no-end": "partial: the load did not end",
}


def sentences(
    clock: SecondClock, counters: ServerCounters, client_lag_ns: int | None
) -> Iterator[str]:
    """Yield what a reader of the figures must know of the server's, one line each.

    ``client_lag_ns``: how late the client's own stamps can be; None: not measured.
    """
    if counters.gap == "another-process":
        yield (
            "the server's own clock is not used: two looks at /metrics were not of the same process"
            " (several servers behind one address, or a restart)"
        )
        return
    parts = []
    pairs = (
        ("TTFT", clock.ttft_ns, clock.own_ttft_ns),
        ("latency", clock.latency_ns, clock.own_latency_ns),
    )
    name, theirs, own = next((pair for pair in pairs if pair[1] is not None), pairs[0])
    if theirs is not None:
        ours = f" (labctl {duration(own)})" if own is not None else ""
        parts.append(f"{name} {duration(theirs)} on average{ours}")
    else:
        parts += list(_other_sets(clock, counters))[:1]
    if counters.running_max is not None:
        parts.append(f"up to {counters.running_max} running")
    if counters.waiting_max is not None:
        parts.append(f"{counters.waiting_max} waiting")
    if counters.cache_usage_max is not None:
        parts.append(f"cache {counters.cache_usage_max:.0%} full")
    if counters.preemptions:
        parts.append(f"{counted(counters.preemptions, 'preemption')}")
    if parts or counters.gap is not None:
        text = ", ".join(parts) or "unknown"
        why = "" if counters.gap is None else f" ({_GAPS[counters.gap]})"
        yield f"by the server's own clock: {text}{why}"
    for name, theirs, own in pairs:
        if theirs is not None and own is not None:
            apart = own - theirs
            if apart > max(_APART_SHARE * theirs, _APART_NS, client_lag_ns or 0):
                yield (
                    f"{duration(apart)} of the {name} lie between the server and labctl: network,"
                    " proxy, a client that is late, or text held back (a stop text)"
                )
                break  # the TTFT is part of the latency
    yield from _of_others(clock)


def _of_others(clock: SecondClock) -> Iterator[str]:
    if clock.other_requests:
        yield (
            f"the server also answered {counted(clock.other_requests, 'request')} of others during"
            " this load: its figures are not of this load alone"
        )
    elif clock.other_tokens:
        yield (
            f"the server also generated {counted(clock.other_tokens, 'token')} for others during"
            " this load: its figures are not of this load alone"
        )


def _other_sets(clock: SecondClock, counters: ServerCounters) -> Iterator[str]:
    """Yield why there is no mean of the server."""
    pairs = (
        ("TTFT", counters.ttft_count, clock.own_ttft_count),
        ("latency", counters.latency_count, clock.own_latency_count),
    )
    for name, theirs, own in pairs:
        if theirs is not None and theirs != own:
            yield f"no mean {name} (it counted {counted(theirs, 'answer')}, labctl has {own})"
