"""What is said beside the table."""

from records_made import model, run, timing, trial

from labctl.errors import BoardRebooted
from labctl.records import ConditionRecord, Failure, TrialBound, TrialPrediction
from labctl.report.reasons import reasons

BOUND = TrialBound(
    kind="storage", share=0.98, bytes_per_token=1, bytes_per_second=1, sentence="storage-bound: so"
)
PREDICTED = TrialPrediction(token_ns=90_000_000, trial_ns=10**9, bound="storage", source="a probe")


def test_bound_prediction_and_precision_are_said() -> None:
    trials = [
        trial(n, bound=BOUND, predicted=PREDICTED, timing=timing([100] * 4, mean_ns=10**8))
        for n in (1, 2, 3)
    ]
    asked = run(recipe_resolved={"repeats_until": {"confidence_interval": 0.02}})
    assert reasons(asked, trials) == [
        "q2_k: storage-bound: so",
        "q2_k: predicted 90.0 ms a token, measured 100 ms",
        "q2_k: tokens_per_second 10 ± 0.0% (95% interval, 3 repeats)",
    ]


def test_what_was_not_had_and_what_was_begun_again_is_said() -> None:
    hot = ConditionRecord(name="temperature", wanted="<= 50 °C", had="91 °C", ok=False)
    cut = Failure.of(BoardRebooted("it restarted"))
    trials = [trial(1, surroundings=(hot,)), trial(2, attempt=2, earlier_failures=(cut,))]
    assert reasons(run(), trials) == [
        "not as asked in 1 trials: temperature <= 50 °C: 91 °C",
        "trial 2 was begun again: it restarted",
    ]


def test_an_ordinary_run_needs_no_words() -> None:
    assert reasons(run(), [trial(1, model=model())]) == []
