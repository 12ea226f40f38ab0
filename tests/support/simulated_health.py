"""Health checks of simulated boards: healthy and noisy ones, and ones whose memory became slow."""

import numpy as np
from simulated_nights import Kind, nights

from labctl.farm.health.speed import confirmed, judge_speed

#: As a probe names them.
RATES = {
    **{f"memory read, {n} threads": 5e9 for n in (1, 2, 4)},
    **{f"storage read, sequential (direct), {n} threads": 2e8 for n in (1,)},
    **{f"storage read, random (direct), {n} threads": 3e7 for n in (1, 2, 4)},
    **{f"storage read, mapping (dropped), {n} threads": 1.5e8 for n in (1, 2, 4)},
    "decode, Q8_0 weights of small.gguf, 4 threads": 4e9,
    "prompt, Q8_0 weights of small.gguf, 4 threads": 4e10,
}
#: Of the noise of a probe, the part that all rates of one probe share: the state of the board then.
SHARED = 0.7


def probes(
    count: int, sigma: float, chance: np.random.Generator, kind: Kind = "normal"
) -> list[dict[str, float]]:
    """Rates of probes in a row; each has noise of ``sigma``, most of it common to all its rates."""
    common = -nights(count, sigma * SHARED**0.5, chance, kind)
    found = []
    for at in range(count):
        own = chance.standard_normal(len(RATES)) * sigma * (1 - SHARED) ** 0.5
        noise = np.exp(common[at] + own)
        found.append(dict(zip(RATES, np.array(list(RATES.values())) * noise, strict=True)))
    return found


def bad_checks(
    boards: int,
    sigma: float,
    chance: np.random.Generator,
    *,
    history: int,
    kind: Kind = "normal",
    slow: float = 0.0,
    least_history: int = 8,
) -> int:
    """How many of so many checks, of a board each, call it bad; memory is slower by ``slow``."""
    bad = 0
    for _ in range(boards):
        series = probes(history + 2, sigma, chance, kind)
        for probe in series[history:]:
            for what in probe:
                probe[what] *= 1 - slow if what.startswith("memory") else 1
        first, second = (
            judge_speed(probe, series[:history], least_history=least_history, slower=0.05)
            for probe in series[history:]
        )
        bad += (
            any(one.part == "memory read" for one in confirmed(first, second))
            if slow
            else bool(confirmed(first, second))
        )
    return bad
