"""Accuracy over time: planted crossings, equal models, and what nobody measured."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from records_made import energy, timing, trial
from simulated_latency import LARGE, PROMPT, SMALL, Model, answered, crossing, timed

from labctl.compare.equal_latency.answers import Answers, AnswerSet
from labctl.compare.equal_latency.crossings import locate, zero
from labctl.compare.equal_latency.curves import DrawnCurve, Draws
from labctl.compare.equal_latency.matching import budget_points, choose, match, rescaled_grid
from labctl.compare.equal_latency.result import Axis, Crossing
from labctl.compare.equal_latency.timing import answer_times
from labctl.records.timing import BenchTest, TimingRecord
from labctl.records.trial import TrialState
from labctl.results.summary import summarise
from labctl.stats.proportions import wilson_interval


def crossings(small: Model, large: Model, questions: int = 400, **how: float) -> list[Crossing]:
    chance = np.random.default_rng(5)
    hardness = chance.random(questions)
    times = {m.name: timed(m, chance, repeats=5, noise=0.02, **how) for m in (small, large)}
    sets = [answered(m, chance, hardness) for m in (small, large)]
    return list(match(sets, times, questions, resamples=400).crossings)


@pytest.mark.parametrize("axis", ["budget", "deadline"])
def test_a_planted_crossing_is_found_on_both_axes(axis: Axis) -> None:
    (found,) = [one for one in crossings(SMALL, LARGE) if one.axis == axis]
    truth = crossing(SMALL, LARGE)
    assert (found.kind, found.better_before, found.better_after) == (
        "crossing", "q2_k/plain", "q8_0/plain",
    )  # fmt: skip
    assert found.low < truth < found.high
    assert found.low < found.seconds < found.high
    assert found.seconds == pytest.approx(truth, rel=0.2)
    assert "Use q2_k/plain for" in found.sentence
    assert "and q8_0/plain above (95% interval" in found.sentence


def test_alike_models_do_not_cross() -> None:
    for one in crossings(Model("a", 0.1, 0.5), Model("b", 0.1, 0.5)):
        assert one.kind == "unclear"
        assert one.seconds is None
        assert "no difference is shown" in one.sentence


def test_a_model_that_is_better_all_the_time_crosses_nothing() -> None:
    for one in crossings(Model("a", 0.1, 0.9), Model("b", 0.2, 0.4)):
        assert (one.kind, one.better_before, one.better_after) == ("none", "a/plain", "a/plain")
        assert one.sentence.startswith("No crossing in range: a/plain is better than b/plain from")


def test_a_crossing_that_is_not_shown_is_open_to_one_side() -> None:
    # both end at the same accuracy: the quick one is better first, nobody later
    for one in crossings(Model("a", 0.1, 0.6), Model("b", 0.4, 0.6)):
        assert one.kind == "after"
        assert one.low is not None
        assert one.high is None
        assert one.better_after is None
        assert "a crossing, if there is one, comes after that" in one.sentence


def test_no_recommendation_rests_on_extrapolated_times() -> None:
    found = crossings(SMALL, LARGE, longest=120)  # of 1000 tokens 100 were measured
    assert found
    for one in found:
        assert one.end <= 120 * SMALL.token_seconds * 1.2
        assert one.kind != "crossing"


def test_beyond_the_measured_positions_a_curve_is_marked() -> None:
    chance = np.random.default_rng(1)
    times = {SMALL.name: timed(SMALL, chance, repeats=3, noise=0, longest=320)}
    sets = [answered(SMALL, chance, chance.random(200))]
    for one in match(sets, times, 200, resamples=50, deadlines=[10, 60]).curves:
        curve = one.curve()
        assert curve.measured_until == pytest.approx(300 * SMALL.token_seconds, rel=0.02)
        assert [p.extrapolated for p in curve.points] == [
            p.seconds > curve.measured_until for p in curve.points
        ]
    early, late = match(sets, times, 200, resamples=50, deadlines=[10, 60]).choices
    assert early.best == "q2_k/plain"
    assert late.best is None
    assert "extrapolated: nothing is recommended" in late.sentence


def test_the_choice_at_a_deadline() -> None:
    chance = np.random.default_rng(2)
    times = {m.name: timed(m, chance, repeats=3, noise=0.01) for m in (SMALL, LARGE)}
    hardness = chance.random(400)
    sets = [answered(m, chance, hardness) for m in (SMALL, LARGE)]
    quick, slow, none = match(sets, times, 400, deadlines=[60, 260, 0.001], resamples=400).choices
    assert (quick.best, quick.shown) == ("q2_k/plain", True)
    assert "deadline of 60.0 s use q2_k/plain" in quick.sentence
    assert (slow.best, slow.shown) == ("q8_0/plain", True)
    assert "no model has a right and complete answer" in none.sentence


def test_a_time_before_the_first_limit_has_no_choice() -> None:
    chance = np.random.default_rng(2)
    times = {m.name: timed(m, chance, repeats=3, noise=0) for m in (SMALL, LARGE)}
    hardness = chance.random(400)
    sets = [answered(m, chance, hardness) for m in (SMALL, LARGE)]
    # without the lengths of the prompts there are budget times alone; the first limit takes 5 s
    blind = [
        replace(one, cells=tuple(replace(cell, prompt_tokens=None) for cell in one.cells))
        for one in sets
    ]
    alone = match(blind, times, 400, resamples=100).crossings
    found = match(blind, times, 400, deadlines=[0.001, 4.9, 6.0, 7.5], resamples=100)
    for early in found.choices[:2]:
        assert (early.candidates, early.best) == ((), None)
        assert "no accuracy is known" in early.sentence
    first, second = (cell.correct.mean() for cell in sets[0].cells[:2])
    known = [choice.candidates[0].accuracy for choice in found.choices[2:]]
    assert known == pytest.approx([0.8 * first + 0.2 * second, (first + second) / 2])
    assert found.crossings == alone


@pytest.mark.parametrize("count", [2, 3])
def test_equal_models_are_seldom_shown_to_be_best(count: int) -> None:
    questions, rounds = 100, 600
    draws = Draws.of(questions, 400, 0)
    chance = np.random.default_rng(11)

    def curve(name: str) -> DrawnCurve:
        right = (chance.random(questions) < 0.5).astype(float)
        ones, question = np.ones(questions), np.arange(questions)
        cell = Answers(100, question, ones, right, ones, 50 * ones, 10 * ones)
        made = AnswerSet(name, "plain", states_budget=False, cells=(cell,))
        times, value = np.array([60.0]), np.array([right.mean()])
        drawn = (draws.questions @ right / questions)[:, None]
        return DrawnCurve(made, "deadline", times, value, drawn, np.inf, np.inf)

    shown = sum(
        choose([curve(f"m{k}") for k in range(count)], 60.0, questions).shown for _ in range(rounds)
    )
    assert shown / rounds <= 0.05 + 2 * (0.05 * 0.95 / rounds) ** 0.5


def test_further_deadlines_change_no_crossing() -> None:
    chance = np.random.default_rng(12)
    hardness = chance.random(300)
    times = {m.name: timed(m, chance, repeats=3, noise=0.02) for m in (SMALL, LARGE)}
    sets = [answered(m, chance, hardness) for m in (SMALL, LARGE)]
    alone = match(sets, times, 300, resamples=200).crossings
    for deadlines in ([60.0], [0.001, 60.0, 3600.0, 360_000.0]):
        found = match(sets, times, 300, resamples=200, deadlines=deadlines)
        assert found.crossings == alone
        assert len(found.choices) == len(deadlines)


def test_an_axis_without_a_common_measured_time_is_noted() -> None:
    chance = np.random.default_rng(13)
    hardness = chance.random(100)
    # the slower one's first limit takes longer than what was measured of the quicker one
    slow = Model("q8_0", 2.0, 0.856)
    times = {m.name: timed(m, chance, repeats=3, noise=0, longest=100) for m in (SMALL, slow)}
    sets = [answered(m, chance, hardness) for m in (SMALL, slow)]
    found = match(sets, times, 100, resamples=50)
    assert {one.axis for one in found.crossings} == {"deadline"}
    (told,) = found.gaps
    assert told == (
        "q2_k/plain and q8_0/plain have no common measured time on the axis of budgets:"
        " measure more tokens"
    )


def test_budgets_that_end_before_the_other_ones_are_noted() -> None:
    chance = np.random.default_rng(14)
    hardness = chance.random(100)
    times = {m.name: timed(m, chance, repeats=3, noise=0) for m in (SMALL, LARGE)}

    def notes(longest: int) -> tuple[str, ...]:
        limits = (50, 100, longest)
        sets = [answered(m, chance, hardness, budgets=limits) for m in (SMALL, LARGE)]
        return match(sets, times, 100, resamples=50).gaps

    (told,) = notes(400)
    assert told == (
        "limits of q2_k/plain end at 40.0 s, and budgets are compared only up to there: evaluate"
        " larger ones to see more"
    )
    assert notes(1000) == ()  # cuts no answer: a larger limit changes nothing


def test_draws_that_lie_close_make_no_interval_of_more_answers() -> None:
    """As at the end of a curve, where noise of the timing moves all draws to one side."""
    chance = np.random.default_rng(3)
    times = timed(SMALL, chance, repeats=3, noise=0)
    (one,) = [
        curve
        for curve in match(
            [answered(SMALL, chance, chance.random(40))], {SMALL.name: times}, 40, resamples=100
        ).curves
        if curve.axis == "budget"
    ]
    close = replace(one, draws=one.values + 0.001 * chance.standard_normal(one.draws.shape))
    for point in close.curve().points:
        least = wilson_interval(round(point.accuracy * 40), 40)
        assert point.high - point.low == pytest.approx(least.high - least.low)


def test_a_cut_answer_might_have_become_right_later() -> None:
    chance = np.random.default_rng(3)
    times = {SMALL.name: timed(SMALL, chance, repeats=3, noise=0)}
    cut = answered(SMALL, chance, chance.random(100), budgets=(100, 400))
    for one in match([cut], times, 100, resamples=50, deadlines=[80]).curves:
        assert one.curve().known_until == pytest.approx(400 * SMALL.token_seconds, rel=0.02)
        assert max(p.seconds for p in one.curve().points) <= 400 * SMALL.token_seconds * 1.02
    (choice,) = match([cut], times, 100, resamples=50, deadlines=[80]).choices
    assert choice.best is None
    assert "no accuracy is known" in choice.sentence


def test_a_prompt_moves_the_crossing() -> None:
    chance = np.random.default_rng(4)
    hardness = chance.random(600)
    terse = Model("q8_0", LARGE.token_seconds, LARGE.accuracy, longest=800)
    times = {m.name: timed(m, chance, repeats=5, noise=0.01) for m in (SMALL, LARGE)}
    sets = [
        answered(SMALL, chance, hardness),
        answered(LARGE, chance, hardness),
        answered(SMALL, chance, hardness, prompt="stated"),
        answered(terse, chance, hardness, prompt="stated"),
    ]
    truth = crossing(SMALL, terse) - crossing(SMALL, LARGE)
    shifts = match(sets, times, 600, resamples=400).shifts
    assert {one.axis for one in shifts} == {"budget", "deadline"}
    for one in shifts:
        assert (one.prompt, one.other) == ("plain", "stated")
        assert one.low < truth < one.high < 0
        assert "With stated q8_0 overtakes" in one.sentence
        assert "earlier than with plain" in one.sentence


def test_a_stated_budget_belongs_to_the_deadline() -> None:
    chance = np.random.default_rng(9)
    times = {SMALL.name: timed(SMALL, chance, repeats=3, noise=0)}
    plain = answered(SMALL, chance, chance.random(400), budgets=(200, 600))
    stated = replace(plain, prompt="stated", states_budget=True)
    prefill = PROMPT * 1e-3 * SMALL.token_seconds
    at = [20 + prefill, 40 + prefill, 60 + prefill]
    found = match([stated], times, 400, resamples=50, deadlines=at)
    few, middle, many = (choice.candidates[0].accuracy for choice in found.choices)
    shares = [float(cell.correct.mean()) for cell in stated.cells]
    assert [few, many] == pytest.approx(shares)
    assert middle == pytest.approx(sum(shares) / 2, abs=1e-6)  # nobody asked for 400 tokens


def test_several_samples_of_a_question_are_one_cluster() -> None:
    chance = np.random.default_rng(6)
    hardness = chance.random(100)
    times = {SMALL.name: timed(SMALL, chance, repeats=3, noise=0)}

    def width(samples: int) -> float:
        answers = answered(SMALL, chance, hardness, samples=samples)
        (one,) = budget_points([answers], times, 100)[-1:]
        return one.accuracy.high - one.accuracy.low

    assert width(1) > width(16) > width(1) / 3


def test_the_pareto_front_has_what_nothing_beats() -> None:
    chance = np.random.default_rng(7)
    times = {m.name: timed(m, chance, repeats=3, noise=0) for m in (SMALL, LARGE)}
    hardness = chance.random(300)
    points = budget_points([answered(m, chance, hardness) for m in (SMALL, LARGE)], times, 300)
    front = sorted((p for p in points if p.on_front), key=lambda p: p.answer_seconds)
    assert [p.accuracy.mean for p in front] == sorted(p.accuracy.mean for p in front)
    assert {p.model for p in front} == {"q2_k", "q8_0"}
    for one in points:
        beaten = any(
            p.accuracy.mean >= one.accuracy.mean and p.answer_seconds < one.answer_seconds
            for p in points
        )
        assert one.on_front is not beaten


def test_the_grid_of_the_experiment() -> None:
    grid = rescaled_grid(("q2_k", 18.18), ("q8_0", 49.73), range(100, 1100, 100))
    assert [row.slower_tokens for row in grid.rows[:3]] == [37, 73, 110]
    assert grid.ratio == pytest.approx(2.7354, abs=1e-4)
    assert grid.rows[0].seconds == 1818


def line(low: float, high: float) -> NDArray[np.float64]:
    return np.linspace(low, high, 101)


def test_the_interval_of_a_crossing_is_where_no_difference_is_told() -> None:
    chance = np.random.default_rng(8)
    times, truth = line(0, 100), line(-0.4, 0.6)
    draws = truth + 0.05 * chance.standard_normal((4000, 1))
    (one,) = locate(times, truth, draws, 10_000)
    assert one.seconds == pytest.approx(40)
    assert one.low == pytest.approx(40 - 9.8, abs=1.5)
    assert one.high == pytest.approx(40 + 9.8, abs=1.5)


def test_a_zero_is_the_one_that_leaves_least_of_the_other_sign() -> None:
    noisy = line(-1, 1)
    noisy[10], noisy[90] = 0.5, -0.5
    found = zero(line(0, 100), np.array([noisy, line(1, 2), line(-2, -1)]))
    assert found[0] == pytest.approx(50)
    assert list(found[1:]) == [-np.inf, np.inf]


def test_times_of_a_model_grow_with_the_position() -> None:
    gaps = [100 + 0.5 * k for k in range(64)]
    found = answer_times("q2_k", [trial(n, timing=timing(gaps)) for n in (1, 2, 3)], ["r1"])
    assert found.timing.growth_seconds == pytest.approx(0.0005, rel=1e-3)
    assert found.timing.longest_position == 7 + 65
    assert found.timing.prefill_tokens_per_second == pytest.approx(14)
    assert found.timing.repeats == 3
    # 7 tokens of prompt; the second token, at position 9, took 100 ms
    (two,) = found.seconds(found.mean(), np.array([7.0]), np.array([2.0]))[0]
    assert two == pytest.approx(0.5 + 0.0995 + 0.1, rel=1e-3)
    (later,) = found.seconds(found.mean(), np.array([100.0]), np.array([2.0]))[0]
    assert later == pytest.approx(100 / 14 + 0.0995 + 0.1 + 2 * 93 * 0.0005, rel=1e-3)


def test_merged_gaps_and_short_runs_show_no_growth() -> None:
    gaps = [100 + 0.5 * k for k in range(64)]
    merged = timing(gaps, merged_chunks=(3,))
    assert answer_times("m", [trial(timing=merged)], ["r"]).growth == 0
    assert answer_times("m", [trial(timing=timing(gaps[:10]))], ["r"]).growth == 0
    falling = answer_times("m", [trial(timing=timing(gaps[::-1]))], ["r"])
    assert falling.growth == 0
    assert falling.timing.interval is None  # one repeat


def test_warm_ups_and_failures_have_no_say() -> None:
    good = trial(2, timing=timing([100, 100]), energy=energy())
    warm_up = trial(1, repeat=0, timing=timing([900, 900]))
    failed = trial(3, state=TrialState.FAILED, timing=timing([900, 900]))
    found = answer_times("m", [warm_up, good, failed], ["r"]).timing
    assert (found.repeats, found.token_seconds) == (1, pytest.approx(0.1))
    assert found.joules_per_token == 1.25
    with pytest.raises(ValueError, match="no good repeat with a time per token of m"):
        answer_times("m", [warm_up, failed], ["r"])


def test_time_and_energy_are_the_estimates_of_the_table() -> None:
    trials = [
        trial(1, timing=timing([100, 100]), energy=energy(joules_per_token=1.0)),
        trial(2, timing=timing([400, 400]), energy=energy(joules_per_token=4.0)),
    ]
    found = answer_times("m", trials, ["r"]).timing
    (row,) = summarise(trials)
    assert row.token_ns is not None
    assert found.joules_per_token == row.figures["joules_per_token"] == pytest.approx(2.0)
    assert found.token_seconds == pytest.approx(row.token_ns / 1e9) == pytest.approx(0.2)


def test_a_benchmark_gives_times_at_its_depths() -> None:
    def bench(prompt: int, tokens: int, depth: int, ms: int) -> BenchTest:
        return BenchTest.of(
            prompt_tokens=prompt, generated_tokens=tokens, depth=depth, samples_ns=[ms * 10**6] * 3
        )

    tests = (bench(512, 0, 0, 5120), bench(0, 128, 0, 12800), bench(0, 128, 1024, 25600))
    found = answer_times("m", [trial(timing=TimingRecord(tests=tests))], ["r"])
    assert found.timing.prefill_tokens_per_second == pytest.approx(100)
    assert found.growth == pytest.approx(0.1 / 1024)
    assert found.timing.longest_position == 1152
