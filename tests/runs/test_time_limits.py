"""How long a trial may run: many times what is foretold of it; and it is told why."""

from datetime import timedelta

import pytest
from forecasts import forecast_of
from records_made import BEGAN, model, trial

from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import Variant
from labctl.engines.base import MemoryNeed
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.errors import ProgramTimeout
from labctl.performance.prediction import ModelWorkload, Rate, Rates
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import JobStatus, TrialLimit, TrialPrediction
from labctl.runs.planning.time_limits import (
    FAR,
    LEAST_SECONDS,
    MAX_TIME,
    NEAR,
    RunClock,
    measured_limit,
    planned_limits,
    timed_out,
)
from labctl.runs.planning.trials import PlannedTrial

PROBE = "the probe of 2026-11-20"
HOUR_NS = 3600 * 10**9
RATES = Rates(Rate(175e6, PROBE), {4: Rate(5e9, PROBE)}, decode={("Q4_K", 4): Rate(0.7e9, PROBE)})
NEED = MemoryNeed(3_180_000_000, 0, None, None)


def limit(
    memory: int,
    *,
    quantization: str = "Q2_K",
    tokens: int = 100,
    execution: Execution = Execution.BOARD,
    **recipe: object,
) -> TrialLimit:
    """Of a trial of 3.18 GB a token on a board with so many bytes of memory."""
    facts = BoardFacts(
        execution=execution,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_available_bytes=memory,
    )
    asked = Recipe.model_validate(
        {
            "name": "r",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"m": {"file": "m.gguf"}},
            "prompt": "x",
            "max_time": "12h",
            **recipe,
        }
    )
    variant = Variant("m", "m", {"tokens": tokens, "warmup": False, "threads": 4})
    weights = model("m", quantization, bytes_per_token=3_180_000_000, size_bytes=3_180_000_000)
    workloads = {"m": ModelWorkload.of(weights, NEED, LlamaCpp.roles.workload(variant.parameters))}
    trial = PlannedTrial(1, variant, 1, tokens, warm_up_pass=False)
    return planned_limits(asked, [trial], forecast_of(workloads, facts, RATES), 43_200)["m"]


def test_what_storage_bounds_gets_ten_times_its_prediction() -> None:
    found = limit(1_600_000_000)
    # Loading, a prompt of one token, and 99 more; each reads 3.18 GB at 175 MB/s.
    assert found.seconds == pytest.approx(NEAR * (1 + 99 + 1 + 1) * 3.18e9 / 175e6)
    assert found.source == f"10 times the predicted 30.9 min ({PROBE})"


def test_near_the_border_of_memory_the_limit_is_that_of_the_slower_side() -> None:
    fits = limit(3_400_000_000, quantization="Q4_K")
    assert fits.seconds == pytest.approx(NEAR * (1 + 99 + 1 + 1) * 3.18e9 / 175e6)


def test_what_is_foretold_by_dram_alone_gets_far_more() -> None:
    """An in-order core takes several times as long as its memory, and longer on one thread."""
    found = limit(8_000_000_000)
    foretold = 3.18e9 / 175e6 + (99 + 1 + 1) * 3.18e9 / 5e9
    assert found.seconds == pytest.approx(FAR * foretold)
    measured = limit(8_000_000_000, quantization="Q4_K")
    assert measured.source.startswith("10 times the predicted")


def test_no_limit_of_labctls_is_short() -> None:
    found = limit(8_000_000_000, tokens=1, quantization="Q4_K")
    assert found.seconds == LEAST_SECONDS
    assert found.source.startswith("the least that labctl gives; 10 times the predicted 23")


def test_a_recipe_knows_better() -> None:
    found = limit(1_600_000_000, timeouts={"trial": "5s"})
    assert (found.seconds, found.source) == (5, "the recipe's timeouts.trial")
    assert measured_limit(found, {"m": 100.0}, "m") == found


def test_what_nothing_foretells_may_take_the_whole_time() -> None:
    found = limit(1_600_000_000, execution=Execution.EMULATED)
    assert (found.seconds, found.source) == (
        43_200,
        "max_time: nothing predicts this trial",
    )


def test_a_trial_that_was_measured_is_better_than_any_prediction() -> None:
    planned = TrialLimit(seconds=700, source="10 times the predicted 70.0 s (the probe)")
    assert measured_limit(planned, {}, "m") == planned
    longer = measured_limit(planned, {"m": 690.0}, "m")
    assert longer.seconds == 6900
    assert longer.source == "10 times the 11.5 min of the trial before it"


def test_a_lower_bound_that_was_too_low_makes_no_program_hang() -> None:
    """50 minutes foretold, 60 allowed, and it would have taken 70."""
    variant = Variant("m", "m", {})
    trial = PlannedTrial(1, variant, 1, None, warm_up_pass=False)
    foretold = TrialPrediction(token_ns=10**9, trial_ns=3000 * 10**9, bound="storage", source=PROBE)
    own = TrialLimit(seconds=30_000, source="10 times the predicted 50.0 min")
    clock = RunClock(3600, {"m": own}, lambda _trial: foretold)
    given = clock.limit(trial)
    assert given.seconds == pytest.approx(3600, abs=5)
    reason = clock.reason_cut_short(trial, given)
    assert reason is not None
    assert reason.endswith("such a trial takes 3000.0 s at least")
    assert clock.reason_cut_short(trial, own) is None
    assert clock.longest_wait(trial) == pytest.approx(600, abs=5)


def test_who_is_stopped_is_told_by_what_and_what_to_do() -> None:
    error = ProgramTimeout("llama-cli did not end in time", details="tail")
    by_recipe = timed_out(error, TrialLimit(seconds=5, source="the recipe's timeouts.trial"))
    assert by_recipe.message == (
        "llama-cli did not end in time; limit: 5.00 s, the recipe's timeouts.trial"
    )
    assert "--set timeouts.trial=2h" in str(by_recipe.hint)
    assert by_recipe.details == "tail"
    assert "raise max_time" in str(timed_out(error, TrialLimit(seconds=5, source=MAX_TIME)).hint)


def test_what_an_earlier_controller_took_over_took_of_the_runs_time() -> None:
    """An hour on the board, of which it saw the last second; or its host's clock was set back."""
    job = JobStatus(
        outcome="exited", start_mono_ns=0, end_mono_ns=HOUR_NS, wall_ns=HOUR_NS,
        stdout_bytes=0, stderr_bytes=0, boot_id="b", epoch=1,
    )  # fmt: skip
    clock = RunClock(10_000, {}, lambda _trial: None)
    clock.remember(trial(job=job, started=BEGAN, finished=BEGAN - timedelta(hours=2)))
    assert clock.spent == pytest.approx(3600, abs=5)
    # 30 s, of which it waited 10: both are over.
    clock.remember(trial(waited_ns=10 * 10**9))
    assert clock.spent == pytest.approx(3630, abs=5)


def test_a_clock_of_the_host_that_was_set_takes_nothing_of_the_runs_time() -> None:
    """A host that starts without the time gets it from the network, perhaps during a trial."""
    clock = RunClock(10_000, {}, lambda _trial: None)
    years = BEGAN + timedelta(days=700)
    clock.remember(trial(finished=years, job=None, took_ns=30 * 10**9, waited_ns=10 * 10**9))
    assert clock.spent == pytest.approx(30, abs=5)
    next_one = PlannedTrial(2, Variant("q2_k", "m", {}), 2, 8, False)
    assert clock.expected(next_one) == pytest.approx(20)
    assert clock.reason_to_skip(next_one) is None


def test_what_is_left_of_a_run_is_known_as_soon_as_one_trial_has_ended() -> None:
    variants = [Variant(name, name, {}) for name in ("a", "b")]
    trials = [PlannedTrial(n, v, 1, 8, False) for n, v in enumerate([*variants, *variants], 1)]
    clock = RunClock(10_000, {}, lambda _trial: None)
    assert clock.remaining(trials) is None
    clock.note(trial(1, variant="a", job=None), 60.0)
    assert clock.remaining(trials[1:]) == pytest.approx(180)  # b as long as a
    clock.note(trial(2, variant="b", job=None), 100.0)
    assert clock.remaining(trials[2:]) == pytest.approx(160)
    assert RunClock(5, {}, lambda _trial: None).remaining([]) == 0.0
