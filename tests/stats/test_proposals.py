"""Proposals for searches of many settings."""

import itertools
import random

from simulated_boards import Board, normal, search

from labctl.stats.proposals import propose

AXES = {"a": range(6), "b": range(5), "c": range(4), "d": range(2)}
POINTS = {
    "-".join(map(str, one)) if any(one) else "default": dict(zip(AXES, one, strict=True))
    for one in itertools.product(*AXES.values())
}
NAMES = [one for one in POINTS if one != "default"]


def _gain(name: str) -> float:
    """Best: a 4, b 3, c 1, d 1."""
    point = POINTS[name]
    away = abs(point["a"] - 4) + abs(point["b"] - 3) + abs(point["c"] - 1)
    return 0.1 - 0.02 * away - 0.05 * (point["d"] == 0)


def test_the_same_trials_and_seed_give_the_same_proposals() -> None:
    tried = {one: [_gain(one)] for one in ["default", *NAMES[:20]]}
    first = propose(POINTS, tried, NAMES[20:], 10, seed=3)
    assert first == propose(POINTS, tried, NAMES[20:], 10, seed=3)
    assert len({*first}) == 10
    assert {*first} <= {*NAMES[20:]}
    assert first != propose(POINTS, tried, NAMES[20:], 10, seed=4)


def test_the_last_settings_are_proposed_too() -> None:
    tried = {one: [_gain(one), -_gain(one)] for one in POINTS if one not in NAMES[-3:]}
    assert sorted(propose(POINTS, tried, NAMES[-3:], 10, seed=1)) == sorted(NAMES[-3:])


def test_parameters_of_any_type_that_some_settings_lack() -> None:
    points: dict[str, dict[str, bool | float | str | None]] = {
        "default": {"x": None, "y": True, "z": 2},
        "a": {"x": "f16", "y": True, "z": 2},
        "b": {"x": 1, "y": False, "z": 0.5},
    }
    assert sorted(propose(points, {"default": [0.0]}, ["a", "b"], 2, seed=1)) == ["a", "b"]


def test_proposals_lead_to_better_settings_than_a_draw() -> None:
    gains = {one: _gain(one) for one in NAMES}
    drawn, proposed = (
        [
            search(Board(gains, normal(0.02), random.Random(seed)), 150, seed, points).truth
            for seed in range(6)
        ]
        for points in (None, POINTS)
    )
    assert sum(proposed) > sum(drawn)
    assert sum(one > 0.07 for one in proposed) >= 5
