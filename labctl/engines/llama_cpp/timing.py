"""Combine performance lines and timeline in one record."""

import re

from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.arrivals import (
    TAIL,
    Arrivals,
    as_text,
    clocks_check,
    find_arrivals,
    find_tokens,
)
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.engines.llama_cpp.perf_lines import Perf, has_performance, has_total, parse_perf
from labctl.engines.timeline import TokenTimes, arrivals_check, parse_timeline
from labctl.errors import OutputNotUnderstood
from labctl.records.timing import SpanCheck, StopReason, TimingRecord
from labctl.records.trial import Check

#: Allowed ratio of the timeline's span to the program's. Measured: 0.987 to 0.998.
SPAN_TOLERANCE = 0.02
#: Minimum time of a token: faster tokens merge into chunks.
SPAN_LEAST_TOKEN_NS = 5_000_000
#: ``src/llama-mmap.cpp``; it prints nothing on success.
_NOT_LOCKED = re.compile(rb"warning: (failed to mlock|mlock not supported|failed to VirtualLock)")


#: Beginning of a log line in versions with a printing thread.
_LOGGED = re.compile(rb"^[0-9]{1,6}\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} [A-Z] ", re.MULTILINE)


def is_cut(raw: RawOutput) -> bool:
    """Return True if output is missing at the end, in a version that may lose its last output.

    The text comes first, then the performance lines. Output with a complete text and without any of
    these lines has another form, which :func:`parse` refuses.
    """
    if has_total(raw.stderr) or _LOGGED.search(raw.stderr) is None:
        return False
    return not raw.stdout.endswith(TAIL) or has_performance(raw.stderr)


def parse(raw: RawOutput, parameters: LlamaCppParameters) -> TimingRecord:
    """See :meth:`labctl.engines.base.Engine.parse`."""
    timeline = parse_timeline(raw.timeline)
    printed = as_text(raw) if parameters.log_jsonl else raw
    # Check this first: without these lines, the program may not be llama.cpp.
    perf = parse_perf(printed.stderr, limit=parameters.tokens)
    clocks = None
    if parameters.log_jsonl:
        arrivals, clocks = find_tokens(raw.stdout, timeline)
    else:
        arrivals = find_arrivals(raw.stdout, raw.stderr, timeline)
    generated = perf.generated_tokens
    if generated < arrivals.tokens:
        raise OutputNotUnderstood(
            f"stdout came in {arrivals.tokens} pieces, but llama.cpp reports {generated} generated"
            " tokens",
            hint="something else wrote to stdout: a prompt echo, a wrapper, a log",
        )
    times = TokenTimes.of(
        arrivals.times_ns,
        generated,
        first=arrivals.unseen_first(perf),
        last=arrivals.unseen_last(perf),
        held=arrivals.held,
        step_ns=perf.decode_ns / perf.decode_steps if perf.decode_steps else None,
    )
    all_steps_ns = _all_steps_ns(perf, arrivals, times)
    if all_steps_ns is not None and (times.first or times.last):
        times = times.confirmed_by(all_steps_ns / perf.decode_steps)
    return TimingRecord(
        load_ns=perf.load_ns,
        prompt_eval_ns=perf.prompt_eval_ns,
        prompt_tokens=perf.prompt_tokens,
        eval_ns=perf.eval_ns,
        eval_runs=perf.eval_runs,
        sampling_ns=perf.sampling_ns,
        total_ns=perf.total_ns,
        perf_format=perf.form,
        generated_tokens=generated,
        stop_reason=_stop_reason(parameters, perf, arrivals),
        counted_by="program",
        ttft_ns=None if times.first != 0 else arrivals.times_ns[0] - arrivals.start_ns,
        arrivals=len(arrivals.times_ns),
        unseen_first=times.first,
        unseen_last=times.last,
        token_ns=times.gaps_ns,
        merged_chunks=times.merged,
        p50_ns=times.p50_ns,
        p90_ns=times.p90_ns,
        p99_ns=times.p99_ns,
        mean_ns=times.mean_ns,
        tokens_per_second=times.per_second,
        span=_span_check(perf, all_steps_ns, warmup=parameters.warmup is not False),
        clocks=clocks,
        memory_locked=_NOT_LOCKED.search(raw.stderr) is None if parameters.mlock else None,
    )


def checks(timing: TimingRecord, parameters: LlamaCppParameters) -> tuple[Check, ...]:
    """See :meth:`labctl.engines.base.Engine.checks`."""
    count = Check(
        name="tokens",
        ok=timing.generated_tokens == parameters.tokens if parameters.ignore_eos else None,
        detail=f"{timing.generated_tokens} of {parameters.tokens} generated,"
        f" stopped by {timing.stop_reason}",
    )
    clocks = (clocks_check(timing.clocks),) if timing.clocks else ()
    return count, arrivals_check(timing), _span(timing), *clocks, *_locked(timing)


def _span(timing: TimingRecord) -> Check:
    if timing.span is None:
        return Check(name="span", ok=None, detail="fewer than two tokens")
    return Check(
        name="span",
        ok=timing.span.within if timing.span.applies else None,
        detail=f"timeline / (total - prompt eval) = {timing.span.ratio:.4f}",
    )


def _locked(timing: TimingRecord) -> tuple[Check, ...]:
    if timing.memory_locked is None:
        return ()
    detail = "no word of the contrary" if timing.memory_locked else "the board did not permit all"
    return (Check(name="mlock", ok=timing.memory_locked, detail=detail),)


def _stop_reason(parameters: LlamaCppParameters, perf: Perf, arrivals: Arrivals) -> StopReason:
    if arrivals.ended_text:
        return "end-of-generation"
    if perf.generated_tokens == parameters.tokens:
        return "limit"
    # Only debug logs of some versions show it, so compute it.
    if (perf.prompt_tokens or 1) + perf.generated_tokens >= parameters.context:
        return "context-full"
    return "unknown"


def _all_steps_ns(perf: Perf, arrivals: Arrivals, times: TokenTimes) -> int | None:
    """Return the span of the arrivals plus the steps at its ends without a visible token, in ns."""
    if times.span_ns is None:
        return None
    before = (arrivals.before_ns(perf.prompt_eval_ns) or 0) if times.first else 0
    return times.span_ns + before + (arrivals.after_ns if times.last else 0)


def _span_check(perf: Perf, span_ns: int | None, *, warmup: bool) -> SpanCheck | None:
    """Check the timeline's span of all decode steps against its bounds.

    It contains all decode steps, so it cannot be shorter than these. It is part of ``total`` after
    the prompt, so it cannot be longer than that part. Both bounds are close together, except in
    runs of a few fast tokens, where tokenizing and similar work takes more.
    """
    reported = perf.after_prompt_ns(warmup=warmup)
    if span_ns is None or reported <= 0:
        return None
    ratio = span_ns / reported
    shortest = min(perf.decode_ns, reported) * (1 - SPAN_TOLERANCE)
    return SpanCheck(
        timeline_ns=span_ns,
        reported_ns=reported,
        ratio=ratio,
        within=shortest <= span_ns <= reported * (1 + SPAN_TOLERANCE),
        applies=reported >= SPAN_LEAST_TOKEN_NS * perf.decode_steps,
    )
