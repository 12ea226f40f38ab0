"""The value of a run of a night: of what came to its end, and of no run that failed."""

import pytest
from records_made import timing, trial

from labctl.errors import Blame, ConfigError, HostError, ProgramFailed
from labctl.farm.nightly.lab_executor import run_values
from labctl.records.night import NightRow
from labctl.records.trial import Check, Failure, TrialRecord, TrialState

ROW = NightRow(
    name="llama/q2@rk1",
    build="llama",
    recipe="q2",
    board="rk1",
    variants=("q2_k",),
    seconds=1,
    screen=4,
    look=6,
)


def failed(number: int, blame: Blame) -> TrialRecord:
    failure = Failure(kind="ProgramFailed", blame=blame, message="killed by SIGABRT")
    return trial(number, state=TrialState.FAILED, failure=failure, timing=None)


def skipped(number: int) -> TrialRecord:
    failure = Failure(kind="ProgramFailed", blame=Blame.JOB, message="an earlier one failed")
    return trial(number, state=TrialState.SKIPPED, failure=failure, timing=None)


def test_a_run_has_the_median_of_its_repeats() -> None:
    assert set(run_values(ROW, "r", [trial(n) for n in range(1, 6)], None)) == {"q2_k"}


def test_a_run_whose_program_fails_in_any_repeat_has_no_value() -> None:
    trials = [trial(1), failed(2, Blame.JOB), *(skipped(n) for n in (3, 4, 5))]
    with pytest.raises(ProgramFailed, match="SIGABRT"):
        run_values(ROW, "r", trials, None)


def test_repeats_that_the_link_lost_blame_no_program() -> None:
    most = [trial(1), *(failed(n, Blame.INFRA) for n in (2, 3))]
    with pytest.raises(HostError):
        run_values(ROW, "r", most, None)
    few = [trial(1), trial(2), trial(3), failed(4, Blame.INFRA)]
    assert run_values(ROW, "r", few, None)


def timed(
    number: int, arrivals: int | None, made: int | None = 9, **changes: object
) -> TrialRecord:
    """A trial whose tokens are timed as they come; some came together."""
    seen = {"arrivals": arrivals, "generated_tokens": made, "p50_ns": None, **changes}
    detail = f"{arrivals} arrivals for {made} tokens; not seen by themselves: 4; no rate is given"
    return trial(
        number,
        timing=timing([100] * 8, mean_ns=None, tokens_per_second=None, **seen),
        checks=(Check(name="arrivals", ok=False, detail=detail),),
    )


@pytest.mark.parametrize("figure", [None, "tpot_ms", "tokens_per_second", "tpot_p90_ms"])
def test_tokens_that_came_together_are_a_matter_of_the_board(figure: str | None) -> None:
    """A busy host lets some lines come together; TTFT, which is there, is not the row's figure."""
    lost = [timed(n, 5, p90_ns=None) for n in range(1, 6)]
    assert all(one.timing and one.timing.ttft_ns for one in lost)
    with pytest.raises(HostError, match=r"no repeat has the figure .*: trial 1: arrivals: 5 arri"):
        run_values(ROW, "r", lost, figure)
    some = [*lost[:3], trial(4), trial(5)]
    values = run_values(ROW, "r", [trial(n) for n in range(1, 6)], None)
    assert run_values(ROW, "r", some, None) == values


@pytest.mark.parametrize(
    ("trials", "figure"),
    [
        ([timed(1, 9)], "prefill_tokens_per_second"),  # its program prints no time of the prompt
        ([timed(1, 1, 1)], "tpot_ms"),  # one token has no gap
        ([timed(1, 5, None)], "tpot_ms"),  # nobody counts the tokens
        ([timed(1, 12)], "tpot_ms"),  # it prints other lines too
        ([timed(1, None)], "tpot_ms"),  # nothing is timed as it comes
        ([trial(1, timing=None)], None),
    ],
)
def test_what_no_run_of_a_recipe_can_have_is_a_mistake_of_the_plan(
    trials: list[TrialRecord], figure: str | None
) -> None:
    without = [
        one.model_copy(
            update={"timing": one.timing.model_copy(update={"prompt_eval_ns": None})}
            if one.timing
            else {}
        )
        for one in trials
    ]
    with pytest.raises(ConfigError, match="no repeat has the figure"):
        run_values(ROW, "r", without, figure)
