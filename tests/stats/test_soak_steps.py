"""How often a step is found that is none, and a step where it is: docs/regressions.md has these."""

import numpy as np
import pytest
from simulated_nights import Kind, false_steps, found_steps

pytestmark = pytest.mark.soak


def test_false_steps_in_series_of_100_nights() -> None:
    series = 20_000
    found = false_steps(series, 0.02, np.random.default_rng(11))
    print(f"false steps: {found} in {series} series of 100 nights")
    assert found <= series / 1000


@pytest.mark.parametrize("count", [10, 15, 20, 30, 50, 200, 365])
def test_false_steps_in_other_series(count: int) -> None:
    series = 4_000
    found = false_steps(series, 0.02, np.random.default_rng(count), count=count)
    print(f"false steps: {found} in {series} series of {count} nights")
    assert found <= 2 * series / 1000


@pytest.mark.parametrize(
    ("kind", "most"), [("outliers", 0.003), ("heavy tails", 0.005), ("correlated", 0.1)]
)
def test_false_steps_with_other_noise(kind: Kind, most: float) -> None:
    """No promise: the figures are told."""
    series = 4_000
    found = false_steps(series, 0.02, np.random.default_rng(13), kind)
    print(f"false steps, {kind}: {found} in {series} series of 100 nights")
    assert found <= most * series


@pytest.mark.parametrize("kind", ["normal", "outliers", "heavy tails", "correlated"])
@pytest.mark.parametrize("ratio", [1.05, 1 / 1.05])
def test_a_step_of_5_percent_is_placed(ratio: float, kind: Kind) -> None:
    found = found_steps(4_000, ratio, 0.02, np.random.default_rng(12), kind)
    print(
        f"a step to {ratio:.3f} at sigma 2 %, {kind}: within 3 nights in {found.placed:.1%},"
        f" in the range given in {found.held:.1%}"
    )
    assert kind != "normal" or (found.placed >= 0.95 and found.held >= 0.95)
