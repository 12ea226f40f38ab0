import pytest

from labctl.config.recipe_parts import Variant
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.errors import ConfigError
from labctl.runs.planning.time_limits import Amount
from labctl.runs.planning.trials import Plan, make_plan

FAST = Variant("q2_k", "q2_k", {})
SLOW = Variant("q8_0", "q8_0", {})
SECONDS_A_TOKEN = {"q2_k": 18.18, "q8_0": 49.73}


def predict(variant: Variant, tokens: int, warm_up_pass: bool) -> float:
    warm_up = warm_up_pass and variant.parameters.get("warmup") is not False
    passes = tokens + 2 + warm_up  # load and prompt read the weights once each
    return passes * SECONDS_A_TOKEN[variant.slug]


def plan(
    *variants: Variant, max_seconds: float, repeats: int = 3, tokens: int = 32, warm_up: int = 1
) -> Plan:
    amount = Amount(repeats, warm_up, {v.slug: tokens for v in variants})
    return make_plan(
        variants,
        amount,
        order="interleaved",
        max_seconds=max_seconds,
        min_tokens=4,
        predict=predict,
        roles=LlamaCpp.roles,
    )


def test_what_fits_is_not_touched() -> None:
    made = plan(FAST, max_seconds=3600)
    assert made.notes == ()
    assert [trial.repeat for trial in made.trials] == [0, 1, 2, 3]
    assert {trial.tokens for trial in made.trials} == {32}
    assert made.predicted_seconds == pytest.approx(4 * 35 * 18.18)


def test_a_board_that_needs_50_s_a_token_gets_few_tokens_and_no_warm_up() -> None:
    made = plan(SLOW, max_seconds=15 * 60)
    (trial,) = made.trials
    assert (trial.repeat, trial.tokens, trial.warm_up_pass) == (1, 14, False)
    assert made.predicted_seconds is not None
    assert made.predicted_seconds <= 15 * 60
    assert made.notes == (
        "as written the trials are predicted to take 116 min, max_time is 15 min: no warm-up",
        "1 of 3 repeats",
        "14 of 32 tokens",
    )


def test_repeats_are_cut_before_tokens() -> None:
    made = plan(FAST, max_seconds=25 * 60)
    assert [trial.repeat for trial in made.trials] == [1, 2]
    assert {trial.tokens for trial in made.trials} == {32}


def test_what_can_never_fit_is_refused_with_the_time_it_needs() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(FAST, SLOW, max_seconds=60)
    assert caught.value.message == (
        "one trial a variant, of 4 tokens, is predicted to take 7 min; max_time is 60 s"
    )
    assert caught.value.hint == "raise max_time to 8m or more, or measure fewer variants"


def test_what_is_not_there_is_not_said_to_be_cut() -> None:
    cold = Variant("q2_k", "q2_k", {"warmup": False})
    made = plan(cold, max_seconds=25 * 60, warm_up=0)
    assert made.notes == (
        "as written the trials are predicted to take 31 min, max_time is 25 min",
        "2 of 3 repeats",
    )


def test_variants_take_turns() -> None:
    made = plan(FAST, SLOW, max_seconds=1e9, repeats=2)
    assert [(t.number, t.slug) for t in made.trials] == [
        (1, "q2_k-warmup"),
        (2, "q8_0-warmup"),
        (3, "q2_k-r1"),
        (4, "q8_0-r1"),
        (5, "q2_k-r2"),
        (6, "q8_0-r2"),
    ]


def test_without_a_prediction_nothing_is_cut() -> None:
    made = make_plan(
        [SLOW],
        Amount(2, 0, {"q8_0": 128}),
        order="grouped",
        max_seconds=1,
        min_tokens=4,
        predict=lambda *_: None,
        roles=LlamaCpp.roles,
    )
    assert len(made.trials) == 2
    assert made.predicted_seconds is None
