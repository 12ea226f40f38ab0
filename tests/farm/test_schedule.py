"""The scheduling policy, in simulated time: every job once, no limit exceeded, a good makespan."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labctl.errors import Blame, BoardOutOfService, ConfigError, HostError, ToolMissing
from labctl.farm.dispatcher import AWAY_SECONDS, simulate
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.schedule import MOST_ATTEMPTS, Schedule

GOOD = JobResult(0)
NO_LIMITS: Mapping[str, int] = {}
BROKEN = JobResult(3, blame=Blame.INFRA, reason="cable", is_board_broken=True, seconds=1.0)


@dataclass
class Simulated:
    """An executor whose attempts end as they are told to; what nobody tells of ends well."""

    answers: dict[tuple[str, str], list[JobResult]] = field(default_factory=dict)
    begun: list[tuple[str, str]] = field(default_factory=list)

    def run(self, job: FarmJob, board: str) -> JobResult:
        self.begun.append((job.id, board))
        told = self.answers.get((job.id, board))
        return told.pop(0) if told else JobResult(0, seconds=job.expected_seconds)

    def stop(self) -> None:
        raise AssertionError


def plain(*boards: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(boards, ())


def schedule(
    jobs: list[FarmJob],
    boards: dict[str, tuple[str, ...]],
    limits: Mapping[str, int] = NO_LIMITS,
    *,
    well: Collection[str] = (),
    deal_above: int = 8,
) -> Schedule:
    made = Schedule(boards, limits, well=well, deal_above=deal_above)
    made.add(*jobs)
    return made


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_job_runs_once_and_no_limit_is_exceeded(data: st.DataObject) -> None:
    names = [f"rk{n}" for n in range(data.draw(st.integers(1, 5)))]
    limits = {"usb": data.draw(st.integers(1, 3)), "build": 1}
    boards: dict[str, tuple[str, ...]] = {
        name: ("usb",) if data.draw(st.booleans()) else () for name in names
    }
    jobs = [
        FarmJob(
            f"j{n}",
            "job",
            tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))),
            data.draw(st.floats(0.5, 9)),
            data.draw(st.integers(0, 2)),
            group=data.draw(st.sampled_from([None, None, f"pair{n // 2}"])),
            uses=("build",) if data.draw(st.booleans()) else (),
        )
        for n in range(data.draw(st.integers(0, 14)))
    ]
    by_group = defaultdict(list)
    for job in jobs:
        by_group[job.group].append(set(job.boards))
    if any(g and not set.intersection(*sets) for g, sets in by_group.items()):
        return  # nothing could run these together
    broken = data.draw(
        st.sets(st.tuples(st.sampled_from([j.id for j in jobs] or [""]), st.sampled_from(names)))
    )
    executor = Simulated({pair: [BROKEN] for pair in broken})
    using: Counter[str] = Counter()
    busy: dict[str, str] = {}
    done: list[tuple[str, str, float]] = []

    def limits_of(job: FarmJob, board: str) -> set[str]:
        return {*boards[board], *job.uses}

    def begin(_at: float, job: FarmJob, board: str) -> None:
        assert board in job.boards
        assert board not in busy
        busy[board] = job.id
        using.update(limits_of(job, board))
        assert all(using[name] <= limit for name, limit in limits.items())

    def end(
        at: float, job: FarmJob, board: str, _attempt: JobResult, result: JobResult | None
    ) -> None:
        assert busy.pop(board) == job.id
        using.subtract(limits_of(job, board))
        if result is not None:
            done.append((job.id, board, at))

    source = schedule(jobs, boards, limits, deal_above=data.draw(st.sampled_from([0, 8])))
    simulate(source, executor, on_begin=begin, on_end=end)
    assert Counter(job for job, _, _ in done) == Counter(job.id for job in jobs)
    assert max(Counter(job for job, _ in executor.begun).values(), default=0) <= MOST_ATTEMPTS
    for group in {job.group for job in jobs} - {None}:
        ids = [job.id for job in jobs if job.group == group]
        places = [board for job, board, _ in done if job in ids]
        assert len(set(places)) == 1  # the pair was measured on one board
        assert [job for job, _, _ in done if job in ids] == ids


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.lists(st.floats(0.5, 20), min_size=1, max_size=30),
    st.sampled_from([0, 8]),
)
def test_the_makespan_is_near_the_least_that_could_be(
    boards: int, seconds: list[float], deal_above: int
) -> None:
    names = [f"rk{n}" for n in range(boards)]
    jobs = [FarmJob(f"j{n}", "job", tuple(names), took) for n, took in enumerate(seconds)]
    took = simulate(schedule(jobs, plain(*names), deal_above=deal_above), Simulated())
    assert took <= sum(seconds) / boards + max(seconds) * (1 - 1 / boards) + 1e-6  # Graham 1966


def test_priority_comes_before_length_and_length_before_order() -> None:
    jobs = [
        FarmJob("short", "", ("rk1",), 1.0),
        FarmJob("long", "", ("rk1",), 9.0),
        FarmJob("urgent", "", ("rk1",), 0.5, priority=1),
    ]
    executor = Simulated()
    assert simulate(schedule(jobs, plain("rk1")), executor) == 10.5
    assert [job for job, _ in executor.begun] == ["urgent", "long", "short"]


def test_many_boards_end_together_and_do_not_change_jobs_together() -> None:
    """Longest first on all, ten would do so within 2 s, again and again."""
    boards = [f"rk{n}" for n in range(10)]
    jobs = [FarmJob(f"j{n}", "", tuple(boards), 20 + n / 5) for n in range(100)]
    ends: dict[str, list[float]] = defaultdict(list)

    def end(at: float, _j: FarmJob, board: str, _a: JobResult, _r: JobResult | None) -> None:
        ends[board].append(at)

    simulate(schedule(jobs, plain(*boards), deal_above=8), Simulated(), on_end=end)
    last = [times[-1] for times in ends.values()]
    assert max(last) - min(last) < 1
    changes = sorted(at for times in ends.values() for at in times[:-1])
    assert max(sum(at <= one < at + 2 for one in changes) for at in changes) <= 6


class Late(Simulated):
    """The first job on board rkN takes N s longer."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        known = {one for _, one in self.begun}
        late = 0 if board in known else int(board[2:])
        return replace(super().run(job, board), seconds=job.expected_seconds + late)


def test_boards_that_are_behind_get_the_shorter_of_the_last_jobs() -> None:
    boards = [f"rk{n}" for n in range(10)]
    jobs = [FarmJob(f"j{n}", "", tuple(boards), 20 + n / 5) for n in range(100)]
    last: dict[str, float] = {}

    def end(at: float, _j: FarmJob, board: str, _a: JobResult, _r: JobResult | None) -> None:
        last[board] = at

    simulate(schedule(jobs, plain(*boards), deal_above=8), Late(), on_end=end)
    assert max(last.values()) - min(last.values()) < 4  # 9 s with their own, 6 by the last alone


def test_of_several_boards_the_one_with_the_shortest_job_begins_first() -> None:
    """They end one after the other; what is far longer than the others does not wait for them."""
    boards = [f"rk{n}" for n in range(10)]
    jobs = [FarmJob(f"j{n}", "", tuple(boards), 20 + n % 7) for n in range(40)]
    jobs.append(FarmJob("long", "", tuple(boards), 90.0))
    jobs.append(FarmJob("soon", "", tuple(boards), 30.0, priority=1))
    first = [job for job, _ in schedule(jobs, plain(*boards), deal_above=8).begin()]
    assert [job.id for job in first[:2]] == ["soon", "long"]
    seconds = [job.expected_seconds for job in first[2:]]
    assert len(seconds) == 8
    assert seconds == sorted(seconds) != seconds[:1] * 8


def test_of_jobs_that_are_dealt_what_is_far_longer_begins_first() -> None:
    jobs = [FarmJob(f"j{n}", "", ("rk1", "rk2"), 1.0) for n in range(12)]
    jobs.append(FarmJob("long", "", ("rk1", "rk2"), 5.0))
    executor = Simulated()
    assert simulate(schedule(jobs, plain("rk1", "rk2"), deal_above=1), executor) == 9.0
    assert "long" in [job for job, _ in executor.begun[:2]]


def test_what_is_far_longer_waits_for_no_slow_board() -> None:
    boards = [f"rk{n}" for n in range(20)]
    jobs = [FarmJob(f"long{n}", "", tuple(boards), 300.0) for n in range(40)]
    jobs += [FarmJob(f"j{n}", "", tuple(boards), 20.0) for n in range(1000)]
    slow = {(job.id, "rk0"): [JobResult(0, seconds=5 * job.expected_seconds)] for job in jobs}
    begun: list[float] = []

    def begin(at: float, job: FarmJob, _board: str) -> None:
        begun.extend([at] if job.id.startswith("long") else [])

    simulate(schedule(jobs, plain(*boards), deal_above=8), Simulated(slow), on_begin=begin)
    assert max(begun) == 600.0  # the second on another board: rk0 has its first until 1500


def test_what_broke_a_board_is_not_dealt_to_it_when_jobs_are_added() -> None:
    made = schedule([FarmJob("a", "", ("rk1", "rk2"))], plain("rk1", "rk2"), deal_above=1)
    ((job, board),) = made.begin()
    assert made.end(job, BROKEN) is None
    (other,) = {"rk1", "rk2"} - {board}
    made.add(FarmJob("b", "", (board,)), FarmJob("c", "", (other,), 9.0))
    made.offer(board)
    assert (job, board) not in made.begin()


def test_a_board_that_was_dealt_none_or_has_none_left_takes_the_longest_of_another() -> None:
    jobs = [FarmJob(f"j{n}", "", ("rk1", "rk2"), 10.0 + n) for n in range(6)]
    # Whatever runs on rk2 takes no time: in the end it has run all but the first.
    quick = {(job.id, "rk2"): [JobResult(0)] for job in jobs}
    executor = Simulated(quick)
    simulate(schedule(jobs, plain("rk1", "rk2"), deal_above=1), executor)
    (slow,) = (job for job, board in executor.begun if board == "rk1")
    taken = [int(job[1]) for job, board in executor.begun if board == "rk2"][3:]
    assert taken == sorted(taken, reverse=True)
    assert len(taken) == 2
    assert slow not in {job for job, board in executor.begun if board == "rk2"}


def test_a_board_takes_what_is_urgent_of_another_before_its_own() -> None:
    jobs = [FarmJob(f"urgent{n}", "", ("rk1", "rk2"), 5.0, priority=1) for n in range(4)]
    jobs += [FarmJob(f"j{n}", "", ("rk1", "rk2"), 1.0) for n in range(4)]
    executor = Simulated({(job.id, "rk2"): [JobResult(0)] for job in jobs})
    simulate(schedule(jobs, plain("rk1", "rk2"), deal_above=1), executor)
    names = [job for job, _ in executor.begun]
    assert {name[:-1] for name in names[:4]} == {"urgent"}


def test_a_full_limit_is_looked_at_once_for_all_jobs_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boards = plain(*(f"rk{n}" for n in range(40)))
    jobs = [FarmJob(f"j{n}", "", tuple(boards), 1.0, uses=("build",)) for n in range(400)]
    jobs.append(FarmJob("other", "", ("rk7",), 0.5))
    planned, looks = schedule(jobs, boards, {"build": 2}), 0
    assert len(planned.begin()) == 3
    has_room = Schedule._has_room

    def counted(of: Schedule, job: FarmJob, board: str) -> bool:
        nonlocal looks
        looks += 1
        return has_room(of, job, board)

    monkeypatch.setattr(Schedule, "_has_room", counted)
    assert planned.begin() == []
    assert 0 < looks <= len(jobs) + 3 * len(boards)  # not for each job and each board


def test_a_board_that_only_few_can_use_is_left_to_them() -> None:
    jobs = [FarmJob("any", "", ("rk1", "rk2"), 9.0), FarmJob("only", "", ("rk1",), 5.0)]
    executor = Simulated()
    assert simulate(schedule(jobs, plain("rk1", "rk2")), executor) == 9.0
    assert executor.begun == [("any", "rk2"), ("only", "rk1")]


def test_a_broken_board_hands_its_job_to_another_and_is_tried_again_later() -> None:
    jobs = [FarmJob("a", "", ("rk1", "rk2"), 9.0), FarmJob("b", "", ("rk1", "rk2"), 9.0)]
    executor = Simulated({("a", "rk1"): [BROKEN]})
    source = schedule(jobs, plain("rk1", "rk2"))
    simulate(source, executor)
    assert ("a", "rk2") in executor.begun
    assert Counter(executor.begun)["a", "rk1"] == 1


@pytest.mark.parametrize(("checked", "blame"), [(("rk1",), Blame.JOB), ((), Blame.INFRA)])
def test_a_job_that_breaks_boards_that_were_well_and_are_well_is_to_blame_itself(
    checked: tuple[str, ...], blame: Blame
) -> None:
    """rk2 has run another job before it breaks; of rk1 only a check can say that it was well."""
    jobs = [FarmJob("bad", "", ("rk1", "rk2"), 50.0)]
    jobs += [FarmJob(f"j{n}", "", ("rk1", "rk2"), 5.0) for n in range(12)]
    executor = Simulated({("bad", board): [BROKEN] * 9 for board in ("rk1", "rk2")})
    results: dict[str, JobResult] = {}

    def end(_at: float, job: FarmJob, _b: str, _a: JobResult, result: JobResult | None) -> None:
        if result:
            results[job.id] = result

    simulate(schedule(jobs, plain("rk1", "rk2"), well=checked), executor, on_end=end)
    assert results["bad"].blame is blame
    told = "it broke rk1, rk2, which were well before and are well now: cable"
    assert (results["bad"].reason == told) == (blame is Blame.JOB)
    assert len(results) == 13


def test_the_last_board_that_a_job_breaks_rests_as_the_others_did() -> None:
    jobs = [FarmJob("bad", "", ("rk1", "rk2"), 50.0)]
    jobs += [FarmJob(f"j{n}", "", ("rk1", "rk2"), 5.0, priority=-(n % 2)) for n in range(30)]
    begun: list[tuple[float, str, str]] = []
    broke: list[tuple[float, str]] = []

    def end(at: float, job: FarmJob, board: str, _a: JobResult, result: JobResult | None) -> None:
        if job.id == "bad":
            broke.append((at, board))
            assert result is None or result.blame is Blame.JOB

    simulate(
        schedule(jobs, plain("rk1", "rk2"), well=("rk1", "rk2")),
        Simulated({("bad", board): [BROKEN] * 9 for board in ("rk1", "rk2")}),
        on_begin=lambda at, job, board: begun.append((at, job.id, board)),
        on_end=end,
    )
    assert len(broke) == MOST_ATTEMPTS
    for at, board in broke:
        assert not [one for one in begun if one[2] == board and at <= one[0] < at + AWAY_SECONDS]


def test_boards_that_break_under_two_jobs_at_once_blame_neither() -> None:
    jobs = [FarmJob(f"bad{n}", "", ("rk1", "rk2"), 50.0) for n in range(2)]
    jobs += [FarmJob(f"j{n}", "", ("rk1", "rk2"), 5.0) for n in range(12)]
    answers = {(f"bad{n}", b): [BROKEN] * 2 for n in range(2) for b in ("rk1", "rk2")}
    results: dict[str, JobResult] = {}

    def end(_at: float, job: FarmJob, _b: str, _a: JobResult, result: JobResult | None) -> None:
        if result:
            results[job.id] = result

    made = schedule(jobs, plain("rk1", "rk2"), well=("rk1", "rk2"))
    simulate(made, Simulated(answers), on_end=end)
    assert [results[f"bad{n}"].blame for n in range(2)] == [Blame.INFRA] * 2


def test_a_hub_that_fails_is_no_jobs_fault() -> None:
    jobs = [FarmJob(f"j{n}", "", ("rk1", "rk2"), 5.0) for n in range(2)]
    executor = Simulated({(f"j{n}", b): [BROKEN] * 9 for n in range(2) for b in ("rk1", "rk2")})
    results: list[JobResult] = []

    def end(_at: float, _j: FarmJob, _b: str, _a: JobResult, result: JobResult | None) -> None:
        results.extend([result] if result else [])

    simulate(schedule(jobs, plain("rk1", "rk2")), executor, on_end=end)
    assert [(one.exit_status, one.blame) for one in results] == [(3, Blame.INFRA)] * 2
    assert results[0].reason == "given up after 3 attempts: cable"


def test_a_board_that_somebody_else_has_costs_no_attempt() -> None:
    taken = JobResult(3, blame=Blame.INFRA, reason="in use", is_board_taken=True)
    executor = Simulated({("a", "rk1"): [taken] * 7})
    source = schedule([FarmJob("a", "", ("rk1",), 5.0)], plain("rk1"))
    assert simulate(source, executor) > 7 * 10
    assert len(executor.begun) == 8


def test_what_infrastructure_broke_off_is_not_tried_again_at_once() -> None:
    """A host on the way that restarts, a full disk: three attempts in a second help nobody."""
    full = JobResult.of(HostError("the disk is full"))
    executor = Simulated({("a", "rk1"): [full] * 2})
    assert simulate(schedule([FarmJob("a", "", ("rk1",), 5.0)], plain("rk1")), executor) > 2 * 10
    assert len(executor.begun) == 3


def test_a_board_that_this_host_lacks_something_for_is_left_to_other_jobs_at_once() -> None:
    """Nothing is built or installed by waiting: the job is tried on each of its boards once."""
    lack = JobResult.of(ToolMissing("no tool here"))
    jobs = [FarmJob("a", "", ("rk1", "rk2"), 9.0), FarmJob("b", "", ("rk1",), 5.0)]
    executor = Simulated({("a", board): [lack] * 9 for board in ("rk1", "rk2")})
    ends: dict[str, tuple[float, JobResult | None]] = {}

    def end(at: float, job: FarmJob, _b: str, _a: JobResult, result: JobResult | None) -> None:
        ends[job.id] = (at, result)

    assert simulate(schedule(jobs, plain("rk1", "rk2")), executor, on_end=end) == 5.0
    assert executor.begun == [("a", "rk2"), ("b", "rk1"), ("a", "rk1")]
    assert ends == {"a": (5.0, lack), "b": (5.0, JobResult(0, seconds=5.0))}


def test_a_job_without_a_board_is_stranded_and_ends_nothing() -> None:
    source = schedule([FarmJob("a", "", ("rk9",), 5.0)], plain("rk1"))
    assert source.is_over
    assert [job.id for job in source.stranded] == ["a"]
    source.offer("rk9")
    assert [board for _, board in source.begin()] == ["rk9"]


def test_a_board_that_is_put_out_of_service_gets_no_further_job() -> None:
    out = JobResult.of(BoardOutOfService("the health of board rk0 is bad: slow"))
    jobs = [FarmJob("a", "a", ("rk0", "rk1")), FarmJob("b", "b", ("rk0",), 9.0)]
    made = schedule(jobs, plain("rk0", "rk1"))
    executor, results = Simulated({("b", "rk0"): [out] * 9}), {}
    simulate(
        made, executor, on_end=lambda _at, job, _b, _attempt, end: results.setdefault(job.id, end)
    )
    assert executor.begun == [("b", "rk0"), ("a", "rk1")]
    assert [job.id for job in made.stranded] == ["b"]
    assert made.is_over


def test_jobs_of_a_board_that_is_put_out_of_service_go_to_equal_ones() -> None:
    out = JobResult.of(BoardOutOfService("the health of board rk0 is bad: slow"))
    made = schedule([FarmJob("a", "a", ("rk0", "rk1"))], plain("rk0", "rk1"))
    executor = Simulated({("a", "rk0"): [out] * 9})
    simulate(made, executor)
    assert executor.begun == [("a", "rk0"), ("a", "rk1")]
    assert not made.stranded


def test_a_build_that_the_host_lacks_gives_a_job_up_at_once_for_infra_and_blames_no_board() -> None:
    """All boards of a batch are of this host: who serves it has to act, not who wrote the job."""
    lacking = JobResult.of(ConfigError("no agent is built", hint="labctl build").of_host())
    executor = Simulated({("a", "rk1"): [lacking]})
    results: list[JobResult] = []

    def end(_at: float, _j: FarmJob, _b: str, _a: JobResult, result: JobResult | None) -> None:
        results.extend([result] if result else [])

    source = schedule([FarmJob("a", "a", ("rk1",))], plain("rk1"))
    assert simulate(source, executor, on_end=end) == 0.0
    (left,) = results
    assert (left.exit_status, left.blame, left.is_board_broken) == (3, Blame.INFRA, False)
    assert left.reason == "no agent is built; to mend it: labctl build"
