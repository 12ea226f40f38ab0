"""Times at which the requests of an open loop are to be sent."""

import random
from collections.abc import Iterator

from labctl.records.serving import Arrivals


def arrival_times(rate: float, kind: Arrivals, seed: int) -> Iterator[float]:
    """Yield the seconds, from 0, of requests that come ``rate`` times a second, without end.

    ``poisson``: gaps are exponential, so that users who know nothing of each other are imitated;
    ``constant``: gaps are equal. The same seed gives the same times. They are never stretched to
    make the rate exact.
    """
    source = random.Random(f"arrivals {seed}")  # noqa: S311 - no secret
    at = 0.0
    while True:
        yield at
        at += source.expovariate(rate) if kind == "poisson" else 1 / rate
