"""Nights one after the other: what one learns of those before it, and what it repeats."""

from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_comparisons import Noise, realistic
from simulated_farm import (
    RUN_SECONDS,
    SimulatedFarm,
    Truth,
    night_of,
    nights_in_a_row,
    plan_rows,
)

from labctl.farm.nightly.last_good import new_good_runs
from labctl.farm.nightly.nights import past_rows
from labctl.farm.nightly.results import headline, lines_of
from labctl.farm.nightly.search import search_commits
from labctl.farm.nightly.standing import standing_alarms
from labctl.records.night import NightResult, NightVerdict, Stage

QUIET, LOUD = realistic(0.01), Noise(0.3)
SLOW = {"llama/r000@b0": 0.08}


def farms(truth: Truth, noise: Callable[[int], Noise] = lambda _: QUIET):  # type: ignore[no-untyped-def]
    return lambda number: SimulatedFarm(100 + number, noise(number), truth)


def verdict(result: NightResult) -> NightVerdict:
    return result.findings[0].verdict


def test_one_run_far_out_does_not_end_the_monitoring_of_a_row(tmp_path: Path) -> None:
    truth = Truth(disturbed={"b0": lambda number: 1.0 * (number == 3)})
    (first,) = nights_in_a_row(tmp_path, 1, farms(truth))
    assert verdict(first[1]) is NightVerdict.GOOD
    for night, result in nights_in_a_row(tmp_path, 3, farms(Truth())):
        (state,) = night.state.rows.values()
        assert not state.row.is_too_noisy
        assert state.row.noise is not None
        assert state.row.noise < 0.03
        assert verdict(result) is NightVerdict.GOOD


def test_a_row_that_is_too_noisy_is_measured_a_little_each_night_and_comes_back(
    tmp_path: Path,
) -> None:
    found = list(nights_in_a_row(tmp_path, 20, farms(Truth(), lambda n: LOUD if n < 5 else QUIET)))
    noisy = [state.row.is_too_noisy for night, _ in found for state in night.state.rows.values()]
    assert noisy[1:6] == [True] * 5
    assert not any(noisy[15:])
    for night, result in found[1:5]:
        (state,) = night.state.rows.values()
        assert len(state.pairs(Stage.SCREEN, "q8")[0]) == 8
        line = result.headlines[0]
        assert line.startswith("llama/r000@b0 q8 has no verdict")
        assert "too noisy: 80 pairs find a slowdown of" in line
    assert "in 4 nights" in found[3][1].headlines[0]
    assert verdict(found[-1][1]) is NightVerdict.GOOD
    assert found[-1][1].headlines == ()


def test_a_row_without_verdict_holds_the_last_good_and_stands_on_the_first_line(
    tmp_path: Path,
) -> None:
    farm = farms(Truth(lost=0.0, dead={"b1": 0}))
    found = list(nights_in_a_row(tmp_path, 4, farm, rows=2))
    late = [night for night, _ in found]
    assert new_good_runs(late[-1], "llama", [one for _, one in found[:-1]]) == ()
    lines = found[-1][1].headlines
    assert any("llama/r001@b1 q8 has no verdict in 4 nights" in line for line in lines)
    assert any(
        "the last good of llama has been good for 4 nights: llama/r001@b1 q8" in line
        and "was not found good in 3 nights" in line
        for line in lines
    )


def test_many_rows_without_a_verdict_hide_not_that_the_last_good_is_held(tmp_path: Path) -> None:
    farm = farms(Truth(dead={f"b{number}": 0 for number in range(1, 5)}))
    *_, (_, result) = nights_in_a_row(tmp_path, 3, farm, rows=20)
    first, second, *rest = result.headlines
    assert "llama/r001@b1 q8 has no verdict in 3 nights" in first
    assert second.startswith("the last good of llama has been good for 3 nights: llama/r001@b1 q8")
    assert second.endswith("and 13 more were not found good in 3 nights")
    assert len(rest) == 15
    assert second in headline(result)


def test_an_alarm_is_repeated_without_a_new_search_and_says_since_when(tmp_path: Path) -> None:
    commits = {f"c{number}": 0.08 * (number >= 2) for number in range(4)}
    truth = Truth(slow=SLOW, commits=commits)
    found = list(nights_in_a_row(tmp_path, 3, farms(truth)))
    (first, *later) = [result for _, result in found]
    assert first.searches[0].first == "c2"
    for night, result in found[1:]:
        assert verdict(result) is NightVerdict.SLOWER
        assert result.findings[0].since == first.id
        assert result.searches[0].first == "c2"
        assert result.searches[0].night == first.id
        told = (
            f"before it, measured alternately ({first.searches[0].pairs} pairs); searched by night"
        )
        assert any(f"{told} {first.id}, not again" in line for line in lines_of(result))
        assert not [one for one in night.state.entries if one.stage in (Stage.BISECT, Stage.PROVE)]
    assert later[-1].searches[0].reason == later[0].searches[0].reason


def test_a_search_is_for_all_rows_that_were_slow_and_not_for_others(tmp_path: Path) -> None:
    commits = {f"c{number}": 0.08 * (number >= 2) for number in range(4)}
    both = SLOW | {"llama/r001@b1": 0.08}

    def searches(slow: dict[str, float], **more: float) -> list[tuple[str | None, bool]]:
        farm = farms(Truth(slow=slow, commits=commits | more))
        ((_, result),) = nights_in_a_row(tmp_path, 1, farm, rows=3)
        return [(one.first, one.night is not None) for one in result.searches]

    assert searches(both) == [("c2", False)]
    assert searches(both) == [("c2", True)]  # whichever of both is the clearer one now
    # A third row is slow too: nobody has searched for that.
    assert searches(both | {"llama/r002@b2": 0.08}) == [("c2", True), ("c2", False)]


def test_an_alarm_began_before_the_nights_that_are_read(tmp_path: Path) -> None:
    ((_, first), (_, second)) = nights_in_a_row(tmp_path, 2, farms(Truth(slow=SLOW)))
    assert second.findings[0].since == first.id
    alarm = standing_alarms([second], {"llama": "good"})["llama/r000@b0", "q8"]
    assert alarm.since == first.id
    assert alarm.search is not None
    assert alarm.search.night == first.id  # it is not searched again


def test_a_night_whose_head_does_not_build_ends_no_alarm(tmp_path: Path) -> None:
    commits = {f"c{number}": 0.08 * (number >= 2) for number in range(4)}
    truth = Truth(slow=SLOW, commits=commits)
    ((_, first),) = nights_in_a_row(tmp_path, 1, farms(truth))
    broken = Truth(slow=SLOW, unbuildable=frozenset({"head"}))
    ((_, result),) = nights_in_a_row(tmp_path, 1, farms(broken))
    assert verdict(result) is NightVerdict.DOES_NOT_BUILD
    ((_, later),) = nights_in_a_row(tmp_path, 1, farms(truth))
    assert later.findings[0].since == first.id
    assert later.searches[0].night == first.id


def test_the_commit_of_one_variant_is_not_that_of_another(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(6)]

    def truth(slow: float) -> Truth:
        """The first variant is slow by c1 until it is mended, the other one by c4."""
        commits = {name: 0.12 * (number >= 1) for number, name in enumerate(names)}
        other = {name: 0.07 * (number >= 4) for number, name in enumerate(names)}
        return Truth(
            slow={"llama/r000@b0": slow},
            commits=commits if slow else {**commits, "c6": 0.0},
            of_variant={"q4": {**other, "c6": 0.07, "head": 0.07}},
        )

    two = ("q8", "q4")
    ((_, first),) = nights_in_a_row(tmp_path, 1, farms(truth(0.12)), variants=two)
    assert [(one.variant, one.first) for one in first.searches] == [("q8", "c1")]
    ((_, later),) = nights_in_a_row(tmp_path, 1, farms(truth(0.0)), variants=two)
    assert [one.verdict for one in later.findings] == [NightVerdict.GOOD, NightVerdict.SLOWER]
    assert [(one.variant, one.first) for one in later.searches] == [("q4", "c4")]


def test_a_slowdown_that_is_over_ends_no_alarm_of_another_variant(tmp_path: Path) -> None:
    farm = SimulatedFarm(1, QUIET, Truth(of_variant={"q8": {"head": 0.12}, "q4": {"head": 0.07}}))
    (row,) = plan_rows(farm, 1)
    row = row.model_copy(update={"variants": ("q8", "q4")})
    night = night_of(tmp_path, farm, [row])
    night.run()
    farm.truth.of_variant["q8"] = {}
    (search,) = search_commits(night)
    assert (search.variant, search.outcome) == ("q8", "none")
    verdicts = {one.variant: one.verdict for one in night.findings()}
    assert verdicts == {"q8": NightVerdict.SUSPECTED, "q4": NightVerdict.SLOWER}


def test_a_variant_that_the_screening_passed_is_judged_by_it(tmp_path: Path) -> None:
    # The confirmation of the other variant measures it too, with too few pairs for itself.
    truth = Truth(of_variant={"q8": {"head": 0.15}, "q4": {"head": 0.035}})
    (row,) = plan_rows(SimulatedFarm(1, realistic(0.02), truth), 1)
    row = row.model_copy(update={"variants": ("q8", "q4")})
    night = night_of(tmp_path, SimulatedFarm(1, realistic(0.02), truth), [row])
    slow, passed = night.run()
    assert night.state.confirming == 1
    assert (slow.variant, slow.verdict) == ("q8", NightVerdict.SLOWER)
    assert (passed.variant, passed.verdict) == ("q4", NightVerdict.GOOD)
    assert passed.level == pytest.approx(0.99)


def test_a_new_row_has_no_nights_before_its_first(tmp_path: Path) -> None:
    list(nights_in_a_row(tmp_path, 4, farms(Truth())))
    dead = Truth(dead={"b1": 0})
    found = [result for _, result in nights_in_a_row(tmp_path, 3, farms(dead), rows=2)]
    assert not [line for line in found[0].headlines if "no verdict" in line]
    assert "llama/r001@b1 q8 has no verdict in 3 nights" in found[2].headlines[0]


def test_a_slowdown_that_has_grown_is_searched_again(tmp_path: Path) -> None:
    commits = {f"c{number}": 0.08 * (number >= 2) for number in range(4)}
    list(nights_in_a_row(tmp_path, 1, farms(Truth(slow=SLOW, commits=commits))))
    grown = commits | {"c4": 0.3}
    truth = Truth(slow={"llama/r000@b0": 0.3}, commits=grown)
    ((_, result),) = nights_in_a_row(tmp_path, 1, farms(truth))
    assert result.searches[0].pairs > 0
    assert result.searches[0].night is None


def test_equal_programs_get_no_verdict_and_show_how_nights_err(tmp_path: Path) -> None:
    # A board with a rhythm, whose head is the last good byte for byte.
    truth = Truth(
        same=True, slow=SLOW, disturbed={"b0": lambda number: 0.08 * (number % 4 in (1, 2))}
    )
    found = list(nights_in_a_row(tmp_path, 6, farms(truth)))
    for night, result in found:
        assert verdict(result) is NightVerdict.SAME
        assert result.exit_status == 0
        assert {one.stage for one in night.state.entries if one.event == "measured"} == {Stage.SAME}
        assert len(night.state.rows["llama/r000@b0"].pairs(Stage.SAME, "q8")[0]) == 2
    same = found[-1][1].same_programs
    assert same is not None
    assert (same.nights, same.pairs) == (6, 12)
    assert same.low < same.ratio < same.high


@pytest.mark.parametrize("failing", [0.5, 1.0])
def test_equal_programs_whose_runs_fail_stay_the_same_program(
    tmp_path: Path, failing: float
) -> None:
    ((_, result),) = nights_in_a_row(tmp_path, 1, farms(Truth(same=True, lost=failing)))
    assert verdict(result) is NightVerdict.SAME
    assert result.exit_status == 0


def test_the_next_night_is_planned_with_the_time_that_runs_took(tmp_path: Path) -> None:
    list(nights_in_a_row(tmp_path, 1, farms(Truth())))
    past = past_rows(tmp_path, "simulated")["llama/r000@b0"]
    assert past.seconds == pytest.approx(RUN_SECONDS)  # from one end to the next, in a pair
    assert past.noise is not None
    assert past.noise.sigma == pytest.approx(0.015, rel=0.6)
