"""A night's journal: jobs that are known before they are in the queue, which goes on meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from simulated_comparisons import realistic
from simulated_farm import SimulatedFarm, Truth, night_of, plan_rows

from labctl.errors import HostError
from labctl.farm.nightly.executor import Built, Measured
from labctl.records.night import NightRow, NightVerdict

QUIET = realistic(0.01)


class Killed(BaseException):
    """The night is killed: nothing of it does anything more."""


class Elsewhere(SimulatedFarm):
    """Boards whose workers go on with the queue while the night is dead."""

    def __init__(self, truth: Truth):
        super().__init__(7, QUIET, truth)
        #: Job -> what it found.
        self.queue: dict[str, Measured] = {}
        self.together: list[set[str]] = []
        self.withdrawn: list[str] = []
        #: So many pairs are cut off between their runs.
        self.cuts = 0
        self.dead: frozenset[str] = frozenset()
        self.dies: Callable[[], bool] = lambda: False

    def job(self, known: str | None) -> str:
        self._die()
        if known in self.withdrawn:
            known = None
        return known or f"job{self.chance.getrandbits(64):x}"

    def has_begun(self, job: str) -> bool:
        return job in self.queue

    def withdraw(self, jobs: Sequence[str]) -> None:
        if not self._is_dead:
            self.withdrawn += jobs

    def measure(
        self,
        row: NightRow,
        board: str,
        built: Built,
        *,
        began: Callable[[str], None],
        queued: Mapping[str, Built],
    ) -> Measured:
        self._die()
        if board in self.dead:
            raise HostError("no worker of host lab2 serves it")
        if not self.queue.keys() >= queued.keys():
            self.together.append(set(queued))
        for job, what in queued.items():
            if job not in self.queue:
                words = {"began": lambda _: None, "queued": queued}
                self.queue[job] = super().measure(row, board, what, **words)  # type: ignore[arg-type]
        self._die()
        if len(queued) == 1 and self.cuts > 0:
            self.cuts -= 1
            raise HostError("its board was kept for it in vain")
        found = self.queue[next(iter(queued))]
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


@pytest.mark.parametrize("lost", ["first", "second"])
def test_a_pair_of_which_a_run_fails_begins_again_with_both(tmp_path: Path, lost: str) -> None:
    """Somebody may have used the board between a run and one that is made again."""
    farm = Elsewhere(Truth())
    farm.cuts = 2 if lost == "second" else 0
    losses = ["the link was lost"] * (2 if lost == "first" else 0)

    def lose() -> None:
        if losses and not len(farm.queue) % 2:
            raise HostError(losses.pop())

    farm.before_run = lose
    rows = plan_rows(farm, 2)
    night = night_of(tmp_path, farm, rows)
    found = night.run()
    failed = [one for one in night.state.entries if one.event == "failed"]
    assert len(failed) == 2
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    measured = [one for one in night.state.entries if one.event == "measured"]
    kept = {one.run for one in measured} & {run for one in found for run in one.runs}
    pairs = {(one.row, one.stage, one.pair) for one in measured}
    assert len(kept) == 2 * len(pairs)
    for one in failed:
        again = [m for m in measured if (m.row, m.stage, m.pair) == (one.row, one.stage, one.pair)]
        assert len([m for m in again if m.run in kept]) == 2
    assert night_of(tmp_path, farm, rows).findings() == found


@pytest.mark.parametrize("alone", [True, False])
def test_a_board_where_pairs_are_always_cut_off_costs_no_night(tmp_path: Path, alone: bool) -> None:
    farm = Elsewhere(Truth())
    farm.cuts = 10_000 if alone else 3
    rows = plan_rows(farm, 2)[:1]
    if alone:
        rows = [row.model_copy(update={"equals": ()}) for row in rows]
    night = night_of(tmp_path, farm, rows)
    (found,) = night.run()
    assert sum(one.event == "failed" for one in night.state.entries) == 3
    again = night_of(tmp_path, farm, rows)
    assert again.findings() == (found,)
    if not alone:
        assert (found.verdict, found.board) == (NightVerdict.GOOD, "b1")
        return
    assert (found.verdict, found.blame) == (NightVerdict.NOT_MEASURED, "infra")
    assert found.reason == "its board was kept for it in vain"


def test_a_night_that_is_interrupted_leaves_its_jobs_to_the_same_command(tmp_path: Path) -> None:
    class Interrupted(Elsewhere):
        def measure(self, *given, **words):  # type: ignore[no-untyped-def]
            if len(self.queue) == 4:
                raise KeyboardInterrupt
            return super().measure(*given, **words)

    farm = Interrupted(Truth())
    rows = plan_rows(farm, 2)
    with pytest.raises(KeyboardInterrupt):
        night_of(tmp_path, farm, rows).run()
    assert not farm.withdrawn
    going_on = Elsewhere(Truth())
    going_on.queue = farm.queue
    found = night_of(tmp_path, going_on, rows).run()
    assert {one.verdict for one in found} == {NightVerdict.GOOD}
    entries = night_of(tmp_path, going_on, rows).state.entries
    assert {one.job for one in entries if one.event == "measured"} == farm.queue.keys()
    assert {one.job for one in entries if one.event == "queued"} == farm.queue.keys()


@pytest.mark.parametrize("ends", ["interrupted", "killed"])
def test_a_night_that_goes_on_at_its_end_begins_no_run_and_takes_what_ended_meanwhile(
    tmp_path: Path, ends: str
) -> None:
    """After Ctrl-C nothing of it begins; after a kill workers go on for a minute."""

    class Cut(Elsewhere):
        def measure(self, *given, **words):  # type: ignore[no-untyped-def]
            found = super().measure(*given, **words)
            if ends == "interrupted":
                self.queue.clear()  # they wait
                raise KeyboardInterrupt
            self.dies = lambda: True
            self._die()
            return found

    farm = Cut(Truth())
    rows = plan_rows(farm, 2)[:1]
    with pytest.raises((KeyboardInterrupt, Killed)):
        night_of(tmp_path, farm, rows, hours=1).run()
    going_on = Elsewhere(Truth())
    going_on.queue = dict(farm.queue)
    going_on.clocks = {rows[0].board: 3600.0 - 1}
    night_of(tmp_path, going_on, rows, hours=1).run()
    assert going_on.queue == farm.queue
    entries = night_of(tmp_path, going_on, rows).state.entries
    assert sum(one.event == "measured" for one in entries) == len(farm.queue)
    assert len(farm.queue) == (0 if ends == "interrupted" else 2)
    assert len(going_on.withdrawn) == (2 if ends == "interrupted" else 0)


def test_a_run_whose_job_was_taken_back_is_not_made_alone(tmp_path: Path) -> None:
    """Hours may lie between it and the other run of its pair."""

    class Cut(Elsewhere):
        def measure(self, *given, **words):  # type: ignore[no-untyped-def]
            if len(self.queue) == 2 and len(words["queued"]) == 1:
                self.queue.pop(next(iter(words["queued"])))  # it waits
                raise KeyboardInterrupt
            return super().measure(*given, **words)

    farm = Cut(Truth())
    rows = plan_rows(farm, 2)[:1]
    with pytest.raises(KeyboardInterrupt):
        night_of(tmp_path, farm, rows).run()

    class Late(Elsewhere):
        def withdraw(self, jobs: Sequence[str]) -> None:
            super().withdraw(jobs)
            raise Killed

    late = Late(Truth())
    late.queue, late.clocks = farm.queue, {rows[0].board: 3600.0}
    with pytest.raises(Killed):
        night_of(tmp_path, late, rows, hours=1).run()
    assert len(late.withdrawn) == 1
    going_on = Elsewhere(Truth())  # the host's clock was set back meanwhile
    going_on.queue, going_on.withdrawn = dict(farm.queue), late.withdrawn
    night = night_of(tmp_path, going_on, rows, hours=1000)
    night.run()
    assert all(len(jobs) == 2 for jobs in going_on.together)
    assert [one.side for one in night.state.entries if one.event == "failed"] == ["head"]


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
