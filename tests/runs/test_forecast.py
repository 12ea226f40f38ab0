"""What is warned of, planned, limited and recorded rests on one forecast."""

from pathlib import Path

import pytest
from records_made import model

from labctl.config.recipe import Recipe
from labctl.config.target import load_target
from labctl.engines.base import Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.models.cache import ModelFile
from labctl.performance.prediction import rates_of
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.planning.forecast import make_forecast, plan_trials
from labctl.runs.planning.time_limits import planned_limits
from labctl.units import duration

#: Meta-Llama-3.1-8B-Instruct on a board of a quarter of its size.
LLAMA_Q8 = model("q8", "Q8_0", size_bytes=8_540_000_000, tensor_bytes=8_530_000_000,
                 bytes_per_token=7_980_000_000)  # fmt: skip
RECIPE = Recipe.model_validate(
    {
        "name": "big",
        "target": "rk3568",
        "engine": {"name": "llama_cpp"},
        "models": {"q8": {"file": "q8.gguf"}},
        "prompt": "x",
        "parameters": {"tokens": 8},
        "max_time": "2h",
    }
)
PREPARED = Prepared(
    lab_root=Path("/lab"),
    recipe=RECIPE,
    engine=LlamaCpp(),
    artifact=None,
    tool=Tool("llama-completion", "completion"),
    program=None,
    prompt="x",
    files={},
    models={"q8": ModelFile(Path("q8.gguf"), LLAMA_Q8)},
)
RATES = rates_of([], load_target("rk3568").expectations)


def facts(available: int) -> BoardFacts:
    return BoardFacts(
        execution=Execution.BOARD,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        cpus=(CpuFacts(count=4),),
        memory_total_bytes=16_000_000_000,
        memory_available_bytes=available,
    )


def test_a_warning_names_the_time_that_the_plan_counts_with() -> None:
    forecast = make_forecast(PREPARED, facts(2_000_000_000), RATES)
    plan = plan_trials(RECIPE, forecast, RECIPE.max_time)
    limits = planned_limits(RECIPE, plan.trials, forecast, RECIPE.max_time)
    (warning,) = forecast.warnings
    assert "will not fit in 2.00 GB" in warning
    for trial in plan.trials:
        predicted = forecast.of(trial)
        assert predicted is not None
        assert f"about {duration(predicted.token_ns)} a token" in warning
        assert limits[trial.variant.slug].source.endswith(f"({predicted.source})")
    assert plan.predicted_seconds is not None
    trials = [forecast.of(trial) for trial in plan.trials]
    assert plan.predicted_seconds == pytest.approx(sum(t.trial_ns for t in trials if t) / 1e9)


def test_what_fits_is_planned_by_the_rate_of_memory_without_a_warning() -> None:
    forecast = make_forecast(PREPARED, facts(15_000_000_000), RATES)
    assert forecast.warnings == []
    (trial, *_) = plan_trials(RECIPE, forecast, RECIPE.max_time).trials
    predicted = forecast.of(trial)
    assert predicted is not None
    assert predicted.bound == "dram"


def test_variants_that_were_resolved_before_stay_as_they_are() -> None:
    """A resumed run has those of its plan."""
    first = make_forecast(PREPARED, facts(2_000_000_000), RATES)
    again = make_forecast(PREPARED, facts(15_000_000_000), RATES, first.variants)
    assert again.variants == first.variants
    assert again.notes == ()


def test_a_memory_clock_that_is_not_visible_is_noted_before_a_run() -> None:
    blind = facts(15_000_000_000).model_copy(update={"devfreq": ()})
    assert "memory clock not visible" in make_forecast(PREPARED, blind, RATES).notes
