"""What a night waits for: boards that restart, a database and a repository that are away."""

from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_comparisons import realistic
from simulated_farm import SimulatedFarm, Truth, night_of, plan_rows

from labctl.errors import Blame, DeviceLost
from labctl.farm.nightly.night import Night
from labctl.records.night import NightFinding, NightRow, NightVerdict

QUIET = realistic(0.01)
#: The first run begins at 0 and takes 30 s.
AWAY = 20.0


def farm_of(**truth: object) -> SimulatedFarm:
    return SimulatedFarm(7, QUIET, Truth(**truth))  # type: ignore[arg-type]


def alone(rows: list[NightRow]) -> list[NightRow]:
    return [row.model_copy(update={"equals": ()}) for row in rows]


def events(night: Night, event: str) -> list[str]:
    return [one.board or "" for one in night.state.entries if one.event == event]


def found_on(findings: tuple[NightFinding, ...]) -> dict[str, str]:
    return {one.row: f"{one.verdict} on {one.board}" for one in findings}


@pytest.mark.parametrize("seconds", [15.0, 110.0])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_board_that_restarts_keeps_its_rows(
    tmp_path: Path, seconds: float, is_alone: bool
) -> None:
    farm = farm_of(restarts={"b0": ((AWAY, AWAY + seconds),)})
    rows = plan_rows(farm, 2)
    night = night_of(tmp_path, farm, alone(rows) if is_alone else rows, hours=1)
    assert found_on(night.run()) == {row.name: f"good on {row.board}" for row in rows}
    assert not events(night, "moved")
    assert {board for board, _, _ in farm.waits} == {"b0"}
    pauses = [length for _, length, _ in farm.waits]
    assert pauses == sorted(pauses)


def test_a_board_that_is_away_for_longer_loses_its_rows_to_an_equal_one(tmp_path: Path) -> None:
    farm = farm_of(restarts={"b0": ((AWAY, 3600.0),)})
    rows = plan_rows(farm, 4)
    night = night_of(tmp_path, farm, rows, hours=10)
    found = night.run()
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    gone = [row for row in rows if row.board == "b0"]
    assert len(events(night, "moved")) == len(gone)
    waited = sum(length for board, length, _ in farm.waits if board == "b0")
    assert 100 <= waited <= 240  # for its first row; the others do not wait again


def test_the_only_board_is_waited_for_as_long_as_it_is_of_use(tmp_path: Path) -> None:
    farm = farm_of(restarts={"b0": ((AWAY, 1500.0),)})
    rows = alone(plan_rows(farm, 2)[:1])
    (found,) = night_of(tmp_path / "back", farm, rows, hours=1).run()
    assert found.verdict is NightVerdict.GOOD

    farm = farm_of(restarts={"b0": ((AWAY, 1e9),)})
    night = night_of(tmp_path / "gone", farm, rows, hours=1)
    (found,) = night.run()
    assert (found.verdict, found.blame) == (NightVerdict.NOT_MEASURED, Blame.INFRA)
    assert "board b0 does not answer" in found.reason
    assert 3000 < farm.now("b0") <= 3600
    assert len(events(night, "failed")) < 30
    assert night_of(tmp_path / "gone", farm, rows, hours=1).findings() == (found,)


def test_two_equal_boards_that_lose_their_power_are_both_waited_for(tmp_path: Path) -> None:
    away = ((AWAY, 900.0),)
    farm = farm_of(restarts={"b0": away, "b1": away})
    found = night_of(tmp_path, farm, plan_rows(farm, 2), hours=5).run()
    assert {one.verdict for one in found} == {NightVerdict.GOOD}


def test_a_fault_of_the_host_spares_its_boards_no_work(tmp_path: Path) -> None:
    """One board would do the work of three: the others fail as this one does."""
    farm = farm_of(host_faults=((AWAY, AWAY + 1200.0),))
    rows = plan_rows(farm, 3)
    night = night_of(tmp_path, farm, rows, hours=10)
    assert found_on(night.run()) == {row.name: f"good on {row.board}" for row in rows}
    assert not events(night, "moved")


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_a_host_lacks_is_not_waited_for(tmp_path: Path, is_alone: bool) -> None:
    farm = farm_of(lacking=frozenset({"b0"}))
    rows = plan_rows(farm, 2)
    night = night_of(tmp_path, farm, alone(rows) if is_alone else rows, hours=10)
    found = {one.row: one for one in night.run()}[rows[0].name]
    assert not farm.waits
    if is_alone:
        assert (found.verdict, found.reason) == (NightVerdict.NOT_MEASURED, "no agent is built")
    else:
        assert (found.verdict, found.board) == (NightVerdict.GOOD, "b1")


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_worker_that_is_away_is_waited_for_where_no_other_board_helps(
    tmp_path: Path, is_alone: bool
) -> None:
    farm = farm_of(unserved={"b0": ((AWAY, 1200.0),)})
    rows = plan_rows(farm, 2)
    night = night_of(tmp_path, farm, alone(rows) if is_alone else rows, hours=10)
    assert {one.verdict for one in night.run()} == {NightVerdict.GOOD}
    assert events(night, "moved") == ([] if is_alone else ["b1"])
    assert bool(farm.waits) == is_alone


@pytest.mark.parametrize("seconds", [1.0, 1200.0])
def test_a_database_is_no_board(tmp_path: Path, seconds: float) -> None:
    farm = farm_of(no_database=((AWAY, AWAY + seconds),))
    rows = plan_rows(farm, 4)
    night = night_of(tmp_path, farm, rows, hours=10)
    assert found_on(night.run()) == {row.name: f"good on {row.board}" for row in rows}
    assert not events(night, "moved")
    assert not events(night, "failed")


def test_a_database_that_stays_away_ends_the_night_as_infra(tmp_path: Path) -> None:
    farm = farm_of()
    rows = plan_rows(farm, 2)
    farm.before_run = lambda: setattr(farm.truth, "no_database", ((0.0, 3599.0),))
    night = night_of(tmp_path, farm, rows, hours=1)
    found = night.run()
    assert {(one.verdict, one.blame) for one in found} == {(NightVerdict.NOT_MEASURED, Blame.INFRA)}
    assert not events(night, "moved")


def test_a_repository_is_waited_for_while_other_rows_go_on(tmp_path: Path) -> None:
    farm = farm_of(no_repository={"slow": ((0.0, 1000.0),)})
    rows = plan_rows(farm, 10)  # two on each board
    late = [row.model_copy(update={"build": "slow", "value": 9.0}) for row in rows[:5]]
    night = night_of(tmp_path, farm, [*late, *rows[5:]], hours=10)
    assert {one.verdict for one in night.run()} == {NightVerdict.GOOD}
    measured = [one for one in night.state.entries if one.event == "measured"]
    names = {row.name for row in late}
    # The boards of a simulation work one after the other: only the first one's clock counts.
    on_first = [one for one in measured if one.board == "b0"]
    assert on_first[0].row not in names
    assert min(one.at for one in on_first if one.row in names) > 1000


def test_a_repository_is_waited_for_as_long_as_a_row_has_time(tmp_path: Path) -> None:
    for hours, verdict in ((2.0, NightVerdict.GOOD), (0.25, NightVerdict.NOT_MEASURED)):
        farm = farm_of(no_repository={"llama": ((0.0, 800.0),)})
        night = night_of(tmp_path / str(hours), farm, plan_rows(farm, 2), hours=hours)
        found = night.run()
        assert {one.verdict for one in found} == {verdict}
        if verdict is NightVerdict.NOT_MEASURED:
            assert {one.blame for one in found} == {Blame.INFRA}
            assert "cannot reach the repository" in found[0].reason
            assert not farm.runs


def test_a_board_that_answers_and_fails_is_tried_again_after_it_may_have_restarted(
    tmp_path: Path,
) -> None:
    farm, losses = farm_of(), 2

    class Loses(SimulatedFarm):
        def measure(self, row, board, built, *, began, queued):  # type: ignore[no-untyped-def]
            nonlocal losses
            if losses:
                losses -= 1
                began("a run")
                raise DeviceLost("the cable moved")
            return super().measure(row, board, built, began=began, queued=queued)

    farm = Loses(7, QUIET, Truth())
    rows = alone(plan_rows(farm, 2)[:1])
    (found,) = night_of(tmp_path, farm, rows, hours=1).run()
    assert found.verdict is NightVerdict.GOOD
    assert [length for _, length, _ in farm.waits] == [5.0, 120.0]


class Killed(BaseException):
    """The controller dies."""


def test_a_night_that_is_killed_while_it_waits_goes_on_as_it_was(tmp_path: Path) -> None:
    def killed(farm: SimulatedFarm) -> Callable[[str | None, float, str], None]:
        plain, count = farm.wait, 0

        def wait(board: str | None, seconds: float, why: str) -> None:
            nonlocal count
            count += 1
            if count == 2:
                raise Killed
            plain(board, seconds, why)

        return wait

    farm = farm_of(restarts={"b0": ((AWAY, 500.0),)})
    rows = plan_rows(farm, 2)
    deaths = 0
    while True:
        farm.wait = killed(farm)  # type: ignore[method-assign]
        night = night_of(tmp_path, farm, rows, hours=10)
        try:
            found = night.run()
        except Killed:
            deaths += 1
            continue
        break
    assert deaths > 2
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    # It is the board's first failure that counts, not that of the night's last process.
    first = next(one for one in night.state.entries if one.event == "failed")
    moved = next(one for one in night.state.entries if one.event == "moved")
    assert 120 <= moved.at - first.at <= 300
    measured = [one for one in night.state.entries if one.event == "measured"]
    places = [(one.row, one.board, one.stage, one.pair, one.side) for one in measured]
    assert len(places) == len(set(places))
