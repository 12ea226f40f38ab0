"""Times at which the requests of an open loop must be sent."""

import random
from collections.abc import Iterator

from labctl.records.serving import Arrivals


def arrival_times(rate: float, kind: Arrivals, seed: int) -> Iterator[float]:
    """Yield the start times, in s from 0, of ``rate`` requests a second, without end.

    ``poisson``: gaps are exponential, as of independent users; ``constant``: gaps are equal. The
    same seed gives the same times. They are never scaled to make the rate exact.
    """
    source = random.Random(f"arrivals {seed}")  # noqa: S311 - no secret
    at = 0.0
    while True:
        yield at
        at += source.expovariate(rate) if kind == "poisson" else 1 / rate
