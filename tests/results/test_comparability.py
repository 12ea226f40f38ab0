"""What of a board's state makes two records unlike."""

from typing import Any

import pytest

from labctl.records.telemetry import BoardState, TelemetrySample
from labctl.records.trial import TelemetrySummary
from labctl.results.comparability import classes

MODEL = {"file_bytes": 1_000_000, "resident_bytes": 1_000_000}


def state(**changes: Any) -> BoardState:
    little = {
        "cpus": "0-3", "governor": "schedutil", "min_khz": 408_000, "max_khz": 1_992_000,
        "time_in_state_ms": {"408000": 120},
    }  # fmt: skip
    values: dict[str, Any] = {"cpufreq": [little], "resident": MODEL}
    return BoardState.model_validate({**values, **changes})


def seen(*, limited: bool | None = False, **changes: Any) -> TelemetrySummary:
    return TelemetrySummary(samples=9, limited=limited, **changes)


def test_classes_have_no_measured_number_in_them() -> None:
    """Two trials of a quiet board differ in every measurement, and are alike."""
    one = classes(state(), seen(highest_temperature_mc=51_000, others_share=0.01))
    clocks = {**state().model_dump()["cpufreq"][0], "time_in_state_ms": {"1992000": 900}}
    model = {**MODEL, "resident_bytes": 990_000}
    other = classes(
        state(cpufreq=[clocks], resident=model),
        seen(highest_temperature_mc=54_000, others_share=0.03),
    )
    assert one == other
    assert one == {
        "governor": "schedutil",
        "frequency_limits_khz": "408000-1992000",
        "model_cache": "warm",
        "cooling": "inactive",
    }


@pytest.mark.parametrize(
    ("resident", "name"),
    [(0, "cold"), (49_000, "cold"), (51_000, "partial"), (949_000, "partial"), (951_000, "warm")],
)
def test_a_cold_model_is_not_like_a_warm_one(resident: int, name: str) -> None:
    """A TTFT of 372 ms cold and one of 214 ms warm passed as alike."""
    found = classes(state(resident={**MODEL, "resident_bytes": resident}), seen())
    assert found["model_cache"] == name


def test_clusters_that_are_clocked_apart_are_named() -> None:
    big = {"cpus": "4-7", "governor": "performance", "min_khz": 408_000, "max_khz": 1_992_000}
    found = classes(state(cpufreq=[state().cpufreq[0].model_dump(), big]), seen(limited=True))
    assert found["governor"] == "0-3: schedutil, 4-7: performance"
    assert found["frequency_limits_khz"] == "408000-1992000"
    assert found["cooling"] == "active"


def test_what_is_not_told_is_no_class() -> None:
    assert classes(None, None) == {}
    assert classes(BoardState(), seen(limited=None)) == {}


def test_a_memory_that_is_clocked_in_another_way_is_not_alike() -> None:
    dmc = {"device": "dmc", "governor": "dmc_ondemand", "min_hz": 324, "max_hz": 1560}
    gpu = {"device": "fde60000.gpu", "governor": "simple_ondemand"}
    found = classes(state(devfreq=[dmc, gpu]), seen())
    assert found["memory_governor"] == "dmc_ondemand"
    assert found["memory_limits_hz"] == "324-1560"
    assert "memory_clock_hz" not in found
    held = {**dmc, "governor": "userspace", "current_hz": 528_000_000}
    assert classes(state(devfreq=[held, gpu]), seen())["memory_clock_hz"] == "528000000"


def test_a_vote_for_bandwidth_is_no_clock_of_the_memory() -> None:
    votes = [
        {"device": name, "governor": "bw_hwmon", "current_hz": 762}
        for name in ("soc:qcom,cpu-llcc-ddr-bw", "soc:qcom,cpu4-llcc-ddr-lat", "npu-dmc", "ddr")
    ]
    assert classes(state(devfreq=votes), seen()) == classes(state(devfreq=[]), seen())
    dmc = {"device": "dmc", "governor": "performance", "current_hz": 1_560_000_000}
    other = {"device": "memory-controller", "governor": "x", "current_hz": 800_000_000}
    found = classes(state(devfreq=[*votes, other, dmc]), seen())
    assert found["memory_governor"] == "performance"
    hz = {one["device"]: one["current_hz"] for one in (*votes, other, dmc)}
    sample = TelemetrySample.model_validate(
        {"mono_ns": 1, "devfreq_hz": hz, "devfreq_limit_hz": hz}
    )
    assert (sample.memory_hz, sample.limits) == (1_560_000_000, {"dmc": 1_560_000_000})
