"""The queue of jobs, on SQLite and on PostgreSQL."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from labctl.config.lab import Lab, LabFile
from labctl.config.quotas import Quota
from labctl.errors import Blame, ConfigError, LeaseLost
from labctl.state.health import Health
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState, lab_state


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    if request.param == "sqlite":
        return LabFile(tmp_path, Lab(boards={}))
    server: PostgresServer = request.getfixturevalue("postgres")
    return LabFile(tmp_path, Lab(lab=server.new_lab(), database=server.url, boards={}))


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


@pytest.fixture
def dying(lab: LabFile) -> LabState:
    """The state as processes have it whose signs of life are all their last."""
    return lab_state(replace(lab, lease_seconds=-1.0))


def job(name: str = "q8", **values: object) -> NewJob:
    given: dict[str, object] = {"boards": ("rk1",), "submitter": "ann@pc", **values}
    return NewJob(name, {"recipe": name}, **given)  # type: ignore[arg-type]


def names(jobs: Sequence[Job]) -> list[str]:
    return [one.name for one in jobs]


def test_a_job_waits_runs_and_ends(state: LabState) -> None:
    assert state.jobs.list() == []
    (made,) = state.jobs.submit(job(expected_seconds=30.0))
    assert (made.state, made.content, made.expected_seconds) == ("waiting", {"recipe": "q8"}, 30.0)
    assert state.jobs.claim(["rk2"], "w") == []
    (claimed,) = state.jobs.claim(["rk2", "rk1"], "w")
    assert (claimed.state, claimed.board, claimed.attempts) == ("running", "rk1", 1)
    assert state.jobs.claim(["rk1"], "other") == []
    started = state.jobs.start(claimed, "20261120T223000Z-q2-abcdef")
    ended = state.jobs.finish(started, 1, blame=Blame.JOB, reason="it crashed")
    assert (ended.state, ended.exit_status, ended.blame) == ("done", 1, Blame.JOB)
    assert ended.run == "20261120T223000Z-q2-abcdef"
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.submitted_at <= ended.started_at <= ended.ended_at
    assert state.jobs.list() == []
    assert state.jobs.list(ended=5) == [ended]


def test_the_board_of_a_running_job_is_given_to_no_other_worker(state: LabState) -> None:
    """Of two servers that were started at once, the second sees no lease yet."""
    for name in ("a", "b"):
        state.jobs.submit(job(name))
    (first,) = state.jobs.claim(["rk1"], "w1")
    assert state.jobs.claim(["rk1"], "w2") == []
    state.jobs.finish(first, 0)
    assert names(state.jobs.claim(["rk1"], "w2")) == ["b"]


def test_a_job_of_one_id_is_submitted_once(state: LabState) -> None:
    first = state.jobs.submit(job(id="a1"))
    assert state.jobs.submit(job("other", id="a1")) == first
    with pytest.raises(ConfigError, match="no board"):
        state.jobs.submit(job(boards=()))


def test_the_order_is_priority_then_turns_of_users_then_submission(state: LabState) -> None:
    both = ("rk1", "rk2")
    state.jobs.submit(*(job(f"a{n}", boards=both) for n in range(3)))
    state.jobs.submit(*(job(f"b{n}", boards=both, submitter="bob@pc") for n in range(2)))
    state.jobs.submit(job("urgent", boards=both, priority=5))
    assert names(state.jobs.list()) == ["urgent", "b0", "a0", "b1", "a1", "a2"]
    (claimed,) = state.jobs.claim(["rk1"], "w")
    assert claimed.name == "urgent"  # of ann's; bob has none running: his turn
    (second,) = state.jobs.claim(both, "w")
    assert second.name == "b0"


def test_a_job_moves_to_the_front_or_to_another_priority(state: LabState) -> None:
    state.jobs.submit(*(job(f"a{n}") for n in range(3)), job("urgent", priority=5))
    last = state.jobs.list()[-1]
    state.jobs.move(last.id, first=True)
    assert names(state.jobs.list()) == ["a2", "urgent", "a0", "a1"]
    state.jobs.move(state.jobs.list()[3].id, priority=9)
    assert names(state.jobs.list()) == ["a2", "a1", "urgent", "a0"]
    state.jobs.submit(job("late"))
    assert names(state.jobs.list())[-1] == "late"
    (running,) = state.jobs.claim(["rk1"], "w")
    with pytest.raises(ConfigError, match="only a waiting job"):
        state.jobs.move(running.id, first=True)


def test_a_waiting_job_is_cancelled_and_a_running_one_asked_to_stop(state: LabState) -> None:
    first, second = state.jobs.submit(job("a"), job("b"))
    (running,) = state.jobs.claim(["rk1"], "w")
    assert state.jobs.cancel(second.id, "not needed").state == "cancelled"
    assert state.jobs.renew("w") == []
    assert state.jobs.cancel(first.id, "wrong model").state == "running"
    assert state.jobs.to_stop("another") == []
    (stopped,) = state.jobs.to_stop("w")
    assert [one.stop for one in state.jobs.renew("w")] == ["wrong model"]
    assert (stopped.id, stopped.stop) == (running.id, "wrong model")
    state.jobs.finish(stopped, 130, reason="wrong model", state="cancelled")
    with pytest.raises(ConfigError, match="is cancelled"):
        state.jobs.cancel(first.id, "again")
    with pytest.raises(ConfigError, match="no job"):
        state.jobs.cancel("nobody", "x")


def test_a_job_is_found_by_the_start_of_its_id(state: LabState) -> None:
    state.jobs.submit(job(id="abc1"), job(id="abd2"), job(id="ab"))
    assert state.jobs.find("abd").id == "abd2"
    assert state.jobs.find("ab").id == "ab"
    for wrong, words in (("a", "more than one"), ("x", "no job"), ("", "no job"), ("%", "no job")):
        with pytest.raises(ConfigError, match=words):
            state.jobs.find(wrong)


def test_infrastructure_sends_a_job_to_another_board_and_gives_up_at_last(state: LabState) -> None:
    state.jobs.submit(job(boards=("rk1", "rk2")))
    (first,) = state.jobs.claim(["rk1", "rk2"], "w")
    again = state.jobs.requeue(first, "cable")
    assert (again.state, again.tried, again.reason) == ("waiting", ("rk1",), "cable")
    assert state.jobs.claim(["rk1"], "w") == []
    (second,) = state.jobs.claim(["rk1", "rk2"], "w")
    assert second.board == "rk2"
    assert state.jobs.requeue(second, "cable").tried == ()  # each had its turn
    (third,) = state.jobs.claim(["rk1", "rk2"], "w")
    state.jobs.requeue(third, "in use", blame_board=False, counted=False)
    (fourth,) = state.jobs.claim(["rk1"], "w")
    over = state.jobs.requeue(fourth, "cable")
    assert (over.state, over.exit_status, over.blame) == ("done", 3, Blame.INFRA)
    assert over.reason == "given up after 3 attempts: cable"


def test_a_job_of_a_dead_worker_waits_again_and_what_that_says_later_is_refused(
    state: LabState, dying: LabState
) -> None:
    state.jobs.submit(job(boards=("rk1", "rk2")))
    (first,) = state.jobs.claim(["rk1"], "dead")
    dying.jobs.renew("dead")
    (second,) = state.jobs.claim(["rk1"], "new")
    assert (second.id, second.attempts, second.worker) == (first.id, 2, "new")
    for stale in (
        lambda: state.jobs.start(first, "run"),
        lambda: state.jobs.finish(first, 0),
        lambda: state.jobs.requeue(first, "x"),
    ):
        with pytest.raises(LeaseLost, match="attempt 1 of job"):
            stale()
    assert state.jobs.finish(second, 0).exit_status == 0


def test_a_board_is_kept_for_the_one_that_waits_in_the_foreground(
    state: LabState, dying: LabState
) -> None:
    waits, queued = state.jobs.submit(
        job("shell", runner="process", submitter="bob@pc"), job("queued")
    )
    assert state.jobs.claim(["rk1"], "w") == []
    assert state.jobs.claim_own(waits.id, [], "bob") is None
    claimed = state.jobs.claim_own(waits.id, ["rk1"], "bob")
    assert claimed is not None
    state.jobs.finish(claimed, 0)
    (next_one,) = state.jobs.claim(["rk1"], "w")
    assert next_one.id == queued.id
    state.jobs.finish(next_one, 0)
    (gone,) = dying.jobs.submit(job("killed", runner="process"))
    state.jobs.submit(job("after"))
    (after,) = state.jobs.claim(["rk1"], "w")
    assert after.name == "after"
    # Its process lives after all: the database was away, so that nothing was renewed.
    assert state.jobs.claim_own(gone.id, ["rk1"], "killed") is None
    assert state.jobs.find(gone.id).state == "waiting"


def test_a_foreground_job_that_was_refused_a_board_waits_while_its_process_lives(
    state: LabState, dying: LabState
) -> None:
    (waits,) = state.jobs.submit(job(runner="process"))
    for lab, is_kept in ((state, True), (dying, False)):
        claimed = state.jobs.claim_own(waits.id, ["rk1"], "bob")
        assert claimed is not None
        lab.jobs.requeue(claimed, "in use", blame_board=False, counted=False)
        state.jobs.free_lost()
        assert state.jobs.find(waits.id).waits is is_kept


def test_a_worker_that_asks_for_jobs_does_not_lose_its_own_to_itself(
    state: LabState, dying: LabState
) -> None:
    """Its host slept: the lease of its job is over, and it looks for work before it says so."""
    state.jobs.submit(job(boards=("rk1", "rk2")))
    (claimed,) = dying.jobs.claim(["rk1"], "w")
    assert state.jobs.claim(["rk2"], "w") == []
    assert state.jobs.finish(claimed, 0).state == "done"


def test_concurrent_workers_take_each_job_once(state: LabState) -> None:
    boards = [f"rk{n}" for n in range(4)]
    state.jobs.submit(*(job(f"j{n}", boards=tuple(boards)) for n in range(24)))
    seen: list[str] = []

    def work(board: str) -> None:
        while claimed := state.jobs.claim([board], board):
            seen.append(claimed[0].id)
            state.jobs.finish(claimed[0], 0)

    workers = [threading.Thread(target=work, args=(board,)) for board in boards]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(seen) == 24
    assert max(Counter(seen).values()) == 1
    assert [replace(one, id="").exit_status for one in state.jobs.list(ended=30)] == [0] * 24


def test_a_board_is_not_kept_free_for_somebody_whom_a_hold_keeps_away(state: LabState) -> None:
    state.holds.hold("rk1", by="ann@pc")
    (bobs,) = state.jobs.submit(job("bobs", runner="process", submitter="bob@pc"))
    state.jobs.submit(job("anns", submitter="ann@pc"))
    assert state.jobs.claim_own(bobs.id, ["rk1"], "bob") is None
    waiting = state.jobs.find(bobs.id)
    assert waiting.reason is not None
    assert "rk1 is held by ann@pc" in waiting.reason
    (claimed,) = state.jobs.claim(["rk1"], "w")
    assert claimed.name == "anns"
    state.jobs.finish(claimed, 0)
    state.holds.release("rk1", by="ann@pc")
    assert state.jobs.claim_own(bobs.id, ["rk1"], "bob") is not None


def test_a_short_job_uses_the_time_before_a_reservation_that_a_long_one_cannot(
    state: LabState,
) -> None:
    state.jobs.submit(job("long", submitter="bob@pc", max_seconds=4 * 3600.0))
    state.jobs.submit(job("short", submitter="carl@pc", max_seconds=300.0))
    now = state.jobs.now()
    state.reservations.add("rk1", now + 3600, now + 7200, holder="ann", by="ann@pc")
    (claimed,) = state.jobs.claim(["rk1"], "w")
    assert claimed.name == "short"
    assert state.jobs.claim(["rk1"], "w") == []
    assert "reserved for ann" in str(state.jobs.list()[-1].reason)


def test_a_user_with_a_full_quota_lets_others_pass(state: LabState) -> None:
    state.quotas = {"bob": Quota(boards=1)}
    boards = ("rk1", "rk2")
    both = [job(name, boards=boards, submitter="bob@pc") for name in ("b0", "b1")]
    state.jobs.submit(*both, job("anns", boards=boards, priority=-1))
    claimed = state.jobs.claim(boards, "w")
    assert [(one.name, one.board) for one in claimed] == [("b0", "rk1"), ("anns", "rk2")]


def test_a_board_out_of_service_gets_its_holders_jobs_alone(state: LabState) -> None:
    state.health.set("rk1", Health.BAD, reason="slow memory", by="check")
    state.jobs.submit(job("bobs", submitter="bob@pc"))
    assert state.jobs.claim(["rk1"], "w") == []
    (waiting,) = state.jobs.list()
    assert waiting.reason == "the health of board rk1 is bad: slow memory"
    state.holds.hold("rk1", by="ann@pc")
    state.jobs.submit(job("anns", submitter="ann@pc"))
    (claimed,) = state.jobs.claim(["rk1"], "w")
    assert claimed.name == "anns"


def test_a_job_names_what_keeps_it_off_only_where_that_is_all_of_its_boards(
    state: LabState,
) -> None:
    state.holds.hold("rk1", by="ann@pc")
    state.jobs.submit(job(boards=("rk1", "rk2"), submitter="bob@pc"))
    assert state.jobs.claim(["rk1"], "w") == []  # rk2 is in use
    assert [one.reason for one in state.jobs.list()] == [None]
    state.holds.hold("rk2", by="ann@pc")
    assert state.jobs.claim(["rk1"], "w") == []
    (waiting,) = state.jobs.list()
    assert "is held by ann@pc" in str(waiting.reason)
    state.holds.release("rk2", by="ann@pc")
    (claimed,) = state.jobs.claim(["rk2"], "w")
    assert claimed.reason is None


def test_a_job_that_was_to_be_stopped_does_not_run_again(state: LabState, dying: LabState) -> None:
    state.jobs.submit(job("a"), job("b"))
    (first,) = state.jobs.claim(["rk1"], "w")
    state.jobs.cancel(first.id, "wrong model")
    again = state.jobs.requeue(first, "cable")
    assert (again.state, again.reason) == ("cancelled", "wrong model")
    (second,) = dying.jobs.claim(["rk1"], "dead")
    state.jobs.cancel(second.id, "not needed")
    assert state.jobs.claim(["rk1"], "next") == []
    assert state.jobs.find(second.id).state == "cancelled"


def test_the_end_of_a_job_that_a_restored_database_does_not_know_is_refused(
    state: LabState,
) -> None:
    state.jobs.submit(job())
    (claimed,) = state.jobs.claim(["rk1"], "w")
    with pytest.raises(LeaseLost, match="no longer has it"):
        state.jobs.finish(replace(claimed, id="forgotten"), 0)


def broke(state: LabState, board: str, *, name: str = "q8") -> Job:
    """The job is claimed on a board, which breaks."""
    (claimed,) = state.jobs.claim([board], "w")
    assert claimed.name == name
    return state.jobs.requeue(claimed, "cable")


def found(state: LabState, board: str, value: str) -> None:
    state.events.add(board, "check", value, by="health check", reason="")


def ran(state: LabState, board: str, blame: Blame | None = None) -> None:
    """Another job comes to its end on a board."""
    state.jobs.submit(job("other", boards=(board,), priority=9))
    (claimed,) = state.jobs.claim([board], "w")
    assert claimed.name == "other"
    state.jobs.finish(claimed, 0 if blame is None else 2, blame=blame)


def test_a_job_that_was_written_wrong_shows_no_board_to_be_well(state: LabState) -> None:
    state.jobs.submit(job(boards=("rk1", "rk2", "rk3")))
    for board in ("rk1", "rk2"):
        found(state, board, "good")
        broke(state, board)
        ran(state, board, Blame.CONFIG)
    assert broke(state, "rk3").blame is Blame.INFRA


def test_a_job_that_breaks_boards_that_were_well_and_are_well_is_to_blame(state: LabState) -> None:
    state.jobs.submit(job(boards=("rk1", "rk2", "rk3")))
    found(state, "rk1", "good")
    broke(state, "rk1")
    found(state, "rk1", "good")
    ran(state, "rk2")
    broke(state, "rk2")
    ran(state, "rk2")
    over = broke(state, "rk3")
    assert (over.state, over.exit_status, over.blame) == ("done", 1, Blame.JOB)
    assert over.reason == "it broke rk1, rk2, which were well before and are well now: cable"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("failing", "good"),  # it was sick already
        ("short history", "good"),  # nobody knows whether it was well
        ("good", "failing"),  # it is sick still
        ("good", None),  # nobody has looked since
        ("good", "host"),  # its host is at fault
    ],
)
def test_boards_that_may_be_to_blame_themselves_blame_no_job(
    state: LabState, before: str, after: str | None
) -> None:
    state.jobs.submit(job(boards=("rk1", "rk2", "rk3")))
    found(state, "rk1", "good")
    broke(state, "rk1")
    found(state, "rk1", "good")
    found(state, "rk2", before)
    broke(state, "rk2")
    if after is not None:
        found(state, "rk2", after)
    over = broke(state, "rk3")
    assert (over.state, over.exit_status, over.blame) == ("done", 3, Blame.INFRA)


def test_boards_that_break_under_two_jobs_at_once_blame_neither(state: LabState) -> None:
    state.jobs.submit(job(boards=("rk1", "rk2", "rk3")), job("also", boards=("rk4",)))
    for board in ("rk1", "rk2", "rk4"):
        found(state, board, "good")
    broke(state, "rk1")
    broke(state, "rk2")
    broke(state, "rk4", name="also")
    for board in ("rk1", "rk2"):
        found(state, board, "good")
    over = broke(state, "rk3")
    assert (over.state, over.blame) == ("done", Blame.INFRA)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_group_with_a_length_that_no_job_can_have_is_refused(
    state: LabState, seconds: float
) -> None:
    boards = tuple(f"b{number}" for number in range(20))
    group = [job("q8", boards=boards, group_id="g", expected_seconds=seconds) for _ in range(40)]
    with pytest.raises(ConfigError, match="expected_seconds"):
        state.jobs.submit(*group)
