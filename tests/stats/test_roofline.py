import pytest

from labctl.stats import bandwidth_from, predict

GB = 10**9
DRAM = 5.5 * GB


def test_original_experiment_is_explained_by_the_storages_bandwidth() -> None:
    """Fitted on the small model alone, the large one is foretold within 5 %.

    One DAYU200 (RK3568, 2 GB), Meta-Llama-3.1-8B-Instruct: Q2_K of 3.18 GB took 18.18 s a token,
    Q8_0 of 8.54 GB took 49.73 s.
    """
    storage = bandwidth_from(round(3.18 * GB), 18.18)
    large = predict(
        bytes_per_token=round(8.54 * GB),
        resident_bytes=round(8.54 * GB),
        memory_bytes=2 * GB,
        dram_bytes_per_second=DRAM,
        storage_bytes_per_second=storage,
    )
    assert large.bound == "storage"
    assert large.seconds_per_token == pytest.approx(49.73, rel=0.05)
    assert "does not fit" in large.explanation


def test_model_that_fits_is_bound_by_dram() -> None:
    small = predict(
        bytes_per_token=round(0.63 * GB),
        resident_bytes=round(0.7 * GB),
        memory_bytes=2 * GB,
        dram_bytes_per_second=DRAM,
        storage_bytes_per_second=175e6,
        prompt_tokens=600,
        ubatch=512,
    )
    assert small.bound == "dram"
    assert 8 <= 1 / small.seconds_per_token <= 10
    assert small.load_seconds == pytest.approx(3.6)
    assert small.prompt_seconds == pytest.approx(2 * small.seconds_per_token)
    assert "fits in memory" in small.explanation


def test_a_generation_is_load_prompt_and_the_other_tokens() -> None:
    slow = predict(
        bytes_per_token=10 * GB,
        resident_bytes=10 * GB,
        memory_bytes=2 * GB,
        dram_bytes_per_second=DRAM,
        storage_bytes_per_second=0.1 * GB,
        prompt_tokens=7,
    )
    assert slow.seconds_per_token == 100
    assert slow.seconds(4, warmup=False) == 400
    assert slow.seconds(4, warmup=True) == 500


@pytest.mark.parametrize(
    "wrong", [{"bytes_per_token": 0}, {"memory_bytes": 0}, {"storage_bytes_per_second": 0.0}]
)
def test_nothing_is_predicted_from_nothing(wrong: dict[str, int]) -> None:
    right = {
        "bytes_per_token": 1,
        "resident_bytes": 1,
        "memory_bytes": 1,
        "dram_bytes_per_second": 1.0,
        "storage_bytes_per_second": 1.0,
    }
    with pytest.raises(ValueError, match="above 0"):
        predict(**(right | wrong))  # type: ignore[arg-type]
