"""How often printed intervals hold the truth: a few cells of test_soak_coverage.py."""

import math

import pytest
from simulated_comparisons import (
    Noise,
    Way,
    coverage,
    false_verdicts,
    grouped,
    interleaved,
    naive,
    sessions,
    variants_of_two_runs,
)

RUNS = 2_000
#: Three standard errors of a share of 95 % in so many runs.
WITHIN = 3 * math.sqrt(0.95 * 0.05 / RUNS)


@pytest.mark.parametrize(
    ("way", "noise"),
    [
        (interleaved, Noise(0.02)),
        (grouped, Noise(0.02)),
        (sessions(5), Noise(0.02, between=0.01)),
        (variants_of_two_runs(5), Noise(0.005, between=0.01)),
    ],
)
def test_intervals_hold_as_often_as_they_say(way: Way, noise: Noise) -> None:
    of_95, of_90 = coverage(way, noise, 3, runs=RUNS)
    assert of_95 == pytest.approx(0.95, abs=WITHIN)
    assert of_90 == pytest.approx(0.90, abs=1.5 * WITHIN)


def test_a_t_test_of_two_runs_finds_what_is_not_there_in_37_of_100() -> None:
    noise = Noise(0.01, between=0.01)
    found, _ = false_verdicts(naive, noise, 5, runs=RUNS)
    assert found == pytest.approx(0.37, abs=0.04)
    found, _ = false_verdicts(sessions(5), noise, 5, runs=RUNS)
    assert found == pytest.approx(0.05, abs=WITHIN)


def test_pairs_do_not_mind_the_day() -> None:
    noise = Noise(0.01, between=0.05)
    assert coverage(interleaved, noise, 5, runs=500) == coverage(
        interleaved, Noise(0.01, between=1e-9), 5, runs=500
    )
