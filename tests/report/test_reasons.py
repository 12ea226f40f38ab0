"""What is said beside the table."""

from records_made import model, run, timing, trial

from labctl.errors import BoardRebooted
from labctl.records.telemetry import BoardState, ResidentFile
from labctl.records.trial import (
    Check,
    ConditionRecord,
    Failure,
    JobStatus,
    TelemetrySummary,
    TrialBound,
    TrialPrediction,
    TrialRecord,
)
from labctl.report.details import reasons

BOUND = TrialBound(
    measured=True,
    kind="storage",
    share=0.98,
    bytes_per_token=1,
    bytes_per_second=1,
    sentence="storage-bound: so",
)
PREDICTED = TrialPrediction(token_ns=90_000_000, trial_ns=10**9, bound="storage", source="a probe")


def test_bound_prediction_and_precision_are_said() -> None:
    trials = [
        trial(
            n,
            bound=BOUND,
            predicted=PREDICTED,
            measured_to_predicted=10 / 9,
            timing=timing([100] * 4, mean_ns=10**8),
        )
        for n in (1, 2, 3, 4)
    ]
    asked = run(recipe_resolved={"repeats_until": {"confidence_interval": 0.02}})
    assert reasons(asked, trials) == [
        "q2_k: storage-bound: so",
        "q2_k: predicted 90.0 ms a token, bound by storage; measured 100 ms, 1.11 times that",
        "q2_k: tokens_per_second 10.0 ± 0.0% (95% interval 10.0 to 10.0, 4 repeats)",
    ]


def test_near_the_border_of_memory_both_predictions_are_said() -> None:
    near = PREDICTED.model_copy(
        update={"resident_token_ns": 90_000_000, "storage_token_ns": 2_600_000_000}
    )
    trials = [trial(n, predicted=near, timing=timing([100] * 4, mean_ns=10**8)) for n in (1, 2, 3)]
    (told,) = reasons(run(), trials)
    assert told == (
        "q2_k: its need is so near to the memory that 90.0 ms a token were predicted if the weights"
        " stay there, 2.60 s if storage reads them again; measured 100 ms"
    )
    longer = near.model_copy(update={"upper_token_ns": 5_720_000_000})
    (told,) = reasons(run(), [trials[0].model_copy(update={"predicted": longer})])
    assert "if storage reads them again (up to 5.72 s by single pages); measured" in told


def test_what_was_not_had_and_what_was_begun_again_is_said() -> None:
    hot = ConditionRecord(name="temperature", wanted="<= 50 °C", had="91 °C", ok=False)
    cut = Failure.of(BoardRebooted("it restarted"))
    trials = [trial(1, conditions=(hot,)), trial(2, attempt=2, earlier_failures=(cut,))]
    assert reasons(run(), trials) == [
        "not as asked in 1 trials: temperature <= 50 °C: 91 °C",
        "trial 2 was retried: it restarted",
    ]


def test_a_check_that_failed_is_said_with_what_was_seen() -> None:
    hot = Check(name="frequency", ok=False, detail="816 to 1992 MHz, up to 95 °C")
    good = Check(name="frequency", ok=True, detail="1992 to 1992 MHz")
    trials = [trial(1, checks=(good,)), trial(2, checks=(hot,)), trial(3, checks=(hot,))]
    assert reasons(run(), trials) == [
        "q2_k: frequency failed in 2 of 3 trials; trial 2: 816 to 1992 MHz, up to 95 °C"
    ]


def test_what_the_kernel_used_to_free_memory_is_said() -> None:
    trials = [trial(n, evidence=TelemetrySummary(samples=9, reclaim_share=0.18)) for n in (1, 2)]
    (line,) = reasons(run(), trials)
    assert line == (
        "q2_k: the kernel used 18% of a CPU to free memory (kswapd), as it does when more is read"
        " than stays in memory; it is not part of quiet"
    )
    rarely = [
        trial(n, evidence=TelemetrySummary(samples=9, reclaim_share=share))
        for n, share in enumerate((0.0, 0.0, 0.3), 1)
    ]
    assert reasons(run(), rarely) == []  # the median trial had none of it
    little = trial(1, evidence=TelemetrySummary(samples=9, reclaim_share=0.01))
    assert reasons(run(), [little]) == []


def _begun_with(number: int, resident_bytes: int) -> TrialRecord:
    resident = ResidentFile(file_bytes=1000, resident_bytes=resident_bytes)
    status = JobStatus(
        outcome="exited", start_mono_ns=0, end_mono_ns=1, wall_ns=1, stdout_bytes=0,
        stderr_bytes=0, boot_id="b", epoch=1, state=BoardState(resident=resident),
    )  # fmt: skip
    return trial(number, job=status)


def test_a_cold_start_among_warm_ones_is_said() -> None:
    """A TTFT of 372 ms cold, and 214 warm."""
    (line,) = reasons(run(), [_begun_with(1, 0), _begun_with(2, 1000), _begun_with(3, 1000)])
    assert line == (
        "q2_k: trials began with different shares of the model in memory (cold in 1, warm in 2, 3):"
        " their TTFTs are not comparable"
    )
    assert reasons(run(), [_begun_with(1, 1000), _begun_with(2, 990)]) == []


def test_an_ordinary_run_needs_no_words() -> None:
    assert reasons(run(), [trial(1, model=model())]) == []


def test_a_prediction_without_a_bound_is_said_too() -> None:
    one = trial(
        1,
        predicted=PREDICTED,
        measured_to_predicted=0.5,
        timing=timing([45] * 4, mean_ns=45 * 10**6),
    )
    assert reasons(run(), [one]) == [
        "q2_k: predicted 90.0 ms a token, bound by storage; measured 45.0 ms, 0.50 times that"
    ]


def test_a_ratio_is_told_with_how_well_it_is_known() -> None:
    """The board gets slower all the time; both of a round alike."""
    slow = {"variant": "q8_0", "model": model("q8_0", "Q8_0")}
    trials = []
    for n, drift in enumerate((1.0, 1.2, 1.5), 1):
        trials.append(trial(2 * n, repeat=n, timing=timing([270 * drift + n] * 4), **slow))
        trials.append(trial(2 * n + 1, repeat=n, timing=timing([100 * drift] * 4)))
    asked = run(variants=("q2_k", "q8_0"))  # whichever came first
    assert reasons(asked, trials) == [
        "q8_0: 2.72 times the token time of q2_k (95% interval 2.70 to 2.73, 3 rounds)"
    ]
    same = [t.model_copy(update={"variant": "q3"}) if t.variant == "q8_0" else t for t in trials]
    equal = [t.model_copy(update={"timing": timing([100 + t.number % 3] * 4)}) for t in same]
    (told,) = reasons(run(variants=("q2_k", "q3")), equal)
    assert told.endswith("3 rounds): no difference is shown")
    assert reasons(run(variants=("q2_k", "q3")), equal[:3]) == []  # one round has no spread
