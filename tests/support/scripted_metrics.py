"""A page ``/metrics`` in vLLM's names, with what a scripted endpoint really does.

vLLM counts an answer after it has sent it: ``late_s`` is how long after.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

_LABELS = 'engine="0",model_name="scripted"'
_BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0)


@dataclass
class Histogram:
    """Seconds, as observed."""

    seen: list[float] = field(default_factory=list)

    def lines(self, name: str) -> list[str]:
        found = [f"# HELP {name} Histogram of it.", f"# TYPE {name} histogram"]
        for bound in _BUCKETS:
            below = sum(one <= bound for one in self.seen)
            found.append(f'{name}_bucket{{{_LABELS},le="{bound}"}} {float(below)}')
        count = float(len(self.seen))
        found.append(f'{name}_bucket{{{_LABELS},le="+Inf"}} {count}')
        return [
            *found,
            f"{name}_count{{{_LABELS}}} {count}",
            f"{name}_sum{{{_LABELS}}} {sum(self.seen)}",
        ]


@dataclass
class Counters:
    """What the server counts; ``late_s``: seconds from the end of an answer until it counts."""

    late_s: float = 0.0
    running: int = 0
    waiting: int = 0
    usage: float = 0.125
    finished: int = 0
    generated: int = 0
    prompt: int = 0
    cached: int = 0
    preemptions: int = 0
    ttft: Histogram = field(default_factory=Histogram)
    latency: Histogram = field(default_factory=Histogram)

    def end(
        self, arrived_ns: int, first_ns: int, prompt: int, generated: int, *, answers: int = 1
    ) -> None:
        """Count a request that ends now; vLLM counts each of its answers as a request."""
        now = time.monotonic_ns()
        times_ns = first_ns - arrived_ns, now - arrived_ns
        for _ in range(answers):
            asyncio.get_running_loop().call_later(
                self.late_s, self._count, times_ns, prompt, generated
            )

    def _count(self, times_ns: tuple[int, int], prompt: int, generated: int) -> None:
        self.finished += 1
        self.prompt += prompt
        self.generated += generated
        self.ttft.seen.append(times_ns[0] / 1e9)
        self.latency.seen.append(times_ns[1] / 1e9)

    def restart(self) -> None:
        """Begin at zero, as a restarted server."""
        self.finished = self.generated = self.prompt = 0
        self.ttft, self.latency = Histogram(), Histogram()

    def page(self) -> bytes:
        values: Mapping[str, tuple[str, float]] = {
            "vllm:num_requests_running": ("gauge", self.running),
            "vllm:num_requests_waiting": ("gauge", self.waiting),
            "vllm:kv_cache_usage_perc": ("gauge", self.usage),
            "vllm:prefix_cache_queries_total": ("counter", self.prompt),
            "vllm:prefix_cache_hits_total": ("counter", self.cached),
            "vllm:num_preemptions_total": ("counter", self.preemptions),
            "vllm:prompt_tokens_total": ("counter", self.prompt),
            "vllm:generation_tokens_total": ("counter", self.generated),
        }
        found = ["# HELP python_info Python.", 'python_info{version="3.12"} 1.0']
        for name, (kind, value) in values.items():
            found += [f"# HELP {name} It.", f"# TYPE {name} {kind}"]
            found.append(f"{name}{{{_LABELS}}} {float(value)}")
        found.append("# TYPE vllm:request_success_total counter")
        for reason, count in (("stop", 0), ("length", self.finished), ("abort", 0)):
            label = f'{_LABELS},finished_reason="{reason}"'
            found.append(f"vllm:request_success_total{{{label}}} {float(count)}")
        found += self.ttft.lines("vllm:time_to_first_token_seconds")
        found += self.latency.lines("vllm:e2e_request_latency_seconds")
        return "\n".join([*found, ""]).encode()


@dataclass(frozen=True)
class Page:
    """An answer to a look: a page, after ``wait_s``.

    ``endless``: it repeats for ever, each ``pause_s``. ``breaks_off``: it ends too early.
    """

    body: bytes
    status: int = 200
    wait_s: float = 0.0
    endless: bool = False
    pause_s: float = 0.0
    breaks_off: bool = False
