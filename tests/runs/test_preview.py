"""What `labctl plan` tells before anything moves."""

import pytest
from forecasts import forecast_of
from records_made import model

from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import Variant
from labctl.engines.base import MemoryNeed
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.performance.prediction import ModelWorkload, Rate, Rates
from labctl.records.board import BoardFacts, Execution
from labctl.runs.plan import Preview
from labctl.runs.planning.forecast import plan_trials

PROBE = "the probe of 2026-11-20"
RATES = Rates(Rate(175e6, PROBE), {4: Rate(5e9, PROBE)})
Q2 = model("q2", "Q2_K", bytes_per_token=3_180_000_000, size_bytes=3_180_000_000)
NEED = MemoryNeed(3_180_000_000, 0, None, None)
VARIANT = Variant("q2", "q2", {"tokens": 5, "warmup": False})


def seen(
    execution: Execution = Execution.BOARD, available: int = 1_600_000_000, **changes: object
) -> Preview:
    facts = BoardFacts(
        execution=execution,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_available_bytes=available,
    )
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"q2": {"file": "q2.gguf"}},
            "prompt": "x",
            "max_time": "1h",
            **changes,
        }
    )
    workloads = {"q2": ModelWorkload.of(Q2, NEED, LlamaCpp.roles.workload(VARIANT.parameters))}
    forecast = forecast_of(workloads, facts, RATES, (VARIANT,))
    return Preview(plan_trials(recipe, forecast, 3600), forecast, 3600, ())


def test_a_trial_and_all_of_them_are_foretold() -> None:
    found = seen(repeats=3)
    (row,) = found.rows()
    assert (row.trials, row.optional, row.tokens) == (3, 0, 5)
    assert row.predicted is not None
    assert round(row.predicted.token_ns / 1e9, 1) == 18.2
    assert row.predicted.bound == "storage"
    # Loading reads the file, and the prompt reads it again.
    assert row.predicted.ttft_ns == pytest.approx(2 * row.predicted.token_ns)
    assert row.predicted.trial_ns == pytest.approx(6 * row.predicted.token_ns)
    assert row.predicted.resident_token_ns is None
    first, board, second = found.messages()
    assert board == "planned for the board as it is now"
    assert first == (
        "predicted to take 327 s, loading included, from the probe of 2026-11-20;"
        " max_time is 60.0 min"
    )
    assert "does not fit in memory" in second


def test_near_the_border_of_memory_both_times_are_told() -> None:
    found = seen(available=3_300_000_000)
    (row,) = found.rows()
    assert row.predicted is not None
    assert row.predicted.resident_token_ns == row.predicted.token_ns == 636_000_000
    assert round((row.predicted.storage_token_ns or 0) / 1e9, 1) == 18.2
    assert found.messages()[2] == (
        "q2: within 15% of what fits in memory (3.18 GB of 3.30 GB): 636 ms a token if it does"
        " (3.18 GB a token at 5.00 GB/s from DRAM, at best), 18.2 s if not (every token reads"
        " 3.18 GB at 175 MB/s from storage), up to 40.0 s if it reads single pages"
    )
    assert row.predicted.upper_token_ns is not None
    assert row.predicted.upper_token_ns == pytest.approx(
        2.2 * (row.predicted.storage_token_ns or 0)
    )
    (document,) = found.document()["variants"].values()
    assert document["storage_token_ns"] == row.predicted.storage_token_ns


def test_repeats_that_depend_on_the_result_are_told_apart() -> None:
    (row,) = seen(repeats_until={"confidence_interval": 0.02, "max_repeats": 10}).rows()
    assert (row.trials, row.optional) == (4, 6)
    (row,) = seen(repeats_until={"confidence_interval": 0.02, "max_repeats": 3}, repeats=5).rows()
    assert (row.trials, row.optional) == (3, 0)


def test_nothing_is_foretold_of_an_emulated_board() -> None:
    found = seen(Execution.EMULATED)
    assert found.rows()[0].predicted is None
    assert found.messages()[0].startswith("nothing is predicted: emulated, not a board")
