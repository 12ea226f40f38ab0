"""Ratios of interleaved runs: on a shared machine, absolute times say little."""

import math
import statistics
import time
from collections.abc import Callable, Mapping


def medians(rounds: int, work: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each piece of work, done in turns."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, function in work.items():
            began = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def show(what: str, found: Mapping[str, float], base: str) -> None:
    """One line a piece of work: its median, and its ratio to the base's."""
    print(f"\n{what} (medians of interleaved runs)")
    for name, seconds in found.items():
        print(f"  {name:32} {seconds * 1e3:10.2f} ms   {seconds / found[base]:6.2f} x {base}")


def median_interval(values: list[float]) -> tuple[float, float]:
    """At least 95 % confidence for the median, free of any distribution (binomial)."""
    ordered, n = sorted(values), len(values)
    below, outside = 0.0, -1
    while below + math.comb(n, outside + 1) / 2**n <= 0.025:
        outside += 1
        below += math.comb(n, outside) / 2**n
    return ordered[outside], ordered[-outside - 1]
