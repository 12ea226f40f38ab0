"""How often the intervals and stops of evaluations are wrong."""

import numpy as np
import pytest
from simulated_stops import coverage_at_the_stop, errors_of_looks, stops_at_a_half_width

from labctl.stats import (
    always_valid_p,
    clustered_interval,
    paired_difference,
    questions_for_difference,
    wilson_interval,
)

pytestmark = pytest.mark.soak
RUNS = 10_000


@pytest.mark.parametrize("half_width", [0.02, 0.03, 0.05, 0.1])
def test_a_stop_at_a_half_width_with_a_look_every_ten_questions(half_width: float) -> None:
    stops = stops_at_a_half_width(half_width, 100_000)
    exact = {p: coverage_at_the_stop(p, half_width, stops) for p in np.arange(1, 200) / 200}
    worst = min(exact, key=lambda p: exact[p][0])
    print(f"± {half_width:.0%}: computed errors at most {1 - exact[worst][0]:.2%}, at {worst:.1%}")
    for accuracy in (0.03, 0.516, 0.709, 0.856):
        wrong = errors_of_looks(accuracy, stops, simulations=RUNS, seed=7)
        asked = coverage_at_the_stop(accuracy, half_width, stops)[1]
        print(f"  accuracy {accuracy:.1%}: {wrong:.2%} of {RUNS}, {asked:.0f} questions")
        assert wrong <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / RUNS)
    assert exact[worst][0] >= 0.95


@pytest.mark.parametrize("discordant", [0.1, 0.3])
def test_a_stop_at_a_difference_with_a_look_every_ten_questions(discordant: float) -> None:
    for gap in (0.0, 0.05, 0.1):
        chance = np.random.default_rng(8)
        shares = [(discordant + gap) / 2, (discordant - gap) / 2]
        wins, losses = np.zeros(RUNS, int), np.zeros(RUNS, int)
        is_open, asked, wrong_side = np.ones(RUNS, bool), np.full(RUNS, 1319), 0
        limits: dict[tuple[int, int], bool] = {}
        for total in range(10, 1320, 10):
            new = chance.multinomial(10, [*shares, 1 - discordant], RUNS)
            wins += new[:, 0]
            losses += new[:, 1]
            pairs = list(zip(wins.tolist(), losses.tolist(), strict=True))
            for pair in set(pairs) - limits.keys():
                limits[pair] = always_valid_p(*pair) <= 0.05
            told = is_open & np.array([limits[pair] for pair in pairs])
            asked[told] = total
            wrong_side += int((told & (losses > wins)).sum())
            is_open &= ~told
        shown = 1 - is_open.mean()
        fixed = questions_for_difference(gap, discordant) if gap else None
        print(
            f"{discordant:.0%} differ, true difference {gap:.0%}: shown in {shown:.2%} of {RUNS},"
            f" wrong side {wrong_side / RUNS:.2%}, {asked.mean():.0f} questions (fixed: {fixed})"
        )
        assert (shown if gap == 0 else wrong_side / RUNS) <= 0.05


@pytest.mark.parametrize("accuracy", [0.03, 0.3, 0.516, 0.856])
def test_coverage_with_samples_of_questions_that_differ(accuracy: float) -> None:
    for questions, samples in ((50, 4), (200, 4), (200, 16)):
        chance = np.random.default_rng(9)
        held = naive = 0
        runs = 4000
        for _ in range(runs):
            each = chance.beta(accuracy, 1 - accuracy, questions)  # easy and hard questions
            shares = chance.binomial(samples, each) / samples
            found = clustered_interval(shares.tolist(), samples)
            held += found.low <= accuracy <= found.high
            plain = wilson_interval(shares.sum() * samples, questions * samples)
            naive += plain.low <= accuracy <= plain.high
        print(
            f"{accuracy:.1%}, {questions} questions x {samples}: {held / runs:.1%};"
            f" as if all answers were independent {naive / runs:.1%}"
        )
        least = 0.92 if accuracy * questions >= 5 else 0.89  # a few right answers tell little
        assert least <= held / runs <= 0.98


@pytest.mark.parametrize("questions", [100, 1319])
def test_coverage_of_a_paired_difference(questions: int) -> None:
    chance = np.random.default_rng(10)
    held, runs = 0, 1000
    for run in range(runs):
        draw = chance.random(questions)
        first, second = (draw < 0.5).astype(float), (draw < 0.45).astype(float)
        flip = chance.random(questions) < 0.1
        first[flip], second[flip] = second[flip], first[flip]
        truth = -0.05 * (1 - 2 * 0.1)
        found = paired_difference(first.tolist(), second.tolist(), resamples=1000, seed=run)
        held += found.low <= truth <= found.high
    print(f"{questions} questions: {held / runs:.1%}")
    assert 0.93 <= held / runs <= 0.97
