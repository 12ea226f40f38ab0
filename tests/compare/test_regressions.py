import pytest
from nightly_runs import Lab
from records_made import model

from labctl.compare.regressions import Change, ChangeStatus, find_changes
from labctl.compare.series import Series, contradicted, series_of
from labctl.compare.thresholds import Thresholds
from labctl.records import Check, Execution

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
