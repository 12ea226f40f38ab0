"""The verdicts, in their order."""

import random
import re

import pytest
from compared import side_of, sides_of
from hypothesis import given, settings
from hypothesis import strategies as st
from records_made import model, run, timing, trial

from labctl.compare.comparison import Comparison, Row, Verdict
from labctl.compare.estimates import History
from labctl.compare.sides import Side, match_sides, run_sides
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.compare.words import interval_text
from labctl.index.rows import TrialRow
from labctl.records.board import Execution
from labctl.records.trial import Check
from labctl.results.summary import summarise
from labctl.stats.intervals import Interval

STEADY = [100.0, 101.0, 99.0, 100.5, 99.5]


def scaled(factor: float, values: list[float] = STEADY) -> list[float]:
    """Other noise than that of the values, of the same size."""
    return [factor * value for value in values[::-1]]


def one(found: Comparison) -> Row:
    (row,) = found.rows
    return row


def turns(right: list[float], left: list[float] = STEADY) -> Row:
    return one(compare([tuple(sides_of("r", a=left, b=right))]))  # type: ignore[list-item]


def sessions(*values: list[float]) -> History:
    """Other runs of the board, each with these repeats."""
    rows = [side_of(f"past{n}", list(times)).repeats for n, times in enumerate(values)]
    return lambda _side, _without: rows


def noisy(chance: random.Random, sigma: float, count: int) -> list[float]:
    return [100 * chance.gauss(1, sigma) for _ in range(count)]


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (0.95, "95"),
        (0.999, "99.9"),
        (1 - 0.05 / 6, "99.17"),
        (1 - 0.0005 / 3, "99.98"),
        (1 - 0.0005 / 30, "99.998"),
        (1 - 0.05 / 1e6, "99.999995"),
    ],
)
def test_a_level_below_1_is_never_an_interval_of_100_percent(level: float, shown: str) -> None:
    found = interval_text(Interval(1.05, 1.03, 1.07, level, 9))
    assert found == f"{shown}% interval 1.030 to 1.070"


def test_a_difference_of_three_percent_or_less_is_the_same() -> None:
    row = turns(scaled(1.005))
    assert row.verdict is Verdict.SAME
    assert row.interval is not None
    assert row.interval.level == pytest.approx(0.9)
    assert 0.97 < row.interval.low < 1.005 < row.interval.high < 1.03
    assert row.reason.startswith("the 90% interval")


def test_same_comes_before_slower() -> None:
    """2.5 % with certainty is a difference, and within 3 %."""
    row = turns([102.5, 103.5, 101.5, 103.0, 102.0])
    assert row.p_different is not None
    assert row.p_different < 1e-6
    assert row.verdict is Verdict.SAME
    pair = sides_of("r", a=STEADY, b=[102.5, 103.5, 101.5, 103.0, 102.0])
    strict = Thresholds(same_within=0.01, practical=0.02)
    assert one(compare([tuple(pair)], thresholds=strict)).verdict is Verdict.SLOWER  # type: ignore[list-item]
    coarse = Thresholds(same_within=0.01, practical=0.03)
    row = one(compare([tuple(pair)], thresholds=coarse))  # type: ignore[list-item]
    assert row.verdict is Verdict.CANT_TELL  # a difference, of which nobody asked


def test_slower_and_faster_have_the_interval_that_decides() -> None:
    slower, faster = turns(scaled(1.08)), turns(scaled(0.9))
    assert (slower.verdict, faster.verdict) == (Verdict.SLOWER, Verdict.FASTER)
    assert slower.ratio == pytest.approx(1.08)
    assert slower.interval is not None
    assert slower.interval.level == pytest.approx(0.95)
    assert slower.interval.low > 1
    assert slower.reason.startswith("takes 1.080 times as long: 95% interval 1.0")
    assert faster.reason.startswith("takes 0.900 times as long")
    assert turns(scaled(0.508)).reason.startswith("takes 0.508 times as long")
    assert turns(scaled(0.5)).reason.startswith("takes 0.500 times as long")


def test_more_tokens_a_second_are_faster() -> None:
    pair = tuple(sides_of("r", a=STEADY, b=scaled(1.08)))
    row = one(compare([pair], figures=["tokens_per_second"]))  # type: ignore[list-item]
    assert row.verdict is Verdict.SLOWER
    assert row.ratio == pytest.approx(1 / 1.08)
    assert row.reason.startswith("0.926 times the rate")


def test_what_cannot_be_told_says_which_number_would_settle_it() -> None:
    row = turns([106.0, 100.0, 99.0, 104.0, 97.0])
    assert row.verdict is Verdict.CANT_TELL
    assert row.repeats is not None
    assert row.repeats > 5
    assert row.reason.endswith(f"{row.repeats} interleaved rounds would settle it")
    hopeless = turns([80.0, 130.0, 99.0, 110.0, 75.0])
    assert hopeless.interval is not None
    assert not hopeless.interval.is_vague
    assert hopeless.repeats is None
    assert "no number of interleaved rounds up to 200" in hopeless.reason


@pytest.mark.parametrize(
    ("values", "because"),
    [
        ([106.0, 97.0], "95% interval"),  # of two repeats
        ([60.0, 150.0, 20.0, 400.0, 50.0], "the 5 repeats differ too much"),
    ],
)
def test_a_noise_that_is_hardly_known_gives_no_number_of_rounds(
    values: list[float], because: str
) -> None:
    row = turns(values, STEADY[: len(values)])
    assert (row.verdict, row.repeats) == (Verdict.CANT_TELL, None)
    assert because in row.reason
    assert row.reason.endswith(": too little is known about the noise; make 5 or more repeats")


def test_two_revisions_are_in_no_run_together() -> None:
    """Runs of each settle it, at the noise of runs, which is more than that of repeats."""

    def built(key: str, values: list[float]) -> Side:
        return side_of(key, values, comparability={"build_key": key, "build_spec": "s"})

    pair = (built("old", STEADY), built("new", scaled(1.04)))
    suspected = one(compare([pair]))
    assert suspected.verdict is Verdict.SUSPECTED
    assert suspected.repeats is None
    assert "confirm interleaved, alternating runs of both, until 5" in suspected.reason
    others = [scaled(f) for f in (1.0, 1.04, 0.97, 1.02, 0.98, 1.01)]
    row = one(compare([pair], history=sessions(*others)))
    assert row.verdict is Verdict.CANT_TELL
    assert row.repeats is not None
    assert row.repeats > 5
    assert row.reason.endswith(f"{row.repeats} alternating runs of each would settle it")
    models = (side_of("r", STEADY), side_of("s", scaled(1.04), model=model("q8")))
    interleaved = one(compare([models], history=sessions(*others), allow=["model"]))
    assert interleaved.repeats is not None
    assert interleaved.repeats < row.repeats
    assert "1 of 5 comparable runs" in one(compare([pair], history=sessions(others[0]))).reason


def test_the_same_variant_of_two_runs_is_in_no_run_twice() -> None:
    row = one(compare([(side_of("r", STEADY), side_of("s", scaled(1.1)))]))
    assert row.verdict is Verdict.SUSPECTED
    assert row.reason.endswith(
        "confirm interleaved, alternating runs of both, until 5 comparable runs are known"
    )


def test_a_cache_is_nothing_that_a_recipe_varies() -> None:
    """One run would measure one variant twice."""
    pair = tuple(
        side_of(name, values, comparability={"threads": 4, "model_cache": cache})
        for name, values, cache in (("r", STEADY, "warm"), ("s", scaled(1.1), "partial"))
    )
    row = one(compare([pair], allow=["model_cache"]))  # type: ignore[list-item]
    assert not row.fits_one_run
    assert "alternating runs of both" in row.reason


def test_a_small_difference_is_neither_the_same_nor_unknown() -> None:
    """2 % with certainty, of which it cannot be told if it is within 3 %."""
    apart = (-1.6, -0.5, 0.0, 0.8, 1.3)
    row = turns([one * (1.0195 + 0.0106 * n) for one, n in zip(STEADY, apart, strict=True)])
    assert row.verdict is Verdict.CANT_TELL
    assert row.interval is not None
    assert row.interval.low > 1
    assert re.match(
        r"takes 1.019 times as long, 95% interval .*, and not shown to be more than 2%: \d+ ",
        row.reason,
    ), row.reason


def test_one_repeat_tells_nothing() -> None:
    row = turns([150.0], [100.0])
    assert (row.verdict, row.interval) == (Verdict.CANT_TELL, None)
    assert "only one repeat" in row.reason


def test_single_repeats_of_two_runs_cannot_be_told_apart() -> None:
    row = one(compare([(side_of("a", [100.0]), side_of("b", [300.0]))]))
    assert row.verdict is Verdict.CANT_TELL
    assert row.interval is None


def test_a_side_without_results_cannot_be_told() -> None:
    pair = match_sides(
        *(run_sides(run("r"), [trial(1)]), run_sides(run("s", variants=("q2_k",)), []))
    )
    assert {row.reason for row in compare(pair).rows} == {"no good repeat of s:q2_k has a value"}


def test_two_sides_without_results_have_a_row() -> None:
    pair = match_sides(*(run_sides(run(name, variants=("q2_k",)), []) for name in "rs"))
    row = one(compare(pair))
    assert row.verdict is Verdict.CANT_TELL
    assert row.reason == "no good repeat of r:q2_k and of s:q2_k has a value"


def test_unlike_is_first_and_every_difference_is_named() -> None:
    left = side_of("r", STEADY)
    right = side_of(
        "s", scaled(2), comparability={"threads": 8, "governor": "ondemand"}, board="rk2"
    )
    row = one(compare([(left, right)]))
    assert (row.verdict, row.ratio, row.interval) == (Verdict.UNLIKE, None, None)
    for named in ("threads: 4 / 8", "governor: not known / ondemand", "board: rk1 / rk2"):
        assert named in row.reason
    assert "--allow board --allow governor --allow threads" in row.reason
    some = one(compare([(left, right)], allow=["threads", "board"]))
    assert some.verdict is Verdict.UNLIKE
    assert "threads" not in some.reason
    row = one(compare([(left, right)], allow=["threads", "board", "governor"]))
    assert row.verdict is Verdict.SUSPECTED
    assert {(d.key, d.allowed) for d in row.differences} == {
        ("threads", "allowed"),
        ("board", "allowed"),
        ("governor", "allowed"),
    }


def test_a_board_and_an_emulator_are_never_compared() -> None:
    emulated = side_of("s", STEADY, execution=Execution.EMULATED)
    row = one(compare([(side_of("r", STEADY), emulated)], allow=["execution"]))
    assert row.verdict is Verdict.UNLIKE
    assert "execution: board / emulated" in row.reason
    assert "--allow" not in row.reason


def test_a_revision_is_what_one_compares_but_not_how_it_was_built() -> None:
    def built(key: str, spec: str) -> Side:
        return side_of(key, STEADY, comparability={"build_key": key, "build_spec": spec})

    assert one(compare([(built("old", "s"), built("new", "s"))])).verdict is Verdict.CANT_TELL
    row = one(compare([(built("old", "s"), built("new", "-O3"))]))
    assert row.verdict is Verdict.UNLIKE
    assert "build_spec: s / -O3" in row.reason


def test_what_the_recipe_varies_is_no_reason_in_one_run() -> None:
    trials = [
        trial(
            2 * n + place, repeat=n + 1, variant=f"t{threads}", comparability={"threads": threads}
        )
        for n in range(3)
        for place, threads in enumerate((2, 4), 1)
    ]
    recipe = {"name": "q2", "matrix": {"threads": [2, 4]}}
    record = run("r", variants=("t2", "t4"), recipe_resolved=recipe)
    pair = tuple(run_sides(record, trials))
    found = compare([pair])  # type: ignore[list-item]
    assert {row.verdict for row in found.rows} == {Verdict.SAME}
    assert found.rows[0].differences[0].allowed == "varied"
    other = run_sides(run("s", variants=("t4",), recipe_resolved=recipe), trials[1::2])
    assert compare([(pair[0], other[0])]).rows[0].verdict is Verdict.UNLIKE


def test_what_follows_from_the_model_is_no_reason_but_for_loading() -> None:
    """One model does not fit in memory: no warm-up for it, and it is never all there."""
    trials = [
        trial(
            2 * n + place, repeat=n + 1, variant=name, model=model(name),
            timing=timing([time, time], ttft_ns=time * 10),
            parameters={"warmup": fits},
            comparability={"warmup": fits, "model_cache": "warm" if fits else "partial"},
        )
        for n in range(3)
        for place, (name, fits, time) in enumerate((("q2", True, 18), ("q8", False, 50)), 1)
    ]  # fmt: skip
    record = run("r", variants=("q2", "q8"), models=(model("q2"), model("q8")))
    left, right = run_sides(record, trials)
    found = {row.figure: row for row in compare([(left, right)]).rows}
    assert found["tpot_ms"].verdict is Verdict.SLOWER
    assert found["ttft_ms"].verdict is Verdict.UNLIKE
    assert "model_cache: warm / partial" in found["ttft_ms"].reason
    assert {(d.key, d.allowed) for d in found["tpot_ms"].differences} == {
        ("model", "varied"), ("model_cache", "resolved"), ("warmup", "resolved"),
    }  # fmt: skip
    other = run_sides(record.model_copy(update={"id": "s"}), trials)[1]
    reason = compare([(left, other)]).rows[0].reason
    assert "model_cache" in reason
    assert "warmup" in reason


def test_a_model_is_named_by_its_file() -> None:
    left, right = (side_of(name, STEADY, model=model(name)) for name in ("q2", "q8"))
    assert "model: q2.gguf / q8.gguf" in one(compare([(left, right)])).reason


def test_repeats_that_were_not_all_alike_differ() -> None:
    """One repeat of the second was throttled."""
    trials = [
        trial(n, repeat=n, comparability={"cooling": "active" if n == 3 else "inactive"})
        for n in range(1, 5)
    ]
    (throttled,) = run_sides(run("s"), trials)
    left = side_of("r", STEADY, comparability={"cooling": "inactive"})
    reason = compare([(left, throttled)]).rows[0].reason
    assert "cooling: inactive / active and inactive" in reason


def test_runs_are_at_best_suspected_until_it_is_known_how_runs_differ() -> None:
    left, right = side_of("r", STEADY), side_of("s", scaled(1.1))
    row = one(compare([(left, right)]))
    assert (row.verdict, row.interval) == (Verdict.SUSPECTED, None)
    assert "0 of 5 comparable runs" in row.reason
    assert "confirm interleaved" in row.reason
    same = one(compare([(left, side_of("s", scaled(1.0)))]))
    assert (same.verdict, same.interval) == (Verdict.CANT_TELL, None)
    few = [scaled(f) for f in (1.0, 1.01, 0.99, 1.0)]
    assert one(compare([(left, right)], history=sessions(*few))).verdict is Verdict.SUSPECTED
    row = one(compare([(left, right)], history=sessions(*few, scaled(1.0))))
    assert row.verdict is Verdict.SLOWER
    assert row.interval is not None


def test_runs_that_differ_by_themselves_hide_what_a_t_test_would_tell() -> None:
    """1 % inside a run and 1 % between: a t test is significant in 37 % of pairs of equal runs."""
    chance = random.Random(5)
    naive = ours = 0
    for _ in range(300):
        offsets = [100 * (1 + chance.gauss(0, 0.01)) for _ in range(7)]
        moved = [[offset * chance.gauss(1, 0.01) for _ in range(5)] for offset in offsets]
        left, right = side_of("r", moved[0]), side_of("s", moved[1])
        limits = Thresholds(same_within=0.001, practical=0.0001)
        plain = one(compare([(left, right)], thresholds=limits))
        naive += plain.verdict is Verdict.SUSPECTED
        known = compare([(left, right)], thresholds=limits, history=sessions(*moved[2:]))
        ours += one(known).verdict in (Verdict.SLOWER, Verdict.FASTER)
    assert 0.3 < naive / 300 < 0.45
    assert ours / 300 < 0.09


def test_an_error_of_five_percent_is_that_of_all_rows() -> None:
    """Of twenty variants without a difference, one would be slower or faster by chance."""
    chance = random.Random(2)
    false = 0
    limits = Thresholds(same_within=0.001, practical=0.0001)
    for _ in range(40):
        names = [f"v{n}" for n in range(21)]
        first, *others = sides_of("r", **{name: noisy(chance, 0.01, 3) for name in names})
        rows = compare([(first, other) for other in others], thresholds=limits).rows
        false += any(row.verdict in (Verdict.SLOWER, Verdict.FASTER) for row in rows)
    assert false <= 5


def test_a_test_without_a_distribution_stands_beside_from_ten_repeats_on() -> None:
    left = [100.0 + n / 10 for n in range(10)]
    assert turns(scaled(1.1, left[:9]), left[:9]).check is None
    row = turns(scaled(1.1, left), left)
    assert row.check == pytest.approx(2 / 1024)
    assert row.warnings == ()


def test_a_check_that_disagrees_is_a_warning() -> None:
    """All twelve are slower, which chance does in one of 2048; one is so slow that t sees noise."""
    row = turns([101.0] * 11 + [160.0], [100.0] * 12)
    assert row.verdict is Verdict.CANT_TELL
    assert row.p_different is not None
    assert row.p_different > 0.2
    assert row.check == pytest.approx(2 / 4096)
    assert "sign-flip test finds a difference" in row.warnings[0]


def test_variants_that_did_not_take_turns_have_a_warning() -> None:
    trials = [
        trial(5 * place + n, repeat=n, variant=name, timing=timing([ms + n]))
        for place, (name, ms) in enumerate((("a", 100), ("b", 130)))
        for n in range(1, 6)
    ]
    pair = tuple(run_sides(run("r", variants=("a", "b")), trials))
    row = compare([pair], figures=["tpot_ms"]).rows[0]  # type: ignore[list-item]
    assert row.verdict is Verdict.SLOWER
    assert "use `order: interleaved`" in row.warnings[0]
    table = summarise(trials, ("a", "b"))[1]
    assert row.interval == table.ratio_interval


def test_repeats_that_their_own_checks_contradict_have_a_warning() -> None:
    bad = (Check(name="frequency", ok=False, detail="throttled"),)
    left = side_of("r", STEADY)
    trials = [trial(n, repeat=n, checks=bad if n < 3 else ()) for n in range(1, 6)]
    (right,) = run_sides(run("s"), trials, "night")
    row = compare([(left, right)], allow=["threads"]).rows[0]
    assert row.warnings == ("checks failed in 2 of 5 repeats of night:q2_k: frequency",)


def test_repeats_whose_checks_were_not_judged_have_a_warning() -> None:
    checks = (
        Check(name="drift", ok=None, detail="mean 1 s; not judged: emulated"),
        Check(name="span", ok=None, detail="fewer than two tokens"),
        Check(name="tokens", ok=True, detail="4 of 4"),
    )
    left = side_of("r", STEADY)
    (right,) = run_sides(run("s"), [trial(n, checks=checks) for n in (1, 2, 3)], "night")
    row = compare([(left, right)], allow=["threads"]).rows[0]
    assert row.warnings == ("checks not judged in 3 of 3 repeats of night:q2_k: drift",)


def test_a_board_of_another_lab_is_another_board() -> None:
    own, other = (
        run_sides(run(name), [trial(1), trial(2)], imported_from=origin)[0]
        for name, origin in (("r", None), ("s", "their.labctl.zip"))
    )
    reason = compare([(own, other)]).rows[0].reason
    assert "lab: this lab / their.labctl.zip" in reason


def test_the_ratio_is_that_of_the_tables() -> None:
    trials = [
        trial(2 * n + place, repeat=n + 1, variant=name, timing=timing([ms + n]))
        for n in range(4)
        for place, (name, ms) in enumerate((("a", 100), ("b", 130)), 1)
    ]
    table = summarise(trials, ("a", "b"))[1]
    pair = tuple(run_sides(run("r", variants=("a", "b")), trials))
    row = one(compare([pair], figures=["tpot_ms"]))  # type: ignore[list-item]
    assert row.ratio == table.ratio
    assert row.interval == table.ratio_interval


times = st.lists(st.floats(50, 200), min_size=2, max_size=6)


@settings(max_examples=60)
@given(times, times)
def test_turned_round_slower_is_faster(left: list[float], right: list[float]) -> None:
    count = min(len(left), len(right))
    a, b = sides_of("r", a=left[:count], b=right[:count])
    one_way, other = one(compare([(a, b)])), one(compare([(b, a)]))
    opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    assert other.verdict is opposite.get(one_way.verdict, one_way.verdict)
    assert one_way.ratio is not None
    assert other.ratio == pytest.approx(1 / one_way.ratio)
    assert other.repeats == one_way.repeats


def test_history_is_asked_of_other_runs_alone() -> None:
    asked: list[frozenset[str]] = []

    def history(_side: Side, without: object) -> list[list[TrialRow]]:
        asked.append(frozenset(without))  # type: ignore[call-overload]
        return []

    compare([(side_of("r", STEADY), side_of("s", STEADY))], history=history)
    assert asked == [frozenset({"r", "s"})] * 2
