"""How often measuring again confirms a slow source, and a board that became slow instead."""

import pytest
from nightly_runs import Lab

from labctl.compare.regressions import Change, ChangeStatus, find_changes
from labctl.compare.series import series_of
from labctl.compare.thresholds import Thresholds

pytestmark = pytest.mark.soak

SERIES = 300
ROUNDS = 5


def first_change(lab: Lab) -> Change | None:
    (series,) = series_of(lab.trials())
    found = find_changes(series, Thresholds.of_recipe({}))
    return next((change for change in found if change.slower), None)


def confirmed(good_again_ms: float) -> float:
    """The share of 6 % steps at a noise of 2 % between nights that five rounds confirm."""
    number = steps = 0
    for seed in range(SERIES):
        lab = Lab(seed=seed, sigma=0.02)
        lab.nights(range(30), 100)
        lab.nights(range(30, 42), 106)
        change = first_change(lab)
        if change is None:
            continue
        steps += 1
        ends = (change.surely_before, change.surely_after)
        good, slow = (int((night.version or "").removeprefix("c")) for night in ends)
        for _ in range(ROUNDS):
            lab.night(good, good_again_ms)
            lab.night(slow, 106)
        after = first_change(lab)
        number += after is not None and after.status is ChangeStatus.CONFIRMED
    print(f"{steps} of {SERIES} steps were found, {number} of them confirmed")
    return number / steps


def test_five_rounds_confirm_a_source_and_seldom_a_board() -> None:
    source, board = confirmed(100), confirmed(106)
    print(f"confirmed: {source:.1%} where the source is slow, {board:.1%} where the board is")
    assert source >= 0.9
    assert board <= 0.06
