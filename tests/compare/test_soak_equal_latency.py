"""How often the interval of a crossing holds a planted one, and how often there is none."""

from collections import Counter

import numpy as np
import pytest
from simulated_latency import LARGE, SMALL, Model, answered, crossing, timed

from labctl.compare.equal_latency.matching import match

pytestmark = pytest.mark.soak
RUNS = 1000
_CAN_HOLD = {"crossing", "after", "before"}


def simulate(
    small: Model, large: Model, questions: int, *, samples: int = 1, repeats: int = 5,
    noise: float = 0.02, runs: int = RUNS,
) -> Counter[tuple[str, str]]:  # fmt: skip
    """Count by axis each kind of result, and intervals that hold the planted crossing."""
    truth, found = crossing(small, large), Counter[tuple[str, str]]()
    for run in range(runs):
        chance = np.random.default_rng((questions, samples, repeats, run))
        hardness = chance.random(questions)
        times = {m.name: timed(m, chance, repeats=repeats, noise=noise) for m in (small, large)}
        sets = [answered(m, chance, hardness, samples=samples) for m in (small, large)]
        held = Counter[str]()
        for one in match(sets, times, questions, resamples=400, seed=run).crossings:
            found[one.axis, one.kind] += 1
            low, high = one.low or 0.0, one.high or np.inf
            held[one.axis] |= one.kind in _CAN_HOLD and low <= truth <= high
        for axis, is_held in held.items():
            found[axis, "held"] += is_held
    return found


@pytest.mark.parametrize(
    ("questions", "samples", "repeats", "noise"),
    [(100, 1, 5, 0.02), (300, 1, 5, 0.02), (300, 1, 3, 0.05), (300, 4, 5, 0.02),
     (1319, 1, 5, 0.02)],
)  # fmt: skip
def test_a_planted_crossing_is_held(
    questions: int, samples: int, repeats: int, noise: float
) -> None:
    runs = RUNS if questions * samples <= 300 else RUNS // 2
    found = simulate(
        SMALL, LARGE, questions, samples=samples, repeats=repeats, noise=noise, runs=runs
    )
    for axis in ("budget", "deadline"):
        held = found[axis, "held"] / runs
        closed = found[axis, "crossing"] / runs
        print(
            f"{questions} questions x {samples}, {repeats} repeats at {noise:.0%}, {axis}:"
            f" held in {held:.1%}, closed in {closed:.1%}"
        )
        error = (0.05 * 0.95 / runs) ** 0.5  # of the simulation itself
        assert 0.93 - error <= held <= 0.97 + error


@pytest.mark.parametrize(("questions", "accuracy"), [(100, 0.1), (300, 0.5), (300, 0.9)])
def test_equal_models_do_not_cross(questions: int, accuracy: float) -> None:
    one, other = (Model(name, 0.1, accuracy) for name in ("a", "b"))
    found = simulate(one, other, questions)
    for axis in ("budget", "deadline"):
        crossed = found[axis, "crossing"] / RUNS
        told = 1 - found[axis, "unclear"] / RUNS
        print(
            f"equal, {questions} questions, {accuracy:.0%}, {axis}: false crossings {crossed:.1%},"
            f" any difference told {told:.1%}"
        )
        assert crossed <= 0.05
        assert told <= 0.07
