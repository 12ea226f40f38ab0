import pytest
from records_made import model

from labctl.config.target import load_target
from labctl.config.variants import Variant
from labctl.engines import MemoryNeed
from labctl.records import BoardFacts, Execution
from labctl.runs.plan import Amount, make_plan
from labctl.runs.predict import predictions, trial_predictor
from labctl.runs.rates import rates_of

#: Meta-Llama-3.1-8B-Instruct: of its bytes, all but the looked-up embedding move for each token.
LLAMA_Q8 = model("q8_0", "Q8_0", size_bytes=8_540_000_000, tensor_bytes=8_530_000_000,
                 bytes_per_token=7_980_000_000)  # fmt: skip
NEED = MemoryNeed(LLAMA_Q8.tensor_bytes, 0, None, None)
RATES = rates_of(None, load_target("rk3568").expectations)


def facts(execution: Execution = Execution.BOARD, memory: int | None = 2_000_000_000) -> BoardFacts:
    return BoardFacts(
        execution=execution,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_available_bytes=memory,
    )


def test_a_model_larger_than_memory_is_read_from_storage_for_every_token() -> None:
    found = predictions({"q8_0": (LLAMA_Q8, NEED)}, facts(), RATES, "hello")["q8_0"]
    assert found.bound == "storage"
    assert found.seconds_per_token == pytest.approx(45.6, abs=0.1)


def test_an_accidental_night_becomes_half_an_hour() -> None:
    # 5 repeats and a warm-up of 32 tokens at 46 s: two and a half hours; q8_latency allows 30 min.
    variant = Variant("q8_0", "q8_0", {"tokens": 32})
    predict = trial_predictor(predictions({"q8_0": (LLAMA_Q8, NEED)}, facts(), RATES, "hello"))
    plan = make_plan(
        [variant],
        Amount(5, 1, {"q8_0": 32}),
        order="interleaved",
        max_seconds=1800,
        min_tokens=4,
        predict=predict,
    )
    (trial,) = plan.trials
    assert trial.parameters == {"tokens": 32, "warmup": False}
    assert plan.predicted_seconds is not None
    assert 1400 < plan.predicted_seconds < 1800
    assert len(plan.notes) == 2


def test_a_warm_up_pass_that_is_off_already_is_not_counted() -> None:
    predict = trial_predictor(predictions({"q8_0": (LLAMA_Q8, NEED)}, facts(), RATES, "hello"))
    with_pass = predict(Variant("q8_0", "q8_0", {}), 4, True)
    without = predict(Variant("q8_0", "q8_0", {"warmup": False}), 4, True)
    assert with_pass is not None
    assert without is not None
    assert with_pass - without == pytest.approx(45.6, abs=0.1)


@pytest.mark.parametrize(
    "board",
    [facts(Execution.EMULATED), facts(Execution.NATIVE_HOST), facts(memory=None)],
)
def test_nothing_is_predicted_from_nothing(board: BoardFacts) -> None:
    assert predictions({"q8_0": (LLAMA_Q8, NEED)}, board, RATES, "hello") == {}
    assert predictions({"q8_0": (LLAMA_Q8, NEED)}, facts(), None, "hello") == {}
