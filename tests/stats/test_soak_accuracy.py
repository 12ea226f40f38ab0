"""How often the intervals and stops of evaluations are wrong."""

import math

import numpy as np
import pytest
from simulated_samples import Questions, covered
from simulated_stops import coverage_at_the_stop, errors_of_looks, stops_at_a_half_width

from labctl.stats import proportions
from labctl.stats.paired_answers import always_valid_p, paired_difference, questions_for_difference

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


@pytest.mark.parametrize("questions", [10, 20, 50, 100, 200, 1319])
@pytest.mark.parametrize("samples", [4, 8, 16])
def test_coverage_with_several_samples_of_questions_that_differ(
    questions: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near 0 and 1, in the middle, all or nothing, and all alike: docs/comparing.md."""
    monkeypatch.setattr(proportions, "_DRAWS", 1000)  # other draws move an end, not the coverage
    cells = {
        (accuracy, alike): covered(Questions(questions, samples, accuracy, alike), runs=800, seed=9)
        for accuracy in (0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 0.98)
        for alike in (0.05, 0.5, 3, math.inf)
    }
    worst = min(cells, key=lambda cell: cells[cell].held)
    mean = sum(one.held for one in cells.values()) / len(cells)
    middle = [one.width for (accuracy, _), one in cells.items() if accuracy in (0.3, 0.5)]
    print(
        f"{questions} x {samples}: least {cells[worst].held:.1%} at {worst}, mean {mean:.1%},"
        f" width in the middle {sum(middle) / len(middle):.2f}"
    )
    assert cells[worst].held >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / 800)
    assert mean >= 0.94


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
