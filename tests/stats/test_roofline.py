from dataclasses import fields
from typing import Any

import pytest

from labctl.stats.roofline import Machine, Prediction, Work, experts_read, predict

GB = 10**9
OF_MACHINE = {field.name for field in fields(Machine)}
DRAM = 5.5 * GB


def predicted_of(**values: Any) -> Prediction | None:
    machine = {name: value for name, value in values.items() if name in OF_MACHINE}
    work = {name: value for name, value in values.items() if name not in OF_MACHINE}
    return predict(Work(**work), Machine(**machine))


def test_original_experiment_is_explained_by_the_storages_bandwidth() -> None:
    """Fitted on the small model alone, the large one is foretold within 5 %.

    One DAYU200 (RK3568, 2 GB), Meta-Llama-3.1-8B-Instruct: Q2_K with 3.00 GB a token took 18.18 s,
    Q8_0 with 7.97 GB took 49.73 s. The files are larger: the embedding is not read again.
    """
    storage = 3.0 * GB / 18.18
    large = predicted_of(
        bytes_per_token=round(7.97 * GB),
        resident_bytes=round(7.97 * GB),
        memory_bytes=2 * GB,
        load_bytes=round(8.54 * GB),
        dram=DRAM,
        storage=storage,
    )
    assert large is not None
    assert large.bound == "storage"
    assert large.seconds_per_token == pytest.approx(49.73, rel=0.05)
    assert "does not fit" in large.explanation


def test_model_that_fits_is_bound_by_dram() -> None:
    small = predicted_of(
        bytes_per_token=round(0.63 * GB),
        resident_bytes=round(0.7 * GB),
        memory_bytes=2 * GB,
        load_bytes=round(0.7 * GB),
        dram=DRAM,
        storage=175e6,
        prompt_tokens=600,
        ubatch=512,
    )
    assert small is not None
    assert small.bound == "dram"
    assert 8 <= 1 / small.seconds_per_token <= 10
    assert small.load_seconds == pytest.approx(4)
    assert small.prompt_seconds == pytest.approx(2 * small.seconds_per_token)
    assert "fits in memory" in small.explanation


def test_a_generation_is_load_prompt_and_the_other_tokens() -> None:
    slow = predicted_of(
        bytes_per_token=10 * GB,
        resident_bytes=10 * GB,
        memory_bytes=2 * GB,
        load_bytes=11 * GB,
        dram=DRAM,
        storage=0.1 * GB,
        prompt_tokens=7,
    )
    assert slow is not None
    assert slow.seconds_per_token == 100
    # Read whole while loading, and once more by the prompt: nothing of it is there any more.
    assert slow.seconds(prompts=1, tokens=0) == 110 + 100
    assert slow.seconds(prompts=1, tokens=3) == 510


@pytest.mark.parametrize("wrong", [{"bytes_per_token": 0}, {"memory_bytes": 0}, {"storage": 0.0}])
def test_nothing_is_predicted_from_nothing(wrong: dict[str, int]) -> None:
    right = {
        "bytes_per_token": 1,
        "resident_bytes": 1,
        "memory_bytes": 1,
        "load_bytes": 1,
        "dram": 1.0,
        "storage": 1.0,
    }
    with pytest.raises(ValueError, match="above 0"):
        predicted_of(**(right | wrong))  # type: ignore[arg-type]


def predicted(**changes: Any) -> Prediction | None:
    """Of 1 GB of weights in 2 GB of memory: 0.2 s a token from DRAM, 10 s from storage."""
    values: dict[str, Any] = {
        "bytes_per_token": GB,
        "resident_bytes": GB,
        "memory_bytes": 2 * GB,
        "load_bytes": GB,
        "dram": 5.0 * GB,
        "storage": 0.1 * GB,
    }
    return predicted_of(**{**values, **changes})


def test_the_slowest_of_all_parts_is_the_bound_wherever_the_weights_come_from() -> None:
    slow = predicted(compute=0.9)
    assert slow is not None
    assert (slow.bound, slow.seconds_per_token, slow.load_seconds) == ("compute", 0.9, 10)
    assert "its arithmetic takes 0.900 s a token" in slow.explanation
    fast_storage = predicted(memory_bytes=GB // 2, storage=2.0 * GB, compute=0.9)
    assert fast_storage is not None
    assert (fast_storage.bound, fast_storage.load_seconds) == ("compute", 0.5)


def test_the_cache_of_earlier_positions_is_read_from_memory_too() -> None:
    long = predicted(kv_bytes=GB // 2)
    assert long is not None
    assert long.seconds_per_token == pytest.approx(0.3)
    assert long.prompt_seconds == pytest.approx(0.2)
    from_storage = predicted(kv_bytes=GB // 2, memory_bytes=GB // 2)
    assert from_storage is not None
    assert from_storage.seconds_per_token == pytest.approx(10)


def test_the_tokens_of_a_prompt_share_bytes_but_not_arithmetic() -> None:
    few = predicted(prompt_tokens=2, prompt_compute=0.05)
    many = predicted(prompt_tokens=100, prompt_compute=0.05)
    assert few is not None
    assert many is not None
    assert few.prompt_seconds == pytest.approx(0.2)
    assert many.prompt_seconds == pytest.approx(5)


def test_only_the_rate_that_decides_has_to_be_known() -> None:
    resident = predicted(storage=None)
    assert resident is not None
    assert (resident.bound, resident.load_seconds) == ("dram", 0)
    paged = predicted(memory_bytes=1, dram=None)
    assert paged is not None
    assert paged.bound == "storage"
    assert predicted(dram=None) is None
    assert predicted(memory_bytes=1, storage=None) is None


@pytest.mark.parametrize(("memory", "fits"), [(1.14, True), (0.88, False)])
def test_near_the_border_both_times_are_predicted(memory: float, fits: bool) -> None:
    found = predicted(memory_bytes=round(memory * GB))
    assert found is not None
    assert found.both is not None
    resident, paged = found.both
    assert (resident.seconds_per_token, paged.seconds_per_token) == (0.2, 10)
    assert found.fits is fits
    assert found.slower == paged if fits else found.slower is found
    assert f"within 15% of what fits in memory (1.00 GB of {memory} GB): 200 ms a token if it" in (
        found.explanation.replace("880 MB", "0.88 GB")
    )
    assert ", 10.0 s if not (every token reads 1.00 GB at 100 MB/s" in found.explanation


@pytest.mark.parametrize("memory", [1.16, 0.86])
def test_away_from_the_border_there_is_one_time(memory: float) -> None:
    found = predicted(memory_bytes=round(memory * GB))
    assert found is not None
    assert found.both is None
    assert found.slower is found


def test_near_the_border_one_time_is_enough_where_the_other_is_unknown() -> None:
    found = predicted(memory_bytes=round(1.1 * GB), storage=None)
    assert found is not None
    assert (found.bound, found.both) == ("dram", None)


def test_the_tokens_of_a_batch_choose_experts_of_their_own() -> None:
    assert experts_read(8, 2, 1) == 0.25
    assert experts_read(8, 2, 2) == pytest.approx(0.25 + 0.75 * 0.25)
    assert experts_read(128, 8, 512) == pytest.approx(1)
    found = predicted(prompt_tokens=64, prompt_bytes=4 * GB, memory_bytes=GB // 2)
    assert found is not None
    assert (found.prompt_seconds, found.seconds_per_token) == (40, 10)
