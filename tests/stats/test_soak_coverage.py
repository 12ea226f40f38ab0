"""How often every printed interval holds the truth, in 20,000 simulations a cell."""

import math
import random

import pytest
from simulated_comparisons import (
    Noise,
    Way,
    coverage,
    false_verdicts,
    grouped,
    interleaved,
    naive,
    run,
    sessions,
    variants_of_two_runs,
)

from labctl.results.summary import estimate_of
from labctl.stats.log_ratio import paired, unpaired

pytestmark = pytest.mark.soak
RUNS = 20_000
SIGMAS = (0.01, 0.02, 0.03)
WAYS: dict[str, tuple[Way, float]] = {
    "pairs": (interleaved, 0.0),
    "one run, not interleaved": (grouped, 0.0),
    "two runs, 5 others": (sessions(5), 0.01),
    "two runs, 10 others": (sessions(10), 0.01),
    "variants of two runs, 5 others": (variants_of_two_runs(5), 0.01),
    "variants of two runs, 10 others": (variants_of_two_runs(10), 0.01),
}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_coverage_of_every_estimate_of_a_comparison(name: str, repeats: int) -> None:
    way, between = WAYS[name]
    for sigma in SIGMAS:
        seed = round(1000 * sigma) + repeats
        of_95, of_90 = coverage(way, Noise(sigma, between), repeats, runs=RUNS, seed=seed)
        print(f"{name}, {repeats} repeats, sigma {sigma:.0%}: {of_95:.2%} of 95, {of_90:.2%} of 90")
        assert 0.94 <= of_95 <= 0.96
        assert 0.89 <= of_90 <= 0.91


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_coverage_of_a_variants_own_interval(repeats: int) -> None:
    for sigma in SIGMAS:
        chance = random.Random(3)
        held = 0
        for _ in range(RUNS):
            found = estimate_of(run(chance, Noise(sigma), repeats), None)
            assert found is not None
            assert found.interval is not None
            held += found.interval.low <= 1 <= found.interval.high
        print(f"token time, {repeats} repeats, sigma {sigma:.0%}: {held / RUNS:.2%}")
        assert 0.94 <= held / RUNS <= 0.96


def test_differences_that_are_not_there() -> None:
    noise = Noise(0.01, between=0.01)
    for name, way in (*((n, w) for n, (w, _) in WAYS.items()), ("two runs, a plain t test", naive)):
        told, beyond = false_verdicts(way, noise, 5, runs=RUNS)
        print(f"{name}: told in {told:.1%}, and beyond 2 % in {beyond:.1%}")
        assert (told > 0.3) if way is naive else (told <= 0.06)


def test_unequal_noise_and_numbers_are_no_promise() -> None:
    """The figures of docs/comparing.md."""
    for few, many, quiet, loud in (
        (3, 3, 0.01, 0.03),
        (5, 5, 0.01, 0.03),
        (10, 10, 0.01, 0.03),
        (3, 10, 0.01, 0.01),
        (3, 10, 0.03, 0.01),
    ):
        chance = random.Random(4)
        held = 0
        for _ in range(RUNS):
            left = [math.exp(chance.gauss(0, quiet)) for _ in range(few)]
            right = [math.exp(chance.gauss(0, loud)) for _ in range(many)]
            found = unpaired(right, left).interval(0.95)
            held += found.low <= 1 <= found.high
        print(f"{few} at {quiet:.0%} and {many} at {loud:.0%}: {held / RUNS:.1%}")
        assert held / RUNS > 0.92


@pytest.mark.parametrize(("repeats", "sigma"), [(5, 0.01), (10, 0.02)])
def test_the_verdict_chooses_the_level(repeats: int, sigma: float) -> None:
    """A row that is the same has its 90 % interval, any other one its 95 % interval."""
    margin = math.log(1.03)
    for truth in (0, 0.01, 0.02, 0.025, 0.03, 0.04, 0.05):
        chance = random.Random(5)
        held, said = 0, 0.0
        for _ in range(6000):
            left = [math.exp(chance.gauss(0, sigma)) for _ in range(repeats)]
            right = [math.exp(chance.gauss(truth, sigma)) for _ in range(repeats)]
            found = paired(right, left)
            level = 0.9 if found.p_beyond(margin) <= 0.05 else 0.95
            interval = found.interval(level)
            held += interval.low <= math.exp(truth) <= interval.high
            said += level
        print(f"{truth:.1%}, {repeats} at {sigma:.0%}: {held / 6000:.1%} of {said / 6000:.1%}")
        assert held / 6000 > said / 6000 - 0.03
