"""A night through its journal: who is blamed, what is measured again, and when it ends."""

import dataclasses
import random
from pathlib import Path

import pytest
from simulated_comparisons import realistic
from simulated_farm import (
    DISTURBANCES,
    GOOD,
    HEAD,
    SimulatedFarm,
    Truth,
    night_of,
    plan_rows,
    rhythm,
    simulate,
)

from labctl.config.types import format_duration
from labctl.errors import Blame, ProgramFailed
from labctl.farm.nightly.executor import Measured
from labctl.farm.nightly.last_good import new_good_runs
from labctl.farm.nightly.state import GATE_RUN
from labctl.records.night import NightFinding, NightVerdict

QUIET = realistic(0.01)


def farm_and_rows(count: int = 4, **truth: object):  # type: ignore[no-untyped-def]
    farm = SimulatedFarm(7, QUIET, Truth(**truth))  # type: ignore[arg-type]
    return farm, plan_rows(farm, count)


def verdicts(findings: tuple[NightFinding, ...]) -> dict[str, str]:
    return {one.row: str(one.verdict) for one in findings}


def test_a_slow_row_is_confirmed_and_the_others_are_good(tmp_path: Path) -> None:
    farm, rows = farm_and_rows()
    farm.truth.slow = {rows[1].name: 0.05}
    found = night_of(tmp_path, farm, rows).run()
    assert verdicts(found) == {row.name: "slower" if row is rows[1] else "good" for row in rows}
    slow = found[1]
    assert slow.blame is Blame.JOB
    assert slow.low is not None
    assert slow.low > 1
    assert "measured in turns" in slow.reason


def test_head_that_does_not_compile_is_the_commits_fault(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(unbuildable=frozenset({"head"}))
    found = night_of(tmp_path, farm, rows).run()
    assert {one.verdict for one in found} == {NightVerdict.DOES_NOT_BUILD}
    assert {one.blame for one in found} == {Blame.JOB}
    assert not farm.runs


@pytest.mark.parametrize(
    ("truth", "blame"),
    [
        ({"no_network": frozenset({"head"})}, Blame.INFRA),
        ({"no_network": frozenset({"good"})}, Blame.INFRA),
        ({"unbuildable": frozenset({"good"})}, Blame.CONFIG),
    ],
)
def test_no_other_build_failure_is_the_commits_fault(
    tmp_path: Path, truth: dict[str, object], blame: Blame
) -> None:
    farm, rows = farm_and_rows(**truth)
    found = night_of(tmp_path, farm, rows).run()
    assert {one.verdict for one in found} == {NightVerdict.NOT_MEASURED}
    assert {one.blame for one in found} == {blame}


def test_rows_of_a_board_that_dies_go_to_an_equal_one(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(dead={"b0": 3})
    farm.truth.slow = {rows[0].name: 0.05}
    found = night_of(tmp_path, farm, rows).run()
    assert verdicts(found)[rows[0].name] == "slower"
    assert {one.board for one in found if one.row == rows[0].name} != {"b0"}


def test_without_an_equal_board_a_dead_one_leaves_its_rows_not_measured(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(dead={"b0": 0})
    alone = [row.model_copy(update={"equals": ()}) for row in rows]
    found = night_of(tmp_path, farm, alone).run()
    lost = [one for one in found if one.board == "b0"]
    assert {one.verdict for one in lost} == {NightVerdict.NOT_MEASURED}
    assert {one.blame for one in lost} == {Blame.INFRA}
    assert all(one.verdict is NightVerdict.GOOD for one in found if one.board != "b0")


def test_a_board_that_flips_is_suspected_before_the_commit(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(flipping=frozenset({"b0"}))
    found = night_of(tmp_path, farm, rows).run()
    assert set(verdicts(found).values()) == {"good"}
    assert farm.suspected == ["b0"] * len(farm.suspected)
    assert farm.suspected


def test_a_program_that_crashes_at_head_alone_is_blamed(tmp_path: Path) -> None:
    class Crashing(SimulatedFarm):
        def measure(self, row, board, built, **words):  # type: ignore[no-untyped-def]
            if built.version == HEAD and row.name == self.crashes:
                raise ProgramFailed("it was killed by signal 11")
            return super().measure(row, board, built, **words)

        crashes = ""

    farm = Crashing(7, QUIET, Truth())
    rows = plan_rows(farm, 2)
    farm.crashes = rows[0].name
    found = night_of(tmp_path, farm, rows).run()
    assert verdicts(found) == {rows[0].name: "fails", rows[1].name: "good"}
    assert found[0].blame is Blame.JOB
    assert "signal 11" in found[0].reason


def test_a_program_that_crashes_at_the_last_good_too_blames_no_commit(tmp_path: Path) -> None:
    class Crashing(SimulatedFarm):
        def measure(self, *_: object, **__: object) -> Measured:
            raise ProgramFailed("it was killed by signal 11")

    farm = Crashing(7, QUIET, Truth())
    rows = plan_rows(farm, 2)
    found = night_of(tmp_path, farm, rows).run()
    assert {(one.verdict, one.blame) for one in found} == {
        (NightVerdict.NOT_MEASURED, Blame.CONFIG)
    }


class Gated(SimulatedFarm):
    """The runs of one row meet their gates, or not."""

    missed: frozenset[str] = frozenset()

    def measure(self, row, board, built, **words):  # type: ignore[no-untyped-def]
        found = super().measure(row, board, built, **words)
        if row.gated and built.version in self.missed:
            raise ProgramFailed("1 gate missed")
        return dataclasses.replace(found, values={}) if row.gated else found


@pytest.mark.parametrize(
    ("missed", "verdict", "blame"),
    [
        (frozenset[str](), NightVerdict.GOOD, None),
        (frozenset({HEAD}), NightVerdict.FAILS, Blame.JOB),
        (frozenset({HEAD, GOOD}), NightVerdict.NOT_MEASURED, Blame.CONFIG),
    ],
)
def test_a_row_without_times_is_judged_by_the_gates_of_head_alone(
    tmp_path: Path, missed: frozenset[str], verdict: NightVerdict, blame: Blame | None
) -> None:
    farm = Gated(7, QUIET, Truth())
    farm.missed = missed
    timed, other = plan_rows(farm, 2)
    gated = other.model_copy(
        update={"gated": True, "variants": ("gates",), "screen": 1, "look": 0, "equals": ()}
    )
    night = night_of(tmp_path, farm, [timed, gated])
    one, found = night.run()
    assert (one.row, one.verdict) == (timed.name, NightVerdict.GOOD)
    assert (found.row, found.variant, found.verdict, found.blame) == (
        gated.name,
        "gates",
        verdict,
        blame,
    )
    if verdict is NightVerdict.GOOD:
        runs = night.state.rows[gated.name].done
        assert list(runs) == [GATE_RUN]  # once, and nothing of the last good
        assert night.state.rows[gated.name].done[GATE_RUN].run not in new_good_runs(
            night, gated.build, ()
        )


def test_what_the_time_does_not_allow_is_not_monitored_and_never_good(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(8)
    least = rows[0].model_copy(update={"value": 0.1})
    night = night_of(tmp_path, farm, [least, *rows[1:]], hours=rows[5].screen * 60 / 3600)
    found = {one.row: one for one in night.run()}
    assert found[rows[5].name].verdict is NightVerdict.GOOD
    assert found[least.name].verdict is NightVerdict.NOT_MONITORED
    assert "time" in found[least.name].reason
    assert "`time: " in found[least.name].reason
    alone = 60 * (least.screen + 3 * least.look)
    assert f"`time: {format_duration(alone)}` would do for it alone" in found[least.name].reason


class Killed(BaseException):
    """The controller dies."""


def test_a_night_that_is_killed_anywhere_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(4)
    farm.truth.slow = {rows[1].name: 0.05}
    steps = 0

    def sometimes() -> None:
        nonlocal steps
        steps += 1
        if steps % 5 == 0:
            raise Killed

    farm.before_run = sometimes
    deaths = 0
    while True:
        night = night_of(tmp_path, farm, rows)
        before = [one for one in night.state.entries if one.event == "measured"]
        try:
            found = night.run()
        except Killed:
            deaths += 1
            continue
        break
    assert deaths > 5
    assert verdicts(found)[rows[1].name] == "slower"
    measured = [one for one in night.state.entries if one.event == "measured"]
    assert measured[: len(before)] == before
    places = [(one.row, one.board, one.stage, one.pair, one.side) for one in measured]
    assert len(places) == len(set(places)) == sum(farm.measured.values())


@pytest.mark.parametrize(("left", "runs"), [(29, 0), (31, 1)])
def test_a_night_that_goes_on_ends_a_pair_only_if_there_is_time_for_its_second_run(
    tmp_path: Path, left: int, runs: int
) -> None:
    farm, rows = farm_and_rows(1)

    def stop_in_the_second() -> None:
        if farm.runs:
            raise KeyboardInterrupt

    farm.before_run = stop_in_the_second
    with pytest.raises(KeyboardInterrupt):
        night_of(tmp_path, farm, rows, hours=1).run()
    farm.before_run = lambda: None
    farm.clocks = {rows[0].board: 3600.0 - left}
    night_of(tmp_path, farm, rows, hours=1).run()
    assert farm.runs == {rows[0].board: 1 + runs}


def test_a_torn_last_line_is_as_if_it_was_never_written(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(2)
    night_of(tmp_path, farm, rows).run()
    path = tmp_path / "night.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event": "meas')
    again = night_of(tmp_path, farm, rows)
    count = farm.measured.copy()
    assert set(verdicts(again.run()).values()) == {"good"}
    assert farm.measured == count


def test_twenty_nights_find_what_was_planted_and_blame_nothing_else(tmp_path: Path) -> None:
    found = simulate(tmp_path, 20, rows=4, sigma=0.02, planted=True, seed=1)
    assert found.found >= 18
    assert found.false == 0
    assert found.blamed_wrong == 0


@pytest.mark.parametrize("disturbed", sorted(DISTURBANCES))
def test_disturbed_boards_blame_no_commit(tmp_path: Path, disturbed: str) -> None:
    found = simulate(
        tmp_path,
        8,
        rows=2,
        sigma=0.02,
        planted=False,
        with_faults=False,
        disturbed=disturbed,
        seed=2,
    )
    assert found.false == found.blamed_wrong == 0


@pytest.mark.parametrize("slow", [0.0, 0.08])
@pytest.mark.parametrize("phase", range(4))
def test_a_heat_that_comes_and_goes_in_four_runs_is_named_and_judges_nothing(
    tmp_path: Path, phase: int, slow: float
) -> None:
    """In the order good, head, head, good an innocent head was slower, and a slow one good."""
    farm, rows = farm_and_rows(1)
    rows = [row.model_copy(update={"equals": ()}) for row in rows]
    farm.truth.slow = {rows[0].name: slow}
    farm.truth.disturbed = {rows[0].board: lambda n: 0.077 * ((n + phase) % 4 in (1, 2))}
    (found,) = night_of(tmp_path, farm, rows).run()
    if phase % 2 == 0:  # the runs of each pair differ
        assert found.verdict is NightVerdict.NOT_JUDGED
        assert found.reason.startswith("rhythm of 4 runs: the slowest is")
        assert found.blame is None
    else:  # both are slow, or both fast
        assert found.verdict == ("slower" if slow else "good")
    assert farm.suspected == []


def test_a_row_on_a_board_with_a_rhythm_goes_to_an_equal_board(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(2)
    farm.truth.disturbed = {"b0": rhythm(4, 1, "half")}
    found = night_of(tmp_path, farm, rows).run()
    assert {(one.board, str(one.verdict)) for one in found} == {("b1", "good")}


def test_the_order_of_each_pair_is_drawn_and_kept(tmp_path: Path) -> None:
    farm, rows = farm_and_rows(8)
    night = night_of(tmp_path, farm, rows)
    night.run()
    turns = [e.turn for e in night.state.entries if e.event == "measured" and e.side == HEAD]
    assert len(turns) >= 64
    assert 0.35 < turns.count(1) / len(turns) < 0.65
    again = night_of(tmp_path / "again", SimulatedFarm(7, QUIET, Truth()), rows)
    again.run()
    assert [e.turn for e in again.state.entries if e.side == HEAD and e.turn] == turns


@pytest.mark.parametrize("disturbed", sorted(DISTURBANCES))
def test_a_night_keeps_its_time_whatever_disturbs_it(tmp_path: Path, disturbed: str) -> None:
    farm, rows = farm_and_rows(4)
    DISTURBANCES[disturbed](random.Random(3), farm.truth, sorted({row.board for row in rows}))
    night_of(tmp_path, farm, rows, hours=0.5).run()
    assert max(farm.clocks.values()) <= 0.5 * 3600
