"""A night's journal of boards of other hosts: jobs that are known before they are in the queue."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from simulated_comparisons import realistic
from simulated_farm import SimulatedFarm, Truth, night_of, plan_rows

from labctl.errors import HostError
from labctl.farm.nightly.executor import Built, Measured
from labctl.records.night import NightEntry, NightRow, NightVerdict, Stage

QUIET = realistic(0.01)


def _pair(entry: NightEntry) -> tuple[Stage, int]:
    assert entry.stage is not None
    assert entry.pair is not None
    return entry.stage, entry.pair


class Killed(BaseException):
    """The night is killed: nothing of it does anything more."""


class Elsewhere(SimulatedFarm):
    """Boards whose runs are jobs of a queue, which goes on while the night is dead."""

    def __init__(self, truth: Truth):
        super().__init__(7, QUIET, truth)
        #: Job -> what it found; None: it failed.
        self.queue: dict[str, Measured | None] = {}
        self.together: list[set[str]] = []
        self.withdrawn: list[str] = []
        self.intruders = 0
        self.dead: frozenset[str] = frozenset()
        self.dies: Callable[[], bool] = lambda: False

    def job(self, board: str, known: str | None) -> str | None:
        self._die()
        if known in self.withdrawn:
            known = None
        return known or f"job{self.chance.getrandbits(64):x}"

    def withdraw(self, board: str, jobs: Sequence[str]) -> None:
        if not self._is_dead:
            self.withdrawn += jobs

    def parted(self, jobs: Sequence[str]) -> str | None:
        self.intruders -= 1
        return "ann@desk used it" if self.intruders >= 0 else None

    def measure(
        self,
        row: NightRow,
        board: str,
        built: Built,
        *,
        began: Callable[[str], None],
        left: str | None,
        queued: Mapping[str, Built],
    ) -> Measured:
        self._die()
        if board in self.dead:
            raise HostError("no worker of host lab2 serves it")
        if not self.queue.keys() >= queued.keys():
            self.together.append(set(queued))
        for job, what in queued.items():
            if job not in self.queue:
                words = {"began": lambda _: None, "left": None, "queued": queued}
                self.queue[job] = super().measure(row, board, what, **words)  # type: ignore[arg-type]
        self._die()
        found = self.queue[next(iter(queued))]
        assert found is not None
        began(found.run)
        self._die()
        return found

    _is_dead = False

    def _die(self) -> None:
        self._is_dead = self._is_dead or self.dies()
        if self._is_dead:
            raise Killed


def test_a_night_that_is_killed_anywhere_measures_each_place_by_one_job(tmp_path: Path) -> None:
    farm = Elsewhere(Truth())
    rows, chance, deaths = plan_rows(farm, 2), Random(5), 0
    farm.truth.slow = {rows[1].name: 0.05}
    farm.dies = lambda: chance.random() < 0.05
    while True:
        farm._is_dead = False
        night = night_of(tmp_path, farm, rows)
        known = {one.job for one in night.state.entries if one.event == "queued"}
        assert farm.queue.keys() <= known  # the journal had each job before the queue had it
        try:
            found = night.run()
        except Killed:
            deaths += 1
            continue
        break
    assert deaths > 10
    assert {one.row: str(one.verdict) for one in found}[rows[1].name] == "slower"
    measured = [one for one in night.state.entries if one.event == "measured"]
    places = [(one.row, one.board, one.stage, one.pair, one.side) for one in measured]
    assert len(places) == len(set(places)) == len(farm.queue)
    assert {one.job for one in measured} == farm.queue.keys()
    assert not farm.withdrawn


def test_both_runs_of_a_pair_are_in_the_queue_before_the_first_begins(tmp_path: Path) -> None:
    farm = Elsewhere(Truth())
    night_of(tmp_path, farm, plan_rows(farm, 2)).run()
    assert farm.together
    assert all(len(jobs) == 2 for jobs in farm.together)


def test_a_pair_that_somebody_came_between_begins_again(tmp_path: Path) -> None:
    farm = Elsewhere(Truth())
    farm.intruders = 2
    rows = plan_rows(farm, 2)
    night = night_of(tmp_path, farm, rows)
    found = night.run()
    parted = [one for one in night.state.entries if one.event == "parted"]
    assert [one.reason for one in parted] == ["ann@desk used it"] * 2
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    assert sum(len(one.runs) for one in found) == len(farm.queue) - 4
    again = night_of(tmp_path, farm, rows)
    assert again.findings() == found


@pytest.mark.parametrize("alone", [True, False])
def test_a_board_where_somebody_always_comes_between_costs_no_night(
    tmp_path: Path, alone: bool
) -> None:
    farm = Elsewhere(Truth())
    farm.intruders = 10_000 if alone else 3
    rows = plan_rows(farm, 2)[:1]
    if alone:
        rows = [row.model_copy(update={"equals": ()}) for row in rows]
    night = night_of(tmp_path, farm, rows)
    (found,) = night.run()
    assert sum(one.event == "parted" for one in night.state.entries) == 3
    again = night_of(tmp_path, farm, rows)
    assert again.findings() == (found,)
    if not alone:
        assert (found.verdict, found.board) == (NightVerdict.GOOD, "b1")
        return
    assert (found.verdict, found.blame) == (NightVerdict.NOT_MEASURED, "infra")
    assert found.reason.endswith("both runs of a pair 3 times in a row: ann@desk used it")


def test_a_pair_is_looked_at_again_if_the_night_was_killed_before_that(tmp_path: Path) -> None:
    class Away(Elsewhere):
        def parted(self, jobs: Sequence[str]) -> str | None:
            raise HostError("the database is away")

    farm = Away(Truth())
    rows = plan_rows(farm, 2)
    with pytest.raises(HostError):
        night_of(tmp_path, farm, rows).run()
    going_on = Elsewhere(Truth())
    going_on.queue, going_on.intruders = farm.queue, 1
    night = night_of(tmp_path, going_on, rows)
    places = [one for one in night.state.entries if one.event == "measured"]
    assert len(places) == 2
    assert not any(night.state.rows[one.row or ""].has_pair(*_pair(one)) for one in places)
    night.run()
    assert sum(one.event == "parted" for one in night.state.entries) == 1
    again = [one for one in night.state.entries if one.event == "measured"]
    for place in places:
        same = [one for one in again if (one.row, *_pair(one)) == (place.row, *_pair(place))]
        assert [one.side for one in same].count(place.side) == 2


def test_a_night_that_is_interrupted_leaves_nothing_in_the_queue_and_can_go_on(
    tmp_path: Path,
) -> None:
    class Interrupted(Elsewhere):
        def measure(self, *given, **words):  # type: ignore[no-untyped-def]
            if len(self.queue) == 4:
                raise KeyboardInterrupt
            return super().measure(*given, **words)

    farm = Interrupted(Truth())
    rows = plan_rows(farm, 2)
    with pytest.raises(KeyboardInterrupt):
        night_of(tmp_path, farm, rows).run()
    assert len(farm.withdrawn) == len(set(farm.withdrawn)) > 0
    going_on = Elsewhere(Truth())
    going_on.queue = farm.queue
    found = night_of(tmp_path, going_on, rows).run()
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    assert farm.queue.keys() >= {
        one.job for one in night_of(tmp_path, going_on, rows).state.entries if one.job
    }


@pytest.mark.parametrize("ends", ["interrupted", "killed"])
def test_a_night_that_goes_on_at_its_end_begins_no_run_and_takes_what_ended_meanwhile(
    tmp_path: Path, ends: str
) -> None:
    """Its jobs are withdrawn by Ctrl-C, and go on after a kill."""

    class Cut(Elsewhere):
        def measure(self, *given, **words):  # type: ignore[no-untyped-def]
            found = super().measure(*given, **words)
            if ends == "interrupted":
                self.queue.clear()  # it stops them before they did anything
                raise KeyboardInterrupt
            self.dies = lambda: True
            self._die()
            return found

    farm = Cut(Truth())
    rows = plan_rows(farm, 2)[:1]
    with pytest.raises((KeyboardInterrupt, Killed)):
        night_of(tmp_path, farm, rows, hours=1).run()
    going_on = Elsewhere(Truth())
    going_on.queue, going_on.withdrawn = dict(farm.queue), farm.withdrawn
    going_on.clocks = {rows[0].board: 3600.0 - 1}
    night_of(tmp_path, going_on, rows, hours=1).run()
    assert going_on.queue == farm.queue
    entries = night_of(tmp_path, going_on, rows).state.entries
    assert sum(one.event == "measured" for one in entries) == len(farm.queue)
    assert len(farm.queue) == (0 if ends == "interrupted" else 2)


def test_a_board_is_let_go_once_however_many_rows_it_has(tmp_path: Path) -> None:
    asked: list[str] = []

    class Asked(Elsewhere):
        def withdraw(self, board: str, jobs: Sequence[str]) -> None:
            asked.append(board)  # a database that is away takes its time to say so

    farm = Asked(Truth())
    rows = [row.model_copy(update={"board": "b0"}) for row in plan_rows(farm, 3)]
    night_of(tmp_path, farm, rows).withdraw()
    assert asked == ["b0"]


@pytest.mark.parametrize("alone", [True, False])
def test_without_a_worker_a_row_goes_to_an_equal_board_or_is_not_judged(
    tmp_path: Path, alone: bool
) -> None:
    farm = Elsewhere(Truth())
    rows = plan_rows(farm, 2)
    if alone:
        rows = [row.model_copy(update={"equals": ()}) for row in rows]
    farm.dead = frozenset({"b0"})
    found = {one.row: one for one in night_of(tmp_path, farm, rows).run()}
    one = found[rows[0].name]
    verdict = (NightVerdict.NOT_MEASURED, "infra") if alone else (NightVerdict.GOOD, None)
    assert (one.verdict, one.blame) == verdict
    assert found[rows[1].name].verdict is NightVerdict.GOOD
    assert farm.withdrawn  # the other run of the pair is not left in the queue
