"""How often a step is found that is none, and a step where it is: docs/comparing.md has these."""

import numpy as np
import pytest
from simulated_nights import (
    NOISES,
    Noise,
    false_steps,
    false_steps_of_mornings,
    found_steps,
    outliers,
    wandering,
)

from labctl.stats.proportions import wilson_interval

pytestmark = pytest.mark.soak

SERIES = 1_000
#: Of reading it each morning: a series is read 91 times.
MORNINGS = 200
#: Of steps whose range is judged, for each noise and size.
RANGES = 400
#: Levels that do wander: no promise is kept here, the figures are told.
MOST = {
    "a drift of 4 % over the series": 0.1,
    "a random walk, 0.6 % a night, and noise of 2 %": 0.25,
}


def share(what: str, found: int, series: int) -> float:
    interval = wilson_interval(found, series)
    print(f"{what}: {found} of {series}, {interval.low:.1%} to {interval.high:.1%}", flush=True)
    return found / series


@pytest.mark.parametrize("name", NOISES)
def test_false_steps_in_series_of_100_nights(name: str) -> None:
    found = false_steps(SERIES, NOISES[name], np.random.default_rng(11))
    assert share(f"false steps, {name}", found, SERIES) <= MOST.get(name, 0.05)


@pytest.mark.parametrize("count", [10, 15, 20, 30, 50, 200, 365])
@pytest.mark.parametrize(("correlation", "most"), [(0, 0.05), (0.7, 0.1)])
def test_false_steps_in_other_series(count: int, correlation: float, most: float) -> None:
    found = false_steps(SERIES, wandering(correlation), np.random.default_rng(count), count)
    what = f"false steps, {count} nights, correlation {correlation}"
    assert share(what, found, SERIES) <= most


@pytest.mark.parametrize("name", list(NOISES)[:3])
def test_false_steps_of_reading_it_each_morning(name: str) -> None:
    """No promise: the figures are told."""
    found = false_steps_of_mornings(MORNINGS, NOISES[name], np.random.default_rng(13))
    assert share(f"a false step on any of 91 mornings, {name}", found, MORNINGS) <= 0.5


@pytest.mark.parametrize(
    ("before", "after", "ratio", "least"),
    [(20, 10, 1.05, 0.7), (50, 50, 1.05, 0.95), (50, 50, 1 / 1.05, 0.95), (80, 20, 1.05, 0.9)],
)
def test_a_step_is_shown(before: int, after: int, ratio: float, least: float) -> None:
    found = found_steps(
        SERIES, ratio, wandering(0), np.random.default_rng(12), before=before, count=before + after
    )
    shown = round(found.shown * SERIES)
    assert share(f"a step to {ratio:.3f} shown, {before} + {after}", shown, SERIES) >= least


@pytest.mark.parametrize("ratio", [1.03, 1.05, 1.1])
@pytest.mark.parametrize(
    "noise",
    [wandering(0), wandering(0.3), wandering(0.5), wandering(0.7), outliers(0.1)],
    ids=["independent", "0.3", "0.5", "0.7", "outliers"],
)
def test_the_range_holds_the_step(
    noise: Noise, ratio: float, request: pytest.FixtureRequest
) -> None:
    found = found_steps(RANGES, ratio, noise, np.random.default_rng(14))
    shown = round(found.shown * RANGES)
    what = f"{request.node.callspec.id}: shown in {found.shown:.1%}, placed within 3 nights in"
    print(f"{what} {found.placed:.1%}, range of {found.width:.0f} nights", flush=True)
    # A few steps that are shown by luck say nothing.
    assert shown < 50 or share("  the range holds it", round(found.held * shown), shown) >= 0.93
