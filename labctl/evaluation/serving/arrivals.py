"""Send times of the requests of an open loop."""

import random
from collections.abc import Iterator

from labctl.records.serving import Arrivals


def arrival_times(rate: float, kind: Arrivals, seed: int) -> Iterator[float]:
    """Yield endlessly the start times, in s from 0, of ``rate`` requests per second.

    ``poisson``: gaps are exponential, as with independent users; ``constant``: gaps are equal. The
    same seed gives the same times. Times are never scaled to make the rate exact.
    """
    source = random.Random(f"arrivals {seed}")  # noqa: S311 - no secret
    at = 0.0
    while True:
        yield at
        at += source.expovariate(rate) if kind == "poisson" else 1 / rate
