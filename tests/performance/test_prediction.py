import pytest
from forecasts import forecast_of
from records_made import model

from labctl.config.recipe_parts import Variant
from labctl.config.target import load_target
from labctl.engines.base import MemoryNeed, TokenCounts
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.performance.prediction import (
    ModelWorkload,
    Rate,
    Rates,
    predictions,
    rates_of,
    source_of,
    tells_reading,
)
from labctl.records.board import BoardFacts, Execution
from labctl.runs.planning.time_limits import Amount
from labctl.runs.planning.trials import make_plan

#: Meta-Llama-3.1-8B-Instruct: of its bytes, all but the looked-up embedding move for each token.
LLAMA_Q8 = model("q8_0", "Q8_0", size_bytes=8_540_000_000, tensor_bytes=8_530_000_000,
                 bytes_per_token=7_980_000_000)  # fmt: skip
WORK = ModelWorkload(LLAMA_Q8, MemoryNeed(8_530_000_000, 0, None, None))
RATES = rates_of([], load_target("rk3568").expectations)


def facts(execution: Execution = Execution.BOARD, memory: int | None = 2_000_000_000) -> BoardFacts:
    return BoardFacts(
        execution=execution,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_available_bytes=memory,
    )


def test_a_model_larger_than_memory_is_read_from_storage_for_every_token() -> None:
    found = predictions({"q8_0": WORK}, facts(), RATES)["q8_0"]
    assert found.bound == "storage"
    assert found.seconds_per_token == pytest.approx(7.98e9 / 162.5e6)
    assert found.load_seconds == pytest.approx(8.54e9 / 162.5e6)  # whole: the embedding too


def test_an_accidental_night_becomes_half_an_hour() -> None:
    # 5 repeats and a warm-up of 32 tokens at 49 s: over two and a half hours; q8_latency allows 30
    # minutes.
    variant = Variant("q8_0", "q8_0", {"tokens": 32, "warmup": True})
    plan = make_plan(
        [variant],
        Amount(5, 1, {"q8_0": 32}),
        order="interleaved",
        max_seconds=1800,
        min_tokens=4,
        predict=forecast_of({"q8_0": WORK}, facts(), RATES).seconds,
        roles=LlamaCpp.roles,
    )
    (trial,) = plan.trials
    assert trial.parameters == {"tokens": 31, "warmup": False}
    assert plan.predicted_seconds is not None
    assert 1400 < plan.predicted_seconds < 1800
    assert plan.notes[1:] == ("1 of 5 repeats", "31 of 32 tokens")


def test_a_warm_up_pass_that_is_off_already_is_not_counted() -> None:
    predict = forecast_of({"q8_0": WORK}, facts(), RATES).seconds
    with_pass = predict(Variant("q8_0", "q8_0", {"warmup": True}), 4, True)
    without = predict(Variant("q8_0", "q8_0", {"warmup": False}), 4, True)
    assert with_pass is not None
    assert without is not None
    assert with_pass - without == pytest.approx(7.98e9 / 162.5e6)


@pytest.mark.parametrize(
    "board",
    [facts(Execution.EMULATED), facts(Execution.NATIVE_HOST), facts(memory=None)],
)
def test_nothing_is_predicted_from_nothing(board: BoardFacts) -> None:
    assert predictions({"q8_0": WORK}, board, RATES) == {}
    assert predictions({"q8_0": WORK}, facts(), None) == {}


SMALL = model("small", "Q4_K", bytes_per_token=600_000_000)
FITS = MemoryNeed(600_000_000, 0, None, None, kv_bytes_per_position=100_000)


def test_threads_batches_and_the_length_of_a_generation_count() -> None:
    workload = LlamaCpp.roles.workload({"threads": 2, "ubatch": 64, "tokens": 100})
    work = ModelWorkload.of(SMALL, FITS, workload, TokenCounts(1, 101, 99))
    assert (work.threads, work.batch, work.tokens) == (2, 64, 100)
    memory = {1: Rate(2e9, "p"), 2: Rate(3e9, "p"), 4: Rate(5e9, "p")}
    found = predictions({"small": work}, facts(), Rates(memory=memory))["small"]
    # In the middle of the generation 101 + 50 positions are in the cache; the prompt is 2 passes.
    assert found.seconds_per_token == pytest.approx((600e6 + 151 * 100_000) / 3e9)
    assert found.prompt_seconds == pytest.approx(2 * 600e6 / 3e9)


def test_the_source_is_that_of_the_rate_which_decides() -> None:
    rates = Rates(
        Rate(175e6, "expected", measured=False),
        {4: Rate(5e9, "memory")},
        decode={("Q4_K", 4): Rate(0.7e9, "arithmetic")},
    )
    fast = ModelWorkload(SMALL, FITS, threads=4)
    workloads = {"slow": WORK, "fast": fast, "two": ModelWorkload(SMALL, FITS, threads=2)}
    found = predictions(workloads, facts(), rates)
    sources = {slug: source_of(found[slug], workloads[slug], rates) for slug in workloads}
    assert sources == {"slow": "expected", "fast": "arithmetic", "two": "memory"}
    assert found["fast"].seconds_per_token == pytest.approx(6 / 7)


def test_dram_says_nothing_of_reading_a_text() -> None:
    rates = Rates(Rate(175e6, "expected"), {4: Rate(5e9, "memory")})
    measured = Rates(rates.storage, rates.memory, prompt={("Q4_K", 4): Rate(2e9, "arithmetic")})
    fits = ModelWorkload(SMALL, FITS, threads=4)
    found = predictions({"slow": WORK, "fits": fits}, facts(), rates)
    assert tells_reading(found["slow"], WORK, rates)
    assert not tells_reading(found["fits"], fits, rates)
    assert tells_reading(found["fits"], fits, measured)


def test_without_the_speed_of_storage_only_what_fits_is_foretold() -> None:
    rates = Rates(memory={None: Rate(5e9, "expected")})
    assert list(predictions({"q8": WORK, "small": ModelWorkload(SMALL, FITS)}, facts(), rates)) == [
        "small"
    ]


def test_a_prompt_of_a_mixture_touches_the_experts_of_all_its_tokens() -> None:
    """1 GB for all tokens and 8 experts of 1 GB: one token goes through 3 GB, a batch through 9."""
    mixture = model("moe", "Q4_K", tensor_bytes=9 * 10**9, bytes_per_token=3 * 10**9, experts=8,
                    experts_per_token=2, size_bytes=9 * 10**9)  # fmt: skip
    variant = Variant("moe", "moe", {"threads": 4, "ubatch": 64, "tokens": 2})
    need = MemoryNeed(9 * 10**9, 0, None, None)

    def bytes_of(prompt_tokens: int) -> int:
        return ModelWorkload.of(
            mixture,
            need,
            LlamaCpp.roles.workload(variant.parameters),
            TokenCounts(1, prompt_tokens, 1),
        ).prompt_bytes

    assert bytes_of(1) == 3 * 10**9
    assert bytes_of(2) == 3 * 10**9 + round(6e9 * 0.25)
    assert bytes_of(64) == bytes_of(512) == pytest.approx(9e9, rel=1e-6)
    work = ModelWorkload.of(
        mixture, need, LlamaCpp.roles.workload(variant.parameters), TokenCounts(1, 64, 1)
    )
    found = predictions({"moe": work}, facts(), RATES)["moe"]
    assert found.prompt_seconds == pytest.approx(9e9 / 162.5e6, rel=1e-6)
    assert found.seconds_per_token == pytest.approx(3e9 / 162.5e6)
    dense = ModelWorkload.of(
        SMALL, FITS, LlamaCpp.roles.workload(variant.parameters), TokenCounts(1, 64, 1)
    )
    assert dense.prompt_bytes == dense.bytes_per_token
