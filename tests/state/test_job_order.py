"""The order in which jobs get boards, in simulated time."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labctl.state.group_shares import DEALT_ABOVE, deal
from labctl.state.job_order import hand_out, in_order, longest_first
from labctl.state.waiting import Waiting

Row = tuple[float, Sequence[str]]


def boards_of(count: int) -> tuple[str, ...]:
    return tuple(f"rk{number:03d}" for number in range(count))


def group_of(rows: Iterable[Row], *, user: str = "ann", name: str = "g") -> list[Waiting]:
    """A group's jobs, each with its seconds and boards."""
    return [
        Waiting(f"{name}{n:05d}", tuple(boards), 0, float(n), user, expected_seconds=seconds)
        if name == "alone"
        else Waiting(
            f"{name}{n:05d}",
            tuple(boards),
            0,
            float(n),
            user,
            expected_seconds=seconds,
            group=name,
        )
        for n, (seconds, boards) in enumerate(rows)
    ]


class Simulation:
    """Boards that take a job when they are free; jobs take as long as they are expected to."""

    def __init__(self, jobs: Sequence[Waiting], boards: Sequence[str]):
        groups = {job.group for job in jobs} - {None}
        homes = {
            job: home
            for group in groups
            for job, home in deal([one for one in jobs if one.group == group]).items()
        }
        self.waiting = {job.id: replace(job, home=homes.get(job.id)) for job in jobs}
        self.free = set[str]()
        # Boards get ready one after the other: a host begins few jobs a second.
        self.running = [(number * 0.03, board, "") for number, board in enumerate(boards)]
        self.now = 0.0
        self.began: dict[str, float] = {}
        self.ends: list[float] = []
        self.counts = Counter[tuple[str, str | None]]()
        self._jobs = dict(self.waiting)

    def run(self, takes: Callable[[Waiting], float] = lambda job: job.expected_seconds) -> float:
        """Return the seconds until all jobs have ended."""
        while self.waiting or self.running:
            given = list(hand_out([*self.waiting.values()], self.counts, sorted(self.free)))
            for job, board in given:
                assert board in job.boards
                self.free.remove(board)
                del self.waiting[job.id]
                self.counts[job.submitter, job.group] += 1
                self.began[job.id] = self.now
                heapq.heappush(self.running, (self.now + takes(job), board, job.id))
            self.now, board, job_id = heapq.heappop(self.running)
            self.free.add(board)
            if job_id:
                self.ends.append(self.now)
                ended = self._jobs[job_id]
                self.counts[ended.submitter, ended.group] -= 1
        return self.now


def least(rows: Sequence[Row]) -> float:
    """The least time that jobs can take, by the load of each set of boards."""
    pools = {tuple(boards) for _, boards in rows}
    loads = [
        sum(seconds for seconds, boards in rows if {*boards} <= {*pool}) / len(pool)
        for pool in pools
    ]
    return max(*loads, *(seconds for seconds, _ in rows))


def uniform(low: float, high: float, count: int, boards: Sequence[str], seed: int) -> list[Row]:
    chance = random.Random(seed)
    return [(round(chance.uniform(low, high), 1), boards) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [8, 40])
def test_equal_boards_end_together(count: int, seed: int) -> None:
    boards = boards_of(count)
    rows = uniform(20, 40, 10 * count, boards, seed)
    assert least(rows) / Simulation(group_of(rows), boards).run() >= 0.97


@pytest.mark.parametrize(("low", "high", "least_share"), [(60, 420, 0.96), (200, 290, 0.9)])
def test_boards_end_together_though_each_job_takes_longer_and_others_take_boards(
    low: float, high: float, least_share: float
) -> None:
    """Jobs of nearly equal length fill no rest: longest first alone would reach 0.93."""
    boards = boards_of(100)
    rows = uniform(low, high, 1000, boards, 15)
    others = [(low, boards)] * 10
    jobs = [*group_of(rows), *group_of(others, user="bob", name="alone")]
    took = Simulation(jobs, boards).run(lambda job: job.expected_seconds + 3)
    assert least([*rows, *others]) / took >= least_share


@pytest.mark.parametrize("seed", range(5))
def test_jobs_that_few_boards_can_run_are_not_left_over(seed: int) -> None:
    boards = boards_of(20)
    rows = [
        *uniform(20, 40, 120, boards, seed),
        *(row for board in boards[:4] for row in uniform(20, 40, 10, [board], seed)),
        *uniform(20, 40, 40, boards[4:9], seed),
    ]
    assert least(rows) / Simulation(group_of(rows), boards).run() >= 0.94


def test_a_job_far_longer_than_the_others_begins_first() -> None:
    boards = boards_of(40)
    rows = [*uniform(5, 10, 400, boards, 1), (90.0, boards)]
    simulation = Simulation(group_of(rows), boards)
    simulation.run()
    assert simulation.began["g00400"] == 0.0


def test_many_boards_do_not_change_jobs_together() -> None:
    boards = boards_of(40)
    assert len(boards) > DEALT_ABOVE
    simulation = Simulation(group_of(uniform(20, 40, 400, boards, 2)), boards)
    makespan = simulation.run()
    early = [moment for moment in simulation.ends if moment < 0.8 * makespan]
    crowd = max(sum(moment <= other < moment + 1 for other in early) for moment in early)
    assert crowd <= 16  # all of them would change jobs in the same seconds


def test_jobs_of_a_group_that_broke_off_twice_come_last() -> None:
    rows = group_of([(9.0, ["rk1"]), (1.0, ["rk1"])])
    doubtful = Waiting("d", ("rk1",), 0, 0.0, "ann", expected_seconds=99.0, failures=2, group="g")
    assert [job.id for job in longest_first([doubtful, *rows])] == ["g00000", "g00001", "d"]


def test_a_user_with_few_jobs_waits_for_one_job_of_anothers_batch_at_most() -> None:
    boards = boards_of(50)
    batch = group_of(uniform(20, 40, 500, boards, 3))
    others = group_of(uniform(5, 30, 20, boards, 4), user="bob", name="alone")
    simulation = Simulation([*batch, *others], boards)
    simulation.counts["ann", "g"] = 0
    simulation.run()
    assert max(simulation.began[job.id] for job in others) <= 40.0


def test_a_single_job_comes_before_the_rest_of_its_users_batch() -> None:
    boards = boards_of(4)
    jobs = [*group_of([(10.0, boards)] * 40), *group_of([(10.0, boards)], name="alone")]
    simulation = Simulation(jobs, boards)
    simulation.run()
    assert simulation.began["alone00000"] <= 10.0


def test_a_kept_board_goes_to_its_job_before_all_others() -> None:
    first = Waiting("first", ("rk1", "rk2"), 100, -1.0, "bob")
    kept = Waiting("kept", ("rk1",), 0, 5.0, "ann", group="g", unit="u", kept="rk1")
    assert [(job.id, board) for job, board in hand_out([first, kept], {}, ["rk1", "rk2"])] == [
        ("kept", "rk1"),
        ("first", "rk2"),
    ]


def test_a_board_that_only_few_can_use_is_left_to_them() -> None:
    anywhere, there = group_of([(10.0, ["rk1", "rk2"]), (5.0, ["rk1"])])
    given = {job.id: board for job, board in hand_out([anywhere, there], {}, ["rk1", "rk2"])}
    assert given == {anywhere.id: "rk2", there.id: "rk1"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ann", "bob"]),
            st.sampled_from([None, "g", "h"]),
            st.integers(-1, 1),
            st.integers(-2, 20),
            st.floats(0, 100),
            st.sets(st.sampled_from(boards_of(5)), min_size=1),
        ),
        max_size=25,
    ),
    st.sets(st.sampled_from(boards_of(5))),
)
def test_each_job_has_one_place_and_each_board_one_job(
    rows: list[tuple[str, str | None, int, int, float, set[str]]], free: set[str]
) -> None:
    jobs = [
        Waiting(
            f"j{n}",
            tuple(sorted(boards)),
            priority,
            place,
            user,
            expected_seconds=seconds,
            group=group,
        )
        for n, (user, group, priority, place, seconds, boards) in enumerate(rows)
    ]
    assert sorted(job.id for job in in_order(jobs, {})) == sorted(job.id for job in jobs)
    given = list(hand_out(jobs, {}, sorted(free)))
    assert len({job.id for job, _ in given}) == len({board for _, board in given}) == len(given)
    assert all(board in free and board in job.boards for job, board in given)
    left = free - {board for _, board in given}
    waiting = [job for job in jobs if job not in {one for one, _ in given}]
    assert all(left.isdisjoint(job.boards) for job in waiting)  # no board stands idle
    moved = [job.position for job in in_order(jobs, {}) if job.position < 0]
    assert moved == sorted(moved)
