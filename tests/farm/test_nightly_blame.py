"""Who is blamed in a night: a commit only for what its board cannot have done."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from simulated_comparisons import realistic
from simulated_farm import HEAD, SimulatedFarm, Truth, night_of, plan_rows

from labctl.errors import Blame, ProgramFailed
from labctl.farm.nightly.executor import Measured
from labctl.farm.nightly.last_good import new_good_runs
from labctl.farm.nightly.results import exit_status
from labctl.records.night import NightFinding, NightResult, NightRow, NightVerdict

QUIET = realistic(0.01)
BLAMED = {NightVerdict.SLOWER, NightVerdict.FAILS, NightVerdict.DOES_NOT_BUILD}


class Breaking(SimulatedFarm):
    """From one run on, each program on board b0 crashes; or with a chance."""

    breaks_at = 10**9
    chance_of_crash = 0.0

    def measure(self, row, board, built, **words):  # type: ignore[no-untyped-def]
        count = self.runs.get(board, 0)
        crash = count >= self.breaks_at or self.chance.random() < self.chance_of_crash
        if board == "b0" and crash:
            self.runs[board] = count + 1
            raise ProgramFailed("it was killed by signal 9")
        return super().measure(row, board, built, **words)


@pytest.mark.parametrize("at", [1, 2, 3, 6])
def test_a_board_that_breaks_at_night_blames_no_commit(tmp_path: Path, at: int) -> None:
    farm = Breaking(1, QUIET, Truth())
    farm.breaks_at = at
    rows = plan_rows(farm, 2)
    found = night_of(tmp_path / "equal", farm, rows).run()
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    assert {one.board for one in found} <= {"b0", "b1"}

    farm = Breaking(1, QUIET, Truth())
    farm.breaks_at = at
    alone = [row.model_copy(update={"equals": ()}) for row in rows]
    found = night_of(tmp_path / "alone", farm, alone).run()
    (broken,) = [one for one in found if one.board == "b0" and one.verdict != "good"] or [None]
    if broken is not None:  # it may have been measured before the board broke
        assert (broken.verdict, broken.blame) == (NightVerdict.NOT_MEASURED, Blame.INFRA)
        assert "board b0" in broken.reason
        assert exit_status(found) == 3


def test_a_board_on_which_programs_crash_now_and_then_blames_no_commit(tmp_path: Path) -> None:
    blamed = 0
    for seed in range(12):
        farm = Breaking(seed, QUIET, Truth())
        farm.chance_of_crash = 0.5
        found = night_of(tmp_path / str(seed), farm, plan_rows(farm, 4)).run()
        blamed += any(one.verdict in BLAMED for one in found)
    assert blamed <= 1


def test_a_night_that_is_killed_before_the_last_good_is_tried_tries_it(tmp_path: Path) -> None:
    class Crashing(SimulatedFarm):
        def measure(self, row, board, built, **words):  # type: ignore[no-untyped-def]
            if built.version == HEAD:
                crashes.append(board)
                raise ProgramFailed("it was killed by signal 11")
            if len(crashes) == 3 and not deaths:
                deaths.append(board)
                raise KeyboardInterrupt
            return super().measure(row, board, built, **words)

    crashes: list[str] = []
    deaths: list[str] = []
    farm = Crashing(7, QUIET, Truth())
    (row,) = plan_rows(farm, 1)
    night = night_of(tmp_path, farm, [row])
    with pytest.raises(KeyboardInterrupt):
        night.run()
    assert night.findings()[0].verdict not in BLAMED
    (found,) = night_of(tmp_path, farm, [row]).run()
    assert (found.verdict, found.blame) == (NightVerdict.FAILS, Blame.JOB)
    assert len(crashes) == 3


class TwoSpeeds(SimulatedFarm):
    """One side's program is 40 % slow in half of its runs."""

    side = HEAD
    share = 1.4

    def measure(self, row, board, built, **words):  # type: ignore[no-untyped-def]
        found = super().measure(row, board, built, **words)
        if (built.version == HEAD) is (self.side == HEAD) and self.chance.random() < 0.5:
            values = {name: value * self.share for name, value in found.values.items()}
            return Measured(found.run, values, found.seconds, found.execution)
        return found


@pytest.mark.parametrize("side", [HEAD, "good"])
def test_a_build_whose_own_runs_scatter_makes_no_board_suspected(tmp_path: Path, side: str) -> None:
    for seed in range(3):
        farm = TwoSpeeds(seed, QUIET, Truth())
        farm.side = side
        found = night_of(tmp_path / str(seed), farm, plan_rows(farm, 5)).run()
        assert farm.suspected == []
        assert not {one.verdict for one in found} & {NightVerdict.NOT_MEASURED}
        if side == HEAD:
            assert NightVerdict.GOOD not in {one.verdict for one in found}


def test_a_head_that_scatters_and_is_not_shown_to_be_slow_is_suspected(tmp_path: Path) -> None:
    farm = TwoSpeeds(3, QUIET, Truth())
    farm.share = 1.12
    found = night_of(tmp_path, farm, plan_rows(farm, 20)).run()
    unclear = [one for one in found if "head's own runs scatter" in one.reason]
    assert unclear
    assert {one.verdict for one in unclear} == {NightVerdict.SUSPECTED}
    assert not [one for one in found if "too noisy tonight" in one.reason]


def test_the_last_good_does_not_move_past_rows_that_were_not_measured(tmp_path: Path) -> None:
    farm = SimulatedFarm(3, QUIET, Truth())
    rows = plan_rows(farm, 10)
    farm.truth.slow = {row.name: 0.2 for row in rows[5:]}
    night = night_of(tmp_path / "short", farm, rows, hours=0.14)
    found = night.run()
    assert {one.verdict for one in found} == {NightVerdict.GOOD, NightVerdict.NOT_MONITORED}
    assert new_good_runs(night, "llama", []) == ()

    planned = [row.model_copy(update={"unmonitored": "no time"}) for row in rows[5:]]
    night = night_of(tmp_path / "planned", farm, [*rows[:5], *planned])
    night.run()
    assert new_good_runs(night, "llama", []) == ()


def of_night(rows: Sequence[NightRow], **verdicts: NightVerdict) -> NightResult:
    """The result of an earlier night, whose rows b0, b1, ... had these verdicts."""
    found = [
        NightFinding(row=row.name, variant="q8", board=row.board, verdict=verdict, reason="")
        for row in rows
        if (verdict := verdicts.get(row.board)) is not None
    ]
    began = datetime(2026, 11, 1, tzinfo=UTC)
    return NightResult(
        id="n", plan="p", started=began, finished=began, exit_status=0, findings=tuple(found)
    )


GOOD, OPEN, SLOWER = NightVerdict.GOOD, NightVerdict.NOT_MONITORED, NightVerdict.SLOWER


@pytest.mark.parametrize(
    ("past", "required", "moves"),
    [
        ([], True, False),
        ([], False, True),  # the row is no condition
        ([GOOD], True, True),
        ([OPEN, GOOD], True, True),
        ([OPEN, OPEN, GOOD], True, False),  # four nights, tonight included
        ([SLOWER, GOOD], True, False),  # its last verdict is bad
        ([SLOWER], False, True),
    ],
)
def test_the_last_good_moves_if_each_row_was_good_in_the_last_three_nights(
    tmp_path: Path, past: list[NightVerdict], required: bool, moves: bool
) -> None:
    farm = SimulatedFarm(3, QUIET, Truth())
    rows = plan_rows(farm, 2)
    late = rows[1].model_copy(update={"unmonitored": "no time", "required": required})
    night = night_of(tmp_path, farm, [rows[0], late])
    night.run()
    nights = [of_night(rows, b0=GOOD, b1=verdict) for verdict in past]
    assert bool(new_good_runs(night, "llama", nights)) == moves


def test_a_night_in_which_nothing_is_good_moves_no_last_good(tmp_path: Path) -> None:
    farm = SimulatedFarm(3, QUIET, Truth())
    rows = [one.model_copy(update={"unmonitored": "no time"}) for one in plan_rows(farm, 2)]
    night = night_of(tmp_path, farm, rows)
    night.run()
    assert new_good_runs(night, "llama", [of_night(rows, b0=GOOD, b1=GOOD)]) == ()


def test_head_that_does_not_compile_is_said_of_rows_without_time_too(tmp_path: Path) -> None:
    farm = SimulatedFarm(3, QUIET, Truth(unbuildable=frozenset({HEAD})))
    rows = [one.model_copy(update={"unmonitored": "no time"}) for one in plan_rows(farm, 2)]
    found = night_of(tmp_path, farm, rows).run()
    assert {one.verdict for one in found} == {NightVerdict.DOES_NOT_BUILD}
    assert exit_status(found) == 1


def test_a_slowdown_of_a_suspected_board_is_measured_on_an_equal_one(tmp_path: Path) -> None:
    farm = SimulatedFarm(7, QUIET, Truth(suspicious={"b0": "its verdicts flipped 2 times"}))
    rows = plan_rows(farm, 4)
    farm.truth.slow = {row.name: 0.05 for row in rows if row.board == "b0"}
    (slow, *_) = farm.truth.slow
    found = {one.row: one for one in night_of(tmp_path, farm, rows).run()}
    assert found[slow].verdict == "slower"
    assert found[slow].board != "b0"
    assert found[slow].blame is Blame.JOB


@pytest.mark.parametrize("crashes", [False, True])
def test_a_suspected_board_alone_blames_no_commit(tmp_path: Path, crashes: bool) -> None:
    class Crashing(SimulatedFarm):
        def measure(self, row, board, built, **words):  # type: ignore[no-untyped-def]
            if crashes and built.version == HEAD and board == "b0":
                raise ProgramFailed("it was killed by signal 11")
            return super().measure(row, board, built, **words)

    farm = Crashing(7, QUIET, Truth(suspicious={"b0": "its verdicts flipped 2 times"}))
    rows = [row.model_copy(update={"equals": ()}) for row in plan_rows(farm, 4)]
    farm.truth.slow = {row.name: 0.05 for row in rows}
    found = night_of(tmp_path, farm, rows).run()
    alone = [one for one in found if one.board == "b0"]
    assert {(one.verdict, one.blame) for one in alone} == {(NightVerdict.SUSPECTED, None)}
    assert "its verdicts flipped 2 times" in alone[0].reason
    assert {one.verdict for one in found if one.board != "b0"} == {NightVerdict.SLOWER}
