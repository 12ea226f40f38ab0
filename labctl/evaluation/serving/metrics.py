"""Times and rates of a stage, computed from its requests.

The definitions are those of vLLM's ``bench serve`` (vllm/benchmarks/serve.py) and GuideLLM
(docs/guides/metrics.md), where these two agree:

- **TTFT**: from the start of a request to its first piece with a token, whatever its text (vLLM).
  The start is the *intended* send time in an open loop (GuideLLM's scheduled latency: no
  coordinated omission), and the real send time in a closed loop.
- **latency** (E2EL): from the same start to the end of the answer.
- **TPOT**: (end of the answer - first piece) / (tokens after the first piece) of one request, with
  the end token, which has no text. Equals vLLM's definition if the first piece is one token. None
  for an answer of one token or one piece, or if the number of tokens after the first is not known.
- **ITL**: all gaps between two pieces, pooled over all requests, as in vLLM. A piece may
  hold several tokens; ``tokens_per_piece`` says how many.
- **rates**: completed requests or tokens, over the time from the first start to the last end.
- **offered rate**: (requests - 1) / (last - first intended start). Poisson arrivals are not scaled:
  their rate differs from the named rate by about 1 / sqrt(requests).
- **goodput**: completed requests that meet every limit, over the same time. An answer of one token
  has no TPOT and meets its limit (vLLM); a failed request is not good (GuideLLM).

Tokens are counted by the server's ``usage``; pieces are never counted as tokens.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict, TypeVar

from labctl.records.serving import LatencyLimits, RequestRecord
from labctl.stats.describe import percentile
from labctl.stats.intervals import quantile_interval

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Distribution:
    """Statistics of a sample in its unit. ``p99_high``: upper end of the 95 % interval of p99.

    ``p99_high`` None: the sample is too small for an upper limit.
    """

    count: int
    mean: float
    low: float
    p50: float
    p90: float
    p99: float
    p99_high: float | None
    high: float


@dataclass(frozen=True)
class StageMetrics:
    """Figures of one stage, without warm-up. None: unknown.

    ``window_ns``: time base of the rates. ``departures``: rate of ends / offered rate, for the same
    requests; 1 if the server keeps up. ``lateness``: time from the intended to the real sending.
    ``sending_ns``: time from the first to the last intended start. ``outstanding``: number of
    requests without an answer at the last start. ``growth``: median latency of the last quarter
    minus the first quarter's, as a share of ``sending_ns``. ``early_latency_ns``: median of the
    first tenth, before a queue. ``whole_share``: share of answers with several tokens that came all
    at once, so that TTFT equals latency. ``tpot_unknown``: number of answers with several tokens
    but without TPOT. ``hidden_tokens``: tokens of thoughts that were counted but not sent.
    ``unknown_ends``: number of answers whose end has no known reason. ``several_answers``: number
    of requests with several answers each; their ``output_tokens`` are the mean, and TPOT and tokens
    per piece are unknown.
    """

    requests: int
    completed: int
    failed: int
    window_ns: int
    requests_per_second: float
    output_tokens_per_second: float | None
    total_tokens_per_second: float | None
    good: int | None
    goodput: float | None
    good_share: float | None
    offered_per_second: float | None
    departures: float | None
    sending_ns: int | None
    outstanding: int | None
    growth: float | None
    early_latency_ns: float | None
    ttft_ns: Distribution | None
    tpot_ns: Distribution | None
    itl_ns: Distribution | None
    latency_ns: Distribution | None
    lateness_ns: Distribution | None
    asked_prompt_tokens: Distribution | None
    prompt_tokens: Distribution | None
    asked_output_tokens: Distribution | None
    output_tokens: Distribution | None
    cached_share: float | None
    accepted_share: float | None
    tpot_unknown: int
    hidden_tokens: int
    unknown_ends: int
    several_answers: int
    tokens_per_piece: float | None
    whole_share: float | None


def describe(values: Sequence[float], answers: int | None = None) -> Distribution | None:
    """Return the distribution of a sample; None for no values.

    ``answers``: the number of answers if each gave several values. Such values are not independent,
    so the limit of p99 is computed for this number.
    """
    if not values:
        return None
    if answers is None:
        p99_high = quantile_interval(values, 99).high
    else:
        rank = quantile_interval(range(1, answers + 1), 99).high
        p99_high = None if rank is None else percentile(values, 100 * rank / answers)
    return Distribution(
        count=len(values),
        mean=statistics.fmean(values),
        low=min(values),
        p50=percentile(values, 50),
        p90=percentile(values, 90),
        p99=percentile(values, 99),
        p99_high=p99_high,
        high=max(values),
    )


def start_ns(row: RequestRecord) -> int:
    """Return the start from which the times of a request count."""
    return row.sent_ns if row.intended_ns is None else row.intended_ns


def ttft_ns(row: RequestRecord) -> int | None:
    """Return the time to the first piece, or None."""
    return row.arrivals_ns[0] - start_ns(row) if row.arrivals_ns else None


def latency_ns(row: RequestRecord) -> int:
    """Return the time to the end of the answer, or of the attempt."""
    return row.done_ns - start_ns(row)


def lateness_ns(row: RequestRecord) -> int | None:
    """Return the time from the intended to the real sending; None for a closed loop."""
    return None if row.intended_ns is None else row.sent_ns - row.intended_ns


def tpot_ns(row: RequestRecord) -> float | None:
    """Return the time per token after the first piece; None if unknown."""
    tokens = row.tokens_after_first if tokens_of(row) is not None else None
    # Pieces that were read together, for example after a buffering proxy, count as one.
    if not tokens or len(set(row.arrivals_ns)) < 2:
        return None
    return (row.done_ns - row.arrivals_ns[0]) / tokens


def tokens_of(row: RequestRecord) -> int | None:
    """Return the number of tokens of all answers; None if only pieces were counted."""
    return None if row.counted_by == "stream" else row.completion_tokens


def _tokens_of_an_answer(row: RequestRecord) -> float | None:
    tokens = tokens_of(row)
    return tokens if tokens is None or row.answers == 1 else tokens / row.answers


def is_good(row: RequestRecord, limits: LatencyLimits) -> bool:
    """Return True if an answer meets every limit. Without a TTFT it fails a limit of TTFT."""
    if row.failure is not None:
        return False
    ttft, tpot = ttft_ns(row), tpot_ns(row)
    if limits.ttft_ns is not None and (ttft is None or ttft > limits.ttft_ns):
        return False
    if limits.tpot_ns is not None:
        if tpot is None and tokens_of(row) != 1:
            return False
        if tpot is not None and tpot > limits.tpot_ns:
            return False
    return limits.latency_ns is None or latency_ns(row) <= limits.latency_ns


def measure(
    rows: Sequence[RequestRecord], limits: LatencyLimits, unanswered: int = 0
) -> StageMetrics | None:
    """Return the figures of a stage; None if it has no measured request.

    ``unanswered`` requests were cancelled at its end: they have no times, and are not good.
    """
    measured = [row for row in rows if not row.warm_up]
    if not measured:
        return None
    done = [row for row in measured if row.failure is None]
    single = [row for row in done if row.answers == 1]
    window = max(row.done_ns for row in measured) - min(map(start_ns, measured))
    output = _total(done, tokens_of)
    prompt = _total(done, _prompt_tokens)
    both = None if output is None or prompt is None else output + prompt
    good = None if limits == LatencyLimits() else sum(is_good(row, limits) for row in done)

    def per_second(count: float | None) -> float | None:
        return None if count is None or window <= 0 else count / window * 1e9

    return StageMetrics(
        requests=len(measured),
        completed=len(done),
        failed=len(measured) - len(done),
        window_ns=window,
        requests_per_second=per_second(len(done)) or 0.0,
        output_tokens_per_second=per_second(output),
        total_tokens_per_second=per_second(both),
        good=good,
        goodput=per_second(good),
        good_share=None if good is None else good / (len(measured) + unanswered),
        **_of_open_loop(measured, unanswered),
        early_latency_ns=_median_latency(_in_order(done)[: max(5, len(done) // 10)]),
        ttft_ns=_sample(done, ttft_ns),
        tpot_ns=_sample(done, tpot_ns),
        itl_ns=_gaps(done),
        latency_ns=_sample(done, latency_ns),
        lateness_ns=_sample(measured, lateness_ns),
        asked_prompt_tokens=_sample(measured, lambda row: row.asked_prompt_tokens),
        prompt_tokens=_sample(done, _prompt_tokens),
        asked_output_tokens=_sample(measured, lambda row: row.asked_output_tokens),
        output_tokens=_sample(done, _tokens_of_an_answer),
        cached_share=_cached_share(done),
        accepted_share=_accepted_share(done),
        tpot_unknown=sum(tpot_ns(row) is None and tokens_of(row) not in (0, 1) for row in done),
        hidden_tokens=sum(row.hidden_tokens for row in done),
        unknown_ends=sum(row.finish == "unknown" for row in done),
        several_answers=len(done) - len(single),
        tokens_per_piece=_tokens_per_piece(single),
        whole_share=_whole_share(single),
    )


def _known(rows: Sequence[RequestRecord], value: Callable[[RequestRecord], N | None]) -> list[N]:
    return [found for row in rows if (found := value(row)) is not None]


def _sample(
    rows: Sequence[RequestRecord], value: Callable[[RequestRecord], float | None]
) -> Distribution | None:
    return describe(_known(rows, value))


def _total(
    rows: Sequence[RequestRecord], count: Callable[[RequestRecord], int | None]
) -> int | None:
    """Return the sum, or None if a value is unknown."""
    known = _known(rows, count)
    return sum(known) if len(known) == len(rows) else None


def _prompt_tokens(row: RequestRecord) -> int | None:
    return row.prompt_tokens


def _gaps(rows: Sequence[RequestRecord]) -> Distribution | None:
    """Return the gaps between the pieces of all answers together."""
    gaps = [after - before for row in rows for before, after in pairwise(row.arrivals_ns)]
    return describe(gaps, answers=sum(len(row.arrivals_ns) > 1 for row in rows))


def _of_open_loop(rows: Sequence[RequestRecord], unanswered: int) -> "_OpenLoop":
    """Compare the answers with the intended starts; all None for a closed loop.

    Both rates come from the gaps between the first and the last. So they exclude the time of a
    single answer, which is not a sign of a queue.
    """
    starts = [row.intended_ns for row in rows if row.intended_ns is not None]
    if len(starts) < 2 or max(starts) == min(starts):
        return _OpenLoop(
            offered_per_second=None, departures=None, sending_ns=None, outstanding=None, growth=None
        )
    last, sending = max(starts), max(starts) - min(starts)
    offered = (len(starts) - 1) / sending
    done = _in_order([row for row in rows if row.failure is None])
    ends = [row.done_ns for row in done]
    departures, growth = None, None
    if len(ends) >= 2:
        departures = (len(ends) - 1) / max(1, max(ends) - min(ends)) / offered
    quarter = len(done) // 4
    if quarter:
        before, after = _median_latency(done[:quarter]), _median_latency(done[-quarter:])
        assert before is not None
        assert after is not None
        growth = (after - before) / sending
    return _OpenLoop(
        offered_per_second=offered * 1e9,
        departures=departures,
        sending_ns=sending,
        outstanding=sum(row.done_ns > last for row in rows) + unanswered,
        growth=growth,
    )


class _OpenLoop(TypedDict):
    offered_per_second: float | None
    departures: float | None
    sending_ns: int | None
    outstanding: int | None
    growth: float | None


def _in_order(rows: Sequence[RequestRecord]) -> list[RequestRecord]:
    return sorted(rows, key=start_ns)


def _median_latency(rows: Sequence[RequestRecord]) -> float | None:
    return statistics.median(map(latency_ns, rows)) if rows else None


def _cached_share(rows: Sequence[RequestRecord]) -> float | None:
    """Return the share of prompt tokens from a cache; None unless all answers report it."""
    cached, prompt = _total(rows, lambda row: row.cached_tokens), _total(rows, _prompt_tokens)
    return None if cached is None or not prompt else cached / prompt


def _accepted_share(rows: Sequence[RequestRecord]) -> float | None:
    """Return the share of guessed tokens that were right; None if no token was guessed."""
    drafted = sum(_known(rows, lambda row: row.drafted_tokens))
    return sum(_known(rows, lambda row: row.accepted_tokens)) / drafted if drafted else None


def _tokens_per_piece(rows: Sequence[RequestRecord]) -> float | None:
    tokens, pieces = _total(rows, tokens_of), sum(len(row.arrivals_ns) for row in rows)
    if tokens is None or not pieces:
        return None
    return (tokens - sum(row.hidden_tokens for row in rows)) / pieces


def _whole_share(rows: Sequence[RequestRecord]) -> float | None:
    # An answer of one word has two tokens: the second is the end token, without text.
    several = [row for row in rows if row.arrivals_ns and (tokens_of(row) or 0) > 2]
    # Pieces that were read together, for example after a buffering proxy, have one time.
    whole = sum(len(set(row.arrivals_ns)) == 1 for row in several)
    return whole / len(several) if several else None
