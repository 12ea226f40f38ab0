"""Units of jobs, which are claimed whole, and groups of jobs, which may have an owner."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer

from labctl.config.lab import Board, Lab, LabFile
from labctl.errors import BoardBusy, HostTimeout
from labctl.state.groups import NewGroup
from labctl.state.health import Health
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState, lab_state
from labctl.state.uses import UseKind
from labctl.transport.local import LocalConfig

BOARDS = ("rk1", "rk2", "rk3")


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    boards = {
        name: Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w") for name in BOARDS
    }
    if request.param == "sqlite":
        return LabFile(tmp_path, Lab(boards=boards))
    server: PostgresServer = request.getfixturevalue("postgres")
    return LabFile(tmp_path, Lab(boards=boards, lab=server.new_lab(), database=server.url))


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def job(name: str, *boards: str, **values: Any) -> NewJob:
    values = {"submitter": "ann@pc", "id": name, "max_seconds": 60.0, **values}
    return NewJob(name, {"recipe": name}, boards or BOARDS, **values)


def pair(state: LabState, *, restarts: bool = False, boards: tuple[str, ...] = BOARDS) -> None:
    state.groups.own(NewGroup("g", "batch", "night", "ann@pc", restarts), "me")
    unit = {"group_id": "g", "unit": "g.ab"}
    state.jobs.submit(job("a", *boards, **unit), job("b", *boards, **unit))


def claim(state: LabState, *boards: str, by: str = "w") -> list[tuple[str, str | None]]:
    return [(one.id, one.board) for one in state.jobs.claim(boards or BOARDS, by)]


def get(state: LabState, name: str) -> Job:
    found = state.jobs.get(name)
    assert found is not None
    return found


def later(state: LabState, seconds: float) -> None:
    """All that is stored is older."""
    with state.changing() as connection:
        for table in ("job", "job_group"):
            connection.exec_driver_sql(f"UPDATE {table} SET expires = expires - {seconds}")


def test_jobs_of_a_unit_run_one_after_the_other_on_one_board(state: LabState) -> None:
    pair(state)
    assert claim(state) == [("a", "rk1")]
    assert claim(state) == []
    state.jobs.finish(get(state, "a"), 1)
    assert claim(state, "rk2", "rk3") == []
    assert claim(state) == [("b", "rk1")]


def test_nobody_gets_the_board_between_two_jobs_of_a_unit(state: LabState) -> None:
    pair(state)
    claim(state)
    now = state.jobs.now()
    state.reservations.add("rk1", now + 30, now + 90, holder="carl", by="carl@pc")
    state.jobs.finish(get(state, "a"), 0)
    state.jobs.submit(job("first", "rk1", submitter="bob@pc", priority=100))
    state.jobs.submit(job("check", "rk1", kind="check"))
    state.jobs.move("first", first=True)
    waits = state.jobs.submit(job("run", "rk1", runner="process"))[0]
    assert state.jobs.claim_own(waits.id, ["rk1"], "process") is None
    others = state.jobs.claim(("rk1",), "w", suits=lambda: lambda one, _: one.id != "b")
    assert others == []
    assert "kept for b" in str(get(state, "first").reason)
    assert claim(state, "rk1") == [("b", "rk1")]
    state.jobs.finish(get(state, "b"), 0)
    assert claim(state, "rk1") == []
    assert "reserved for carl" in str(get(state, "first").reason)


@pytest.mark.parametrize("is_between", [False, True])
def test_nobody_gets_the_board_of_a_unit_at_once_either(state: LabState, is_between: bool) -> None:
    """Also while a job of it fetches files or stores its run, and by the board's other name."""
    for name in ("rk1", "usb"):
        state.leases.release(state.leases.acquire(name, purpose="probe", hardware="serial 7"))
    pair(state, boards=("rk1",))
    claim(state)
    own = state.leases.acquire("rk1", purpose="check", kind="check", job="a", holder="ann@pc")
    state.leases.release(own)
    if is_between:
        state.jobs.finish(get(state, "a"), 0)
    kinds: tuple[UseKind, ...] = ("check", "probe", "store", "resume")
    for name, kind in ((name, kind) for name in ("rk1", "usb") for kind in kinds):
        with pytest.raises(
            BoardBusy, match=f"board {name} is kept for {'b' if is_between else 'a'}"
        ):
            state.leases.acquire(name, purpose="theirs", kind=kind)


def test_a_unit_needs_the_time_of_all_its_jobs_before_a_reservation(state: LabState) -> None:
    now = None
    state.jobs.submit(job("x", "rk2"))
    now = state.jobs.now()
    state.reservations.add("rk1", now + 90, now + 900, holder="carl", by="carl@pc")
    pair(state, boards=("rk1",))
    state.jobs.submit(job("short", "rk1", submitter="bob@pc"))
    assert claim(state, "rk1") == [("short", "rk1")]


def test_a_board_that_is_kept_in_vain_is_free_after_two_leases(state: LabState) -> None:
    pair(state)
    claim(state)
    state.jobs.finish(get(state, "a"), 0)
    state.jobs.submit(job("c", "rk1", priority=9))
    later(state, 2 * state.lease_seconds - 5)
    assert claim(state, "rk1", by="other")[:1] == []  # its owner is gone, and the board is kept
    state.groups.own(NewGroup("g", "batch", "night", "ann@pc"), "me")
    later(state, 6)
    assert claim(state, "rk1") == [("c", "rk1")]
    state.jobs.finish(get(state, "c"), 0)
    assert claim(state) == [("b", "rk1")]  # it continues on the same board


def test_a_unit_that_restarts_is_cancelled_when_it_is_cut(state: LabState) -> None:
    pair(state, restarts=True)
    claim(state)
    state.jobs.requeue(get(state, "a"), "the cable")  # nothing has ended: it waits again
    assert claim(state) == [("a", "rk2")]
    state.jobs.finish(get(state, "a"), 0)
    assert claim(state) == [("b", "rk2")]
    state.jobs.requeue(get(state, "b"), "the cable")
    assert (get(state, "b").state, get(state, "a").state) == ("cancelled", "done")
    assert "broken off between its jobs" in str(get(state, "b").reason)


def test_a_unit_that_restarts_is_cancelled_when_its_board_was_kept_in_vain(
    state: LabState,
) -> None:
    pair(state, restarts=True)
    claim(state)
    state.jobs.finish(get(state, "a"), 0)
    later(state, 2 * state.lease_seconds + 1)
    state.jobs.free_lost()
    assert get(state, "b").state == "cancelled"


def test_a_cancelled_job_of_a_unit_lets_the_next_one_begin(state: LabState) -> None:
    pair(state)
    state.jobs.submit(job("c", group_id="g", unit="g.ab"))
    claim(state)
    state.jobs.finish(get(state, "a"), 0)
    state.jobs.cancel("b", "not needed")
    state.jobs.submit(job("d", "rk1", priority=9))
    assert claim(state) == [("c", "rk1")]


def test_a_unit_moves_as_a_whole(state: LabState) -> None:
    state.jobs.submit(job("z", submitter="bob@pc"))
    pair(state)
    state.jobs.move("b", first=True)
    assert [one.id for one in state.jobs.list()] == ["a", "b", "z"]


def test_a_bad_board_is_given_to_no_unit_that_has_it(state: LabState) -> None:
    pair(state)
    claim(state)
    state.jobs.finish(get(state, "a"), 0)
    state.health.set("rk1", Health.BAD, reason="slow", by="check")
    assert claim(state) == []


def test_nothing_of_a_group_begins_once_its_owner_is_gone(state: LabState) -> None:
    group = NewGroup("g", "batch", "night", "ann@pc")
    state.groups.own(group, "me")
    state.jobs.submit(*(job(name, group_id="g") for name in "abcd"))
    assert claim(state, "rk1") == [("a", "rk1")]
    state.jobs.renew("me")
    with pytest.raises(HostTimeout, match="in use by me"):
        state.groups.own(group, "you")
    later(state, state.lease_seconds + 1)
    assert claim(state) == []
    assert state.jobs.wanted_boards() == set()
    state.groups.own(group, "you")
    assert claim(state, by="you") != []
    state.groups.leave("g", "me")  # it no longer has it
    assert state.jobs.wanted_boards() != set()
    state.groups.leave("g", "you")
    assert {one.id for one in state.jobs.claim(BOARDS, "you")} == set()
    state.groups.own(group, None)
    state.jobs.finish(get(state, "b"), 0)
    assert claim(state) == [("d", "rk2")]


def test_a_group_that_its_owner_left_is_not_renewed_by_it(state: LabState) -> None:
    """It may stay for what still runs."""
    group = NewGroup("g", "nightly", "night", "ann@pc")
    state.groups.own(group, "me")
    state.jobs.submit(job("a", "rk1", group_id="g"), job("b", "rk2", group_id="g"))
    assert claim(state, "rk1") == [("a", "rk1")]
    state.groups.leave("g", "me")
    state.jobs.renew("me")
    assert claim(state, "rk2") == []
    state.jobs.finish(get(state, "a"), 0)
    state.groups.own(group, "another")
    assert claim(state, "rk2") == [("b", "rk2")]


def test_jobs_of_an_owner_that_is_known_to_be_dead_wait_again_at_once(state: LabState) -> None:
    group = NewGroup("g", "batch", "night", "ann@pc")
    state.groups.own(group, "me")
    state.jobs.submit(job("a", group_id="g"))
    assert claim(state, by="me") == [("a", "rk1")]
    state.groups.own(group, "you", is_dead=lambda name: name == "me")
    assert (get(state, "a").state, get(state, "a").failures) == ("waiting", 0)


def test_a_group_tells_how_far_its_jobs_are(state: LabState) -> None:
    pair(state)
    claim(state)
    before = state.jobs.now()
    state.jobs.finish(get(state, "a"), 1, blame=None, reason="it crashed")
    state.groups.give_up(["b", "a"], "no board is left")
    news, left = state.groups.news("g", before)
    found = {one.id: one for one in news}
    assert left == 0
    assert (found["a"].exit_status, found["a"].reason) == (1, "it crashed")
    assert (found["b"].exit_status, found["b"].blame) == (3, "infra")
    assert state.groups.news("g", state.jobs.now() + 1) == ([], 0)
    assert [one.id for one in state.groups.jobs(["b", "nothing"])] == ["b"]


def test_users_and_groups_take_turns(state: LabState) -> None:
    state.groups.own(NewGroup("g", "batch", "night", "ann@pc"), "me")
    state.jobs.submit(*(job(f"g{n}", group_id="g", expected_seconds=9.0 - n) for n in range(5)))
    state.jobs.submit(job("own"), job("bob", submitter="bob@pc"))
    assert [one for one, _ in claim(state)] == ["g0", "bob", "own"]


def test_a_job_that_nobody_would_run_keeps_no_other_from_its_board(state: LabState) -> None:
    state.jobs.submit(job("left"), job("mine", "rk1", runner="process"))
    assert state.jobs.claim_own("mine", ["rk1"], "process") is not None
    state.jobs.submit(job("next", "rk2", runner="process"))
    state.workers.give_sign("lab1:1:aa", "lab1", ["rk2"], "1")
    assert state.jobs.claim_own("next", ["rk2"], "process") is None
    group = NewGroup("g", "batch", "night", "ann@pc")
    state.groups.own(group, "me", boards=["rk1", "rk3"])
    state.jobs.submit(job("a", "rk3", group_id="g"), job("last", "rk3", runner="process"))
    assert state.jobs.claim_own("last", ["rk3"], "process") is None
    state.groups.own(group, "me", boards=["rk1"])  # nobody is there who would run it
    assert state.jobs.claim_own("last", ["rk3"], "process") is not None


def test_a_job_that_its_worker_leaves_to_others_keeps_nobody_waiting(state: LabState) -> None:
    state.jobs.submit(job("lacking", "rk1"), job("mine", "rk1", runner="process"))
    for leaves, claimed in (((), None), (("lacking",), "mine")):
        state.workers.give_sign("lab1:1:aa", "lab1", ["rk1"], "1", leaves=leaves)
        found = state.jobs.claim_own("mine", ["rk1"], "process")
        assert (found and found.id) == claimed


@pytest.mark.parametrize("left", ["lacking", "its content"])
def test_a_job_that_the_owner_of_its_group_leaves_keeps_nobody_waiting(
    state: LabState, left: str
) -> None:
    """As while its inputs are fetched: the board is idle."""
    state.groups.own(NewGroup("g", "batch", "night", "ann@pc"), "me", boards=["rk1"])
    state.jobs.submit(job("lacking", "rk1", group_id="g"), job("mine", "rk1", runner="process"))
    if left == "its content":
        ((_, left),) = state.jobs.waiting_contents(["rk1"])
    assert state.jobs.claim_own("mine", ["rk1"], "process") is None
    state.groups.tell_leaves("g", "another", [left])
    assert state.jobs.claim_own("mine", ["rk1"], "process") is None
    state.groups.tell_leaves("g", "me", [left])
    assert state.jobs.claim_own("mine", ["rk1"], "process") is not None


def test_of_two_groups_each_leaves_the_others_board_free_in_its_turn(state: LabState) -> None:
    for name in ("g", "h"):
        state.groups.own(NewGroup(name, "batch", "night", "ann@pc"), f"by {name}", boards=["rk1"])
        state.jobs.submit(*(job(f"{name}{n}", "rk1", group_id=name) for n in range(2)))

    def begun(name: str) -> list[str]:
        return [one.id for one in state.jobs.claim(["rk1"], f"by {name}", group=name)]

    assert begun("h") == []
    assert begun("g") == ["g0"]
    state.jobs.submit(job("other", "rk2", group_id="g"))
    state.jobs.claim(["rk2"], "by g", group="g")
    state.jobs.finish(get(state, "g0"), 0)
    assert begun("g") == []
    assert begun("h") == ["h0"]


def test_jobs_of_many_boards_that_are_submitted_in_parts_are_dealt_evenly(state: LabState) -> None:
    chance, boards = random.Random(7), [f"rk{number:02}" for number in range(20)]
    state.groups.own(NewGroup("g", "batch", "full", "ann"), "here")
    for part in range(10):
        lengths = [chance.uniform(20, 40) for _ in boards]
        state.jobs.submit(
            *(
                job(f"p{part}.{n}", *boards, group_id="g", expected_seconds=one)
                for n, one in enumerate(lengths)
            )
        )
    seconds = Counter[str | None]()
    for one in state.jobs.list():
        seconds[one.home] += one.expected_seconds or 0.0
    assert sorted(seconds, key=str) == boards
    assert max(seconds.values()) - min(seconds.values()) < 20.0


@pytest.mark.parametrize(("days", "worked"), [(80, False), (100, False), (100, True)])
def test_what_waits_in_a_group_that_was_left_is_removed_in_the_end(
    state: LabState, days: int, *, worked: bool
) -> None:
    """Not if a job of it ended lately: its owner has only just left it."""
    state.groups.own(NewGroup("g", "batch", "full", "ann"), "here")
    state.jobs.submit(*(job(f"g{n}", group_id="g") for n in range(3)), job("alone"))
    if worked:
        state.jobs.submit(job("first", "rk9", group_id="g"))
        (first,) = state.jobs.claim(["rk9"], "w")
        state.jobs.finish(first, 0)
    state.groups.leave("g", "here")
    with state.changing() as connection:
        connection.exec_driver_sql(f"UPDATE job_group SET made_at = made_at - {days * 86_400}")
    state.jobs.submit(job("new"))
    is_kept = worked or days < 90
    left = ["alone", "g0", "g1", "g2", "new"] if is_kept else ["alone", "new"]
    assert sorted(one.id for one in state.jobs.list()) == left
    assert ("g" in state.groups.stopped()) == is_kept
