"""A server's own counters, from its page ``/metrics``.

Format: Prometheus text exposition format 0.0.4. Only the lines with the names below are parsed;
labels and texts are not kept. A page is read in small steps, between which other tasks run: vLLM's
page has some 2,000 lines, and the time stamps of a load must not wait.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from labctl.errors import OutputNotUnderstood

Figure = Literal[
    "running",
    "waiting",
    "cache_usage",
    "requests",
    "generated_tokens",
    "prompt_tokens",
    "cached_tokens",
    "preemptions",
    "ttft_s",
    "ttft_count",
    "latency_s",
    "latency_count",
]
#: Current values; the other figures count from the server's start.
GAUGES: Final[tuple[Figure, ...]] = ("running", "waiting", "cache_usage")


@dataclass(frozen=True)
class Snapshot:
    """Figures of one moment, without figures that are not on the page.

    ``started``: start of the process, in s since 1970; None: not on the page. ``is_rounded``: a
    counter is left out because it is too large for the digits that the server writes.
    """

    figures: Mapping[Figure, float]
    started: float | None = None
    is_rounded: bool = False

    @property
    def is_idle(self) -> bool:
        """True if the server reports no request in progress and no request in its queue."""
        return self.figures.get("running") == 0 == self.figures.get("waiting")

    def is_of_same_process(self, later: "Snapshot") -> bool:
        """Return False if a later snapshot is from another or a restarted process.

        Signs: another start time, or a smaller counter.
        """
        if None not in (self.started, later.started) and self.started != later.started:
            return False
        known = [figure for figure in self.figures if figure not in GAUGES]
        if later.is_rounded:
            known = [figure for figure in known if figure in later.figures]
        return all(later.figures.get(one, 0) >= self.figures[one] for one in known)


#: Names on pages. If a page has several names for a figure, the first one counts. Sources:
#:
#: - vLLM 0.32, ``vllm/v1/metrics/loggers.py``; the last two, of 0.6 to 0.9:
#:   ``docs/source/design/v1/metrics.md``. The prefix cache is counted in tokens.
#: - SGLang 0.5, ``python/sglang/srt/metrics/collector.py``.
#: - llama.cpp of 2025-08 and 2026-10, ``tools/server/README.md``, ``get_metrics`` in its source.
#:   ``prompt_tokens_total`` is without cached tokens, so it is not one of our figures.
#: - Text Generation Inference 3, ``docs/source/reference/metrics.md``; histograms in s.
#: - LMDeploy 0.10, ``lmdeploy/metrics/loggers.py``; it adds generated tokens twice, so they are
#:   left out.
NAMES: Mapping[str, Figure] = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "cache_usage",
    "vllm:request_success_total": "requests",
    "vllm:generation_tokens_total": "generated_tokens",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:prefix_cache_hits_total": "cached_tokens",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:time_to_first_token_seconds_sum": "ttft_s",
    "vllm:time_to_first_token_seconds_count": "ttft_count",
    "vllm:e2e_request_latency_seconds_sum": "latency_s",
    "vllm:e2e_request_latency_seconds_count": "latency_count",
    "vllm:gpu_cache_usage_perc": "cache_usage",
    "vllm:gpu_prefix_cache_hits_total": "cached_tokens",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "cache_usage",
    "sglang:num_requests_total": "requests",
    "sglang:generation_tokens_total": "generated_tokens",
    "sglang:prompt_tokens_total": "prompt_tokens",
    "sglang:cached_tokens_total": "cached_tokens",
    "sglang:num_retracted_requests_total": "preemptions",
    "sglang:time_to_first_token_seconds_sum": "ttft_s",
    "sglang:time_to_first_token_seconds_count": "ttft_count",
    "sglang:e2e_request_latency_seconds_sum": "latency_s",
    "sglang:e2e_request_latency_seconds_count": "latency_count",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
    "llamacpp:kv_cache_usage_ratio": "cache_usage",
    "llamacpp:tokens_predicted_total": "generated_tokens",
    "tgi_batch_current_size": "running",
    "tgi_queue_size": "waiting",
    "tgi_request_success": "requests",
    "tgi_request_generated_tokens_sum": "generated_tokens",
    "tgi_request_input_length_sum": "prompt_tokens",
    "tgi_request_duration_sum": "latency_s",
    "tgi_request_duration_count": "latency_count",
    "lmdeploy:num_requests_running": "running",
    "lmdeploy:num_requests_waiting": "waiting",
    "lmdeploy:gpu_cache_usage_perc": "cache_usage",
    "lmdeploy:prompt_tokens_total": "prompt_tokens",
    "lmdeploy:time_to_first_token_seconds_sum": "ttft_s",
    "lmdeploy:time_to_first_token_seconds_count": "ttft_count",
    "lmdeploy:e2e_request_latency_seconds_sum": "latency_s",
    "lmdeploy:e2e_request_latency_seconds_count": "latency_count",
}
#: Start of a process in s since 1970, by Prometheus' client libraries ("Writing client libraries",
#: standard and process collectors).
_START = "process_start_time_seconds"
_BEGINNINGS = tuple({name.encode()[:4] for name in (*NAMES, _START)})
#: Labels of ranks: several ranks of a model may report the same requests.
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
#: llama-server writes six digits: larger counts are not exact, so they are left out.
_SIX_DIGITS, _SIX_DIGITS_BELOW = "llamacpp:", 1e6
#: Larger values are not counts.
_MOST = 1e15
#: Limits of a page, in bytes and parsed lines. One engine of vLLM has 14 such lines.
_MOST_BYTES, _MOST_LINE_BYTES, _MOST_LINES = 4 << 20, 8 << 10, 4000
#: Lines parsed in one turn of the event loop: less than 1 ms.
_LINES_A_TURN = 25

_Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


async def read_page(pieces: AsyncIterator[bytes]) -> Snapshot:
    """Read a page of metrics as it comes. Raises OutputNotUnderstood."""
    found: _Found = {}
    rest, size, lines = b"", 0, 0
    async for piece in pieces:
        size += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        kept = [line for line in whole if _is_known(line)]
        lines += len(kept)
        if size > _MOST_BYTES or lines > _MOST_LINES or len(rest) > _MOST_LINE_BYTES:
            raise OutputNotUnderstood("the server's page of metrics is too long")
        await _parse(kept, found)
    await _parse([rest] if _is_known(rest) else [], found)
    return _figures(found)


def _is_known(line: bytes) -> bool:
    if not line.startswith(_BEGINNINGS):
        return False
    name = line.partition(b"{")[0].split(maxsplit=1)[0]
    name_text = name.decode(errors="replace")
    return name_text in NAMES or name_text == _START


async def _parse(lines: list[bytes], found: _Found) -> None:
    from prometheus_client.parser import text_string_to_metric_families  # takes 30 ms

    for first in range(0, max(1, len(lines)), _LINES_A_TURN):
        await asyncio.sleep(0)  # other tasks have their turn
        some = lines[first : first + _LINES_A_TURN]
        if any(len(line) > _MOST_LINE_BYTES for line in some):
            raise OutputNotUnderstood("the server's page of metrics has too long a line")
        text = b"\n".join(some).decode(errors="replace")
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = {k: v for k, v in sample.labels.items() if k not in _RANKS}
                    _add(found, sample.name, tuple(sorted(labels.items())), sample.value)
        except (ValueError, IndexError) as error:  # IndexError: of an empty label
            raise OutputNotUnderstood(
                "the server's /metrics are not in Prometheus' form"
            ) from error


def _add(found: _Found, name: str, labels: tuple[tuple[str, str], ...], value: float) -> None:
    """Keep a value. If values differ only in the rank of a model, the largest counts."""
    if not 0 <= value <= _MOST:  # also NaN
        value = math.nan
    series = found.setdefault(name, {})
    before = series.get(labels, 0.0)
    series[labels] = math.nan if math.isnan(before + value) else max(before, value)


def _figures(found: _Found) -> Snapshot:
    figures: dict[Figure, float] = {}
    is_rounded = False
    for name, figure in NAMES.items():
        if name in found and figure not in figures:
            values = found[name].values()
            # Counts of several engines are added.
            value = max(values) if figure == "cache_usage" else math.fsum(values)
            if name.startswith(_SIX_DIGITS) and value >= _SIX_DIGITS_BELOW:
                value, is_rounded = math.nan, True
            if figure == "cache_usage" and value > 1:
                value = math.nan
            figures[figure] = value
    if "requests" not in figures and "latency_count" in figures:
        figures["requests"] = figures["latency_count"]
    starts = [value for value in found.get(_START, {}).values() if not math.isnan(value)]
    return Snapshot(
        {figure: value for figure, value in figures.items() if not math.isnan(value)},
        started=starts[0] if len(starts) == 1 else None,
        is_rounded=is_rounded,
    )
