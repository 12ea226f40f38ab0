"""Repeats out of line are flagged with their cause, and stay in the result."""

from typing import Any

import pytest
from records_made import timing, trial

from labctl.records.trial import TelemetrySummary, TrialRecord
from labctl.results.repeats import outliers
from labctl.results.summary import summarise

USUAL: dict[str, Any] = {
    "samples": 10,
    "highest_temperature_mc": 60_000,
    "lowest_khz": 1_992_000,
    "major_faults": 3,
    "others_share": 0.02,
    "reclaim_share": 0.01,
    "steal_share": 0.0,
}


def repeats(slow_ms: float, **unusual: Any) -> list[TrialRecord]:
    usual = [
        trial(n, timing=timing([ms] * 4), evidence=TelemetrySummary(**USUAL))
        for n, ms in enumerate((100, 101, 99, 100.5), 1)
    ]
    odd = TelemetrySummary(**{**USUAL, **unusual})
    return [*usual, trial(5, timing=timing([slow_ms] * 4), evidence=odd)]


@pytest.mark.parametrize(
    ("unusual", "cause"),
    [
        ({"highest_temperature_mc": 92_000}, "temperature: 92 °C, otherwise 60 °C"),
        ({"lowest_khz": 816_000}, "frequency: down to 816 MHz, otherwise 1992 MHz"),
        ({"limited": True}, "frequency: the board lowered its clock"),
        ({"major_faults": 5000}, "major faults: 5000, otherwise 3"),
        ({"others_share": 0.9}, "load: others used 90% of a CPU, otherwise 2%"),
        ({"reclaim_share": 0.4}, "memory: freeing it took 40% of a CPU, otherwise 1%"),
        ({"steal_share": 0.3}, "load: 30% of a CPU was stolen, otherwise 0%"),
        ({}, "its telemetry shows no cause"),
    ],
)
def test_an_outlier_has_the_cause_that_its_telemetry_shows(
    unusual: dict[str, Any], cause: str
) -> None:
    trials = repeats(151, **unusual)
    (found,) = outliers(trials)
    assert found.number == 5
    assert found.sentence == (
        f"outlier: trial 5 of q2_k took 1.50 times as long a token as the others ({cause});"
        " it is counted"
    )
    assert summarise(trials)[0].trials_ok == 5


def test_ordinary_spread_is_no_outlier() -> None:
    assert outliers(repeats(101.5)) == []
    assert outliers(repeats(150)[2:]) == []  # three repeats have no line to fall out of


@pytest.mark.parametrize(
    ("unusual", "cause"),
    [
        ({"highest_temperature_mc": 40_000}, "temperature: 40 °C, otherwise 60 °C"),
        ({"highest_temperature_mc": 92_000}, "its telemetry shows no cause"),
        ({"lowest_khz": 816_000}, "its telemetry shows no cause"),
    ],
)
def test_what_is_worse_does_not_make_a_trial_faster(unusual: dict[str, Any], cause: str) -> None:
    (found,) = outliers(repeats(80, **unusual))
    assert f"took 0.80 times as long a token as the others ({cause})" in found.sentence


def test_what_has_only_a_mean_is_looked_at_too() -> None:
    """A benchmark, or tokens that came together; and nobody sampled anything."""
    trials = [
        trial(n, timing=timing([ms], p50_ns=None, mean_ns=ms * 10**6))
        for n, ms in enumerate((100, 101, 99, 100, 180), 1)
    ]
    (found,) = outliers(trials)
    assert found.number == 5
    assert "(no telemetry, cause unknown)" in found.sentence
