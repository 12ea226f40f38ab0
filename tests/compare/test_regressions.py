import re
from datetime import timedelta

import pytest
from nightly_runs import Lab
from records_made import model

from labctl.compare.regressions import Change, ChangeStatus, find_changes
from labctl.compare.series import Series, contradicted, series_of
from labctl.compare.thresholds import Thresholds
from labctl.records.board import Execution
from labctl.records.run import NightPart
from labctl.records.trial import Check

LIMITS = Thresholds.of_recipe({})


@pytest.fixture
def lab() -> Lab:
    return Lab()


def the_series(lab: Lab) -> Series:
    (found,) = series_of(lab.trials())
    return found


def changes(lab: Lab) -> list[Change]:
    return find_changes(the_series(lab), LIMITS)


def test_a_slow_commit_is_suspected_with_its_range_and_the_commands(lab: Lab) -> None:
    lab.nights(range(20), 100)
    lab.nights(range(20, 32), 112)
    (change,) = changes(lab)
    assert change.last_good.source.startswith("019")
    assert change.first_slow.source.startswith("020")
    assert change.status is ChangeStatus.SUSPECTED
    assert not change.fails
    assert change.step.ratio == pytest.approx(1.12, rel=0.02)
    assert change.commands == (
        "labctl run q2 --board rk1 --set engine.version=c019",
        "labctl run q2 --board rk1 --set engine.version=c020",
    )
    assert change.rounds is not None


@pytest.mark.parametrize("whose", ["untrusted_recipe", "untrusted_board"])
def test_what_nobody_vouches_for_is_no_history(lab: Lab, whose: str) -> None:
    lab.nights(range(20), 100)
    for commit in range(20, 32):
        lab.night(commit, 50, of_run={whose: True})
    found = the_series(lab)
    assert len(found.nights) == 20
    assert not found.lost
    assert not changes(lab)


def test_it_is_confirmed_when_both_are_measured_again_in_turns(lab: Lab) -> None:
    lab.nights(range(20), 100)
    lab.nights(range(20, 32), 112)
    for _ in range(2):
        lab.night(19, 100)
        lab.night(20, 112)
    (change,) = changes(lab)
    assert change.status is ChangeStatus.CONFIRMED
    assert change.fails
    assert change.row is not None
    assert change.row.interval is not None
    assert change.row.interval.low > 1
    assert len(change.series.nights) == 32  # what was measured again is none of the series


def test_one_measurement_of_the_good_source_alone_confirms_nothing(lab: Lab) -> None:
    lab.nights(range(20), 100)
    lab.nights(range(20, 32), 112)
    lab.night(19, 100)
    (change,) = changes(lab)
    assert change.status is ChangeStatus.SUSPECTED
    assert "the source after it was not measured since then" in change.reason


def test_a_board_that_became_slow_is_not_the_source(lab: Lab) -> None:
    """The good source is slow now as well."""
    lab.nights(range(20), 100)
    lab.nights(range(20, 32), 112)
    for _ in range(3):
        lab.night(19, 112)
        lab.night(20, 112)
    (change,) = changes(lab)
    assert change.status is not ChangeStatus.CONFIRMED
    assert not change.fails
    if change.status is ChangeStatus.REFUTED:
        assert "the board or its surroundings changed" in change.reason


def test_the_same_source_before_and_after_is_not_the_source(lab: Lab) -> None:
    lab.nights([7] * 20, 100)
    lab.nights([7] * 12, 112)
    (change,) = changes(lab)
    assert change.status is ChangeStatus.REFUTED
    assert change.reason.startswith("the same source before and after")


def test_a_repaired_regression_fails_nobody(lab: Lab) -> None:
    lab.nights(range(20), 100)
    lab.nights(range(20, 32), 112)
    for _ in range(3):
        lab.night(19, 100)
        lab.night(31, 112)
    lab.nights(range(40, 55), 100)
    slow, fast = changes(lab)
    assert (slow.slower, slow.status, slow.repaired) == (True, ChangeStatus.CONFIRMED, True)
    assert not slow.fails
    assert not fast.slower


def test_a_rate_that_falls_is_a_regression_too(lab: Lab) -> None:
    lab.nights(range(20), 100)
    lab.nights(range(20, 32), 112)
    (series,) = series_of(lab.trials(), ["tokens_per_second"])
    (change,) = find_changes(series, LIMITS)
    assert change.slower
    assert change.step.ratio < 1


def test_another_compiler_model_firmware_or_board_begins_a_series(lab: Lab) -> None:
    lab.nights(range(5), 100)
    lab.nights(range(5, 10), 112, spec="6" * 64)
    lab.nights(range(5, 10), 112, model=model("q2_k", sha256="9" * 64))
    lab.nights(range(5, 10), 112, board="rk2")
    lab.nights(range(5, 10), 112, execution=Execution.EMULATED)
    found = series_of(lab.trials())
    assert sorted(len(series.nights) for series in found) == [5] * 5


def test_what_its_own_checks_contradict_is_no_night(lab: Lab) -> None:
    lab.nights(range(3), 100)
    assert contradicted(lab.trials()) == []
    lab.night(4, 300, checks=(Check(name="span", ok=False, detail="0.5"),))
    assert len(the_series(lab).nights) == 3
    (left_out,) = contradicted(lab.trials())
    assert "whose checks failed (span)" in left_out


def test_emulated_nights_are_never_confirmed(lab: Lab) -> None:
    lab.nights(range(20), 100, execution=Execution.EMULATED)
    lab.nights(range(20, 32), 112, execution=Execution.EMULATED)
    for _ in range(2):
        lab.night(19, 100, execution=Execution.EMULATED)
        lab.night(20, 112, execution=Execution.EMULATED)
    (change,) = changes(lab)
    assert change.status is ChangeStatus.SUSPECTED
    assert change.reason == "emulated: says nothing about a board"


def test_a_source_that_nobody_knows_is_no_refutation(lab: Lab) -> None:
    lab.nights([1] * 20, 100, known=False)
    lab.nights([1] * 12, 112, known=False)
    (change,) = changes(lab)
    assert change.reason == "the measured source is unknown"


def test_a_commit_between_two_nights_is_placed_between_them(lab: Lab) -> None:
    """Bisecting measures older commits later, and narrows the range."""
    lab.nights(range(0, 40, 2), 100, committed=True)
    lab.nights(range(40, 60, 2), 112, committed=True)
    (before,) = changes(lab)
    assert (before.last_good.version, before.first_slow.version) == ("c038", "c040")
    lab.night(39, 112, committed=True)
    (after,) = changes(lab)
    assert (after.last_good.version, after.first_slow.version) == ("c038", "c039")
    assert after.series.again == ()
    lab.night(38, 100, committed=True)
    (confirmed,) = changes(lab)
    assert len(confirmed.series.again) == 1


MINUTE = timedelta(minutes=1)


def nightly(
    lab: Lab, name: str, pairs: int, good: tuple[int, float], head: tuple[int, float]
) -> None:
    """A night of ``labctl nightly``: the last good source and head in turns, head first."""
    for number in range(2 * pairs):
        side, (commit, ms) = ("good", good) if number % 2 else ("head", head)
        part = {"night": NightPart(id=name, side=side)}
        lab.night(commit, ms, of_run=part, later=MINUTE if number else None)


def test_a_night_is_one_night_whatever_number_of_runs_it_has(lab: Lab) -> None:
    """98 runs of one night were 98 nights."""
    nightly(lab, "n1", 49, good=(1, 100), head=(2, 106))
    series = the_series(lab)
    (night,) = series.nights
    assert (night.name, night.version, len(night.runs)) == ("n1", "c002", 49)
    assert night.value == pytest.approx(106e6, rel=0.01)
    assert len(series.run_values) == 49
    (beside,) = series.again
    assert (beside.name, beside.version, len(beside.runs)) == ("n1", "c001", 49)
    assert changes(lab) == []


def test_a_night_that_goes_on_the_next_day_is_one(lab: Lab) -> None:
    for _ in range(3):
        lab.night(2, 100, of_run={"night": NightPart(id="n1", side="head")})
    assert [night.name for night in the_series(lab).nights] == ["n1"]


def test_runs_of_one_local_day_are_one_night_for_each_build(lab: Lab) -> None:
    lab.night(1, 100)
    for commit in (1, 1, 2, 2):
        lab.night(commit, 100, later=MINUTE)
    nights = the_series(lab).nights
    assert [(night.version, len(night.runs)) for night in nights] == [("c001", 3), ("c002", 2)]
    first, second = nights
    assert first.name == second.name
    assert re.fullmatch(r"2026-\d\d-\d\d", first.name)


def test_a_throttled_run_of_a_night_changes_nothing(lab: Lab) -> None:
    for ms in (100, 100, 300):
        lab.night(2, ms, of_run={"night": NightPart(id="n1", side="head")})
    (night,) = the_series(lab).nights
    assert night.value == pytest.approx(100e6, rel=0.03)


def test_nights_find_a_step_of_their_heads_and_their_pairs_confirm_it(lab: Lab) -> None:
    """The last good source stays behind, and is measured again beside each slow head."""
    for commit in range(1, 21):
        nightly(lab, f"n{commit}", 2, good=(commit - 1, 100), head=(commit, 100))
    for commit in range(21, 33):
        nightly(lab, f"n{commit}", 2, good=(20, 100), head=(commit, 112))
    series = the_series(lab)
    assert [night.name for night in series.nights] == [f"n{number}" for number in range(1, 33)]
    (change,) = changes(lab)
    assert (change.last_good.version, change.first_slow.version) == ("c020", "c021")
    assert change.status is ChangeStatus.CONFIRMED


def test_the_night_that_shows_a_step_does_not_confirm_it(lab: Lab) -> None:
    lab.nights(range(20), 100)
    nightly(lab, "n20", 6, good=(19, 100), head=(20, 112))
    for commit in range(21, 32):
        lab.night(commit, 112, of_run={"night": NightPart(id=f"n{commit}", side="head")})
    (change,) = changes(lab)
    assert (change.status, change.row) == (ChangeStatus.SUSPECTED, None)
    assert change.reason == "the source before it was not measured again since"


def test_a_commit_that_a_night_searched_is_no_night(lab: Lab) -> None:
    nightly(lab, "n1", 2, good=(1, 100), head=(9, 106))
    for commit in (4, 6, 5):
        part = NightPart(id="n1", side=f"{commit:040d}")
        lab.night(commit, 103, of_run={"night": part}, later=MINUTE)
    series = the_series(lab)
    assert [night.version for night in series.nights] == ["c009"]
    assert {night.version for night in series.again} == {"c001", "c004", "c005", "c006"}


def test_a_night_whose_head_has_no_value_leaves_the_newest_source_unknown(lab: Lab) -> None:
    failed = (Check(name="span", ok=False, detail="0.5"),)
    lab.nights(range(3), 100)
    lab.night(4, 100, of_run={"night": NightPart(id="n4", side="head")}, checks=failed)
    lab.night(3, 100, of_run={"night": NightPart(id="n4", side="good")}, later=MINUTE)
    series = the_series(lab)
    assert len(series.nights) == 3
    assert len(series.lost) == 1


def test_if_only_last_good_sources_have_values_they_are_the_series(lab: Lab) -> None:
    for number in range(3):
        lab.night(1, 100, of_run={"night": NightPart(id=f"n{number}", side="good")})
    assert [night.name for night in the_series(lab).nights] == ["n0", "n1", "n2"]
