from pathlib import Path

import pytest
from records_made import energy, model, run, timing, trial

from labctl.compare.figures import FIGURES
from labctl.config.recipe import Gate, Recipe
from labctl.errors import ExitStatus, ProgramFailed
from labctl.records.board import Execution
from labctl.records.energy import PhaseEnergy
from labctl.records.run import GateRecord
from labctl.records.trial import Check, Failure, JobStatus, TrialRecord, TrialState
from labctl.results.gates import COMPARED, METRICS, judge, metric_problems
from labctl.results.summary import summarise
from labctl.runs.record.directory import RunDirectory
from labctl.runs.runner import Outcome

Q8 = {"variant": "q8_0", "model": model("q8_0", "Q8_0")}


def judged(
    gate: Gate, *trials: TrialRecord, execution: Execution = Execution.BOARD
) -> dict[str, GateRecord]:
    rows = summarise(trials)
    records = judge([gate], rows, {row.variant: {} for row in rows}, execution)
    return {record.variant: record for record in records}


@pytest.mark.parametrize(
    ("bounds", "passed"), [({"max": 110.0}, True), ({"max": 109.0}, False), ({"min": 111}, False)]
)
def test_a_bound_holds_up_to_its_value(bounds: dict[str, float], passed: bool) -> None:
    gate = Gate.model_validate({"metric": "tpot_p50_ms", **bounds})
    assert judged(gate, trial(1))["q2_k"].passed is passed


def test_a_gate_says_which_estimate_it_judges() -> None:
    """Of 100, 100 and 160 ms the geometric mean, which the table shows, and not the median."""
    gate = Gate(metric="tpot_ms", max=110)
    skewed = [trial(n, timing=timing([ms] * 4)) for n, ms in enumerate((100, 100, 160), 1)]
    record = judged(gate, *skewed)["q2_k"]
    assert (record.passed, record.estimate) == (False, "geometric mean")
    assert record.value == pytest.approx((100 * 100 * 160) ** (1 / 3))


@pytest.mark.parametrize("execution", [Execution.EMULATED, Execution.NATIVE_HOST])
def test_only_a_board_is_judged(execution: Execution) -> None:
    gate = Gate(metric="tpot_p50_ms", max=1e9)
    record = judged(gate, trial(1), execution=execution)["q2_k"]
    assert record.passed is None
    assert execution in record.detail


def test_no_result_passes_no_gate() -> None:
    crash = Failure.of(ProgramFailed("crash"))
    failed = trial(1, **Q8, state=TrialState.FAILED, failure=crash, timing=None)
    skipped = trial(2, state=TrialState.SKIPPED, timing=None)
    records = judged(Gate(metric="tpot_p50_ms", max=1e9), failed, skipped)
    assert [record.passed for record in records.values()] == [False, False]


def test_a_ratio_to_a_variant_without_result_passes_no_gate() -> None:
    crash = Failure.of(ProgramFailed("crash"))
    failed = trial(1, **Q8, state=TrialState.FAILED, failure=crash, timing=None)
    assert judged(Gate(metric="ratio", max=1.0), failed, trial(2))["q2_k"].passed is False


def test_a_gate_speaks_of_the_variants_it_names() -> None:
    gate = Gate(metric="tpot_p50_ms", max=200.0, where={"model": "q8_0"})
    slow = trial(1, **Q8, timing=timing([300, 300]))
    assert list(judged(gate, slow, trial(2))) == ["q8_0"]


def test_a_gate_that_speaks_of_no_variant_is_not_silent() -> None:
    gate = Gate(metric="tpot_p50_ms", max=200.0, where={"threads": 8})
    record = judged(gate, trial(1))["no variant"]
    assert record.passed is None
    assert record.detail == "not judged: no variant of this run has threads=8"


def test_a_value_that_failed_its_checks_keeps_no_gate() -> None:
    doubtful = trial(1, checks=(Check(name="span", ok=False, detail="0.9"),))
    record = judged(Gate(metric="tpot_p50_ms", max=200.0), doubtful)["q2_k"]
    assert record.passed is False
    assert record.detail == "110, not to be trusted: checks failed: span"


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_value(metric: str) -> None:
    job = JobStatus(
        outcome="exited", start_mono_ns=0, end_mono_ns=9, wall_ns=9 * 10**9, stdout_bytes=0,
        stderr_bytes=0, boot_id="b", epoch=1,
    )  # fmt: skip
    timed = timing([100, 110, 120], p90_ns=118_000_000)
    phase = PhaseEnergy(joules_per_token=0.5)
    told = energy(prompt=phase, decode=phase)
    measured = trial(1, energy=told, job=job, timing=timed)
    record = judged(Gate(metric=metric, min=0.1), measured)["q2_k"]
    assert record.value is not None
    assert record.passed is True
    assert judged(Gate(metric=metric, max=record.value / 2), measured)["q2_k"].passed is False


def test_energy_that_nobody_metered_keeps_no_gate() -> None:
    record = judged(Gate(metric="joules_per_token", min=0.1), trial(1))["q2_k"]
    assert (record.value, record.passed) == (None, False)


@pytest.mark.parametrize(("most", "status"), [(200.0, ExitStatus.OK), (100.0, ExitStatus.JOB)])
def test_a_missed_gate_is_a_failure(most: float, status: int, tmp_path: Path) -> None:
    gate = Gate(metric="tpot_p50_ms", max=most)
    gates = tuple(judged(gate, trial(1)).values())
    assert Outcome(RunDirectory(tmp_path), run(), (trial(1),), gates).exit_status == status


def test_a_missed_bound_says_by_how_much() -> None:
    assert judged(Gate(metric="tpot_ms", max=100), trial(1))["q2_k"].detail == "110, 10% above 100"
    assert judged(Gate(metric="tpot_ms", min=200), trial(1))["q2_k"].detail == "110, 45% below 200"


def test_only_speed_is_compared_with_other_runs() -> None:
    assert set(COMPARED) <= set(METRICS) & set(FIGURES)
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"m": {"file": "m.gguf"}},
            "max_time": "1m",
            "gates": [
                {"metric": "tpot_ms", "against": "last-good"},
                {"metric": "mean_watts", "against": "last-good"},
            ],
        }
    )
    ((path, problem),) = metric_problems(recipe)
    assert path == ("gates", 1, "metric")
    assert problem.startswith(
        "mean_watts is not compared with other runs; these are: end_to_end_ms"
    )
