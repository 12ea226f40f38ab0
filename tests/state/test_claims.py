"""Claims that look first and give later: the same jobs as under one lock, whoever comes between."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import text

from labctl.config.lab import Board, Lab, LabFile
from labctl.config.quotas import Quota
from labctl.state import sql
from labctl.state.admission import Admission, HandOut
from labctl.state.claims import Claim
from labctl.state.groups import NewGroup
from labctl.state.health import Health
from labctl.state.job import Job, NewJob, waiting_of
from labctl.state.job_order import hand_out
from labctl.state.state import LabState, lab_state
from labctl.state.waiting import Waiting
from labctl.transport.local import LocalConfig

BOARDS = tuple(f"rk{number}" for number in range(6))
USERS = ("ann@pc", "bob@pc", "carl@pc")


def lab_file(root: Path, **more: Any) -> LabFile:
    boards = {
        name: Board(
            target="rk3568",
            transport=LocalConfig(),
            workdir="/tmp/w",
            shares=["usb1"] if number < 3 else [],
        )
        for number, name in enumerate(BOARDS)
    }
    quotas = {"bob": Quota(boards=2)}
    return LabFile(root, Lab(shared_limits={"usb1": 2}, boards=boards, quotas=quotas, **more))


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    if request.param == "sqlite":
        return lab_file(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return lab_file(tmp_path, lab=server.new_lab(), database=server.url)


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def job(name: str = "q8", *boards: str, **values: Any) -> NewJob:
    return NewJob(name, {"recipe": name}, boards or ("rk1",), **{"submitter": "ann@pc", **values})


def names(jobs: Sequence[Job]) -> list[str]:
    return [one.name for one in jobs]


def random_queue(state: LabState, chance: random.Random) -> None:
    """Jobs of all kinds; some run, broke boards, were moved; boards are held, bad and reserved."""
    state.jobs.submit(*(
        job(
            f"j{number}",
            *chance.sample(BOARDS, chance.randint(1, 4)),
            submitter=chance.choice(USERS),
            priority=chance.choice((0, 0, 0, 1, -1)),
            kind=chance.choice(("run", "run", "run", "untrusted")),
            runner=chance.choice(("worker", "worker", "worker", "process")),
            max_seconds=chance.choice((60.0, 7200.0)),
            uses=chance.choice(((), (), ("usb1",))),
        )
        for number in range(25)
    ))  # fmt: skip
    for one in state.jobs.claim(chance.sample(BOARDS, 3), "before"):
        if chance.random() < 0.5:
            state.jobs.requeue(one, "cable")
    waiting = [one for one in state.jobs.list() if one.waits]
    for one in chance.sample(waiting, 2):
        state.jobs.move(one.id, first=True)
    state.holds.hold(chance.choice(BOARDS), by=chance.choice(USERS))
    state.health.set(chance.choice(BOARDS), Health.BAD, reason="slow", by="check")
    now = state.jobs.now()
    board = next(one for one in BOARDS if not state.reservations.list(one))
    state.reservations.add(board, now + 3600, now + 7200, holder="carl", by="carl@pc")


def under_one_lock(state: LabState, boards: Sequence[str]) -> list[tuple[str, str]]:
    """Who gets which board, from all jobs that wait, in one transaction: the plain way."""
    jobs = state.jobs.list()
    running = [one for one in jobs if one.state == "running"]
    waiting = [waiting_of(one) for one in jobs if one.waits]
    free = [board for board in boards if board not in {one.board for one in running}]
    counts = {(user, None): sum(one.submitter == user for one in running) for user in USERS}
    ended = [one for one in state.jobs.list(ended=99) if one.ended_at is not None]
    last = {}
    for one in sorted(ended, key=lambda one: one.ended_at or 0.0):
        last[one.board] = (one.submitter, one.group_id)
    now = state.jobs.now()
    with state.changing() as connection:
        admission = Admission(sql.asker(connection), now, state)

        def may_have(one: Waiting, board: str) -> bool:
            if admitted := admission.admits(one, board):
                admission.took(one, board)
            return admitted

        had = {source for board, source in last.items() if board in free}
        given = list(hand_out(waiting, counts, boards=free, suits=may_have, last=had))
    return [(one.id, board) for one, board in given if not one.is_foreground]


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 40))]
)
def test_a_claim_gives_what_one_lock_over_the_whole_queue_would(tmp_path: Path, seed: int) -> None:
    state, chance = lab_state(lab_file(tmp_path)), random.Random(seed)
    random_queue(state, chance)
    for _ in range(4):
        boards = chance.sample(BOARDS, chance.randint(1, len(BOARDS)))
        expected = under_one_lock(state, boards)
        claimed = state.jobs.claim(boards, "worker")
        assert [(one.id, one.board) for one in claimed] == expected
        for one in claimed[::2]:
            state.jobs.finish(one, 0)


@contextmanager
def overtaken(
    monkeypatch: pytest.MonkeyPatch, state: LabState, *acts: Callable[[], object]
) -> Iterator[list[int]]:
    """After each look of a claim, something happens before it gives; yields the looks made."""
    left, looks, look = list(acts), list[int](), Claim._look

    def slow(claim: Claim, ask: Any) -> HandOut:
        found = look(claim, ask)
        if not looks or len(looks) <= len(acts):
            looks.append(len(looks))
        if left:
            act = left.pop(0)
            with monkeypatch.context() as patch:
                patch.setattr(Claim, "_look", look)
                act()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Claim, "_look", slow)
        yield looks


def test_a_job_that_somebody_took_meanwhile_is_not_given_again(
    state: LabState, lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = lab_state(lab)
    state.jobs.submit(job("a", "rk1", "rk2"), job("b", "rk1", "rk2"))
    with overtaken(monkeypatch, state, lambda: other.jobs.claim(["rk2"], "lab2")):
        assert names(state.jobs.claim(["rk1"], "lab1")) == ["b"]
    assert {one.name: one.worker for one in state.jobs.list()} == {"a": "lab2", "b": "lab1"}


def test_a_board_that_somebody_took_meanwhile_is_not_given(
    state: LabState, lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = lab_state(lab)
    state.jobs.submit(job("a"), job("b"))
    with overtaken(monkeypatch, state, lambda: other.jobs.claim(["rk1"], "lab2")):
        assert state.jobs.claim(["rk1"], "lab1") == []
    assert [one.worker for one in state.jobs.list()] == ["lab2", None]


@pytest.mark.parametrize("what", ["hold", "health", "quota", "limit", "cancel", "first"])
def test_what_changed_meanwhile_counts(
    state: LabState, lab: LabFile, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    other = lab_state(lab)
    (first,) = state.jobs.submit(job("first", "rk1", submitter="bob@pc"))
    _, moved = state.jobs.submit(job("second", "rk5"), job("moved", "rk1", priority=-5))
    others = [job(f"o{number}", f"rk{number}", submitter="carl@pc") for number in (0, 2)]
    acts: dict[str, Callable[[], object]] = {
        "hold": lambda: other.holds.hold("rk1", by="ann@pc"),
        "health": lambda: other.health.set("rk1", Health.BAD, reason="x", by="check"),
        "quota": lambda: [other.holds.hold(one, by="bob@pc") for one in ("rk3", "rk4")],
        "limit": lambda: (
            other.jobs.submit(*others),
            other.jobs.claim(["rk0", "rk2"], "lab2"),
        ),
        "cancel": lambda: other.jobs.cancel(first.id, "x"),
        "first": lambda: other.jobs.move(first.id, priority=-9),
    }
    given = {
        "hold": ["moved", "second"],
        "health": ["second"],
        "quota": ["moved", "second"],
        "limit": ["second"],
        "cancel": ["moved", "second"],
        "first": ["moved", "second"],
    }
    with overtaken(monkeypatch, state, acts[what]):
        claimed = list(state.jobs.claim(["rk1", "rk5"], "lab1"))
    claimed += state.jobs.claim(["rk1", "rk5"], "lab1")  # as a worker does soon
    assert sorted(names(claimed)) == given[what]
    assert moved.state == "waiting"


def test_a_claim_that_others_always_overtake_looks_under_the_lock(
    state: LabState, lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = lab_state(lab)
    boards = BOARDS[:5]
    state.jobs.submit(*(job(f"j{number}", *boards) for number in range(9)))
    take = [lambda board=board: other.jobs.claim([board], "lab2") for board in ("rk3", "rk4")]
    moves = [lambda: other.jobs.move(other.jobs.list()[-1].id, first=True)]
    with overtaken(monkeypatch, state, *take, *moves, *moves) as looks:
        (claimed,) = state.jobs.claim(["rk0"], "lab1")
    assert (claimed.board, claimed.worker) == ("rk0", "lab1")
    assert len(looks) >= 3


def test_a_look_that_gives_nothing_writes_nothing(
    state: LabState, lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = state.jobs.submit(job("run", runner="process", priority=-1))
    state.jobs.submit(job("before"))
    (begun,) = state.jobs.claim(["rk1"], "lab1")
    writes: list[object] = []
    change = LabState.change
    monkeypatch.setattr(
        LabState, "change", lambda *given, **more: writes.append(given) or change(*given, **more)
    )
    assert state.jobs.claim_own(run.id, (), "pc") is None
    assert state.jobs.claim_own(run.id, ["rk1"], "pc") is None
    assert state.jobs.claim(["rk1", "rk2"], "lab2") == []
    assert writes == []
    later = lab_state(replace(lab, lease_seconds=1000.0))  # most of its time is over
    assert later.jobs.claim_own(run.id, (), "pc") is None
    assert len(writes) == 1
    assert (later.jobs.find(run.id).expires or 0.0) > state.jobs.now() + 900
    assert later.jobs.claim(["rk2"], "lab1") == []
    assert (later.jobs.find(begun.id).expires or 0.0) > state.jobs.now() + 900


def count(state: LabState, table: str) -> int:
    return int(state.ask(f"SELECT COUNT(*) FROM {table}", {})[0][0])


def run_sql(state: LabState, statement: str, **values: object) -> None:
    with state.changing() as connection:
        connection.execute(text(statement), values)


def test_what_jobs_share_is_stored_once_and_removed_with_the_last(state: LabState) -> None:
    first, *_ = state.jobs.submit(*(job("a", *BOARDS) for _ in range(5)))
    state.jobs.submit(job("b", "rk1"))
    assert (count(state, "job_content"), count(state, "board_list")) == (2, len(BOARDS) + 1)
    assert first.boards == BOARDS
    for one in state.jobs.list():
        state.jobs.cancel(one.id, "x")
    days = 86_400.0
    old = "UPDATE job SET ended_at = ended_at - :seconds WHERE name = :name"
    run_sql(state, old, seconds=89 * days, name="a")
    run_sql(state, old, seconds=91 * days, name="b")
    (new,) = state.jobs.submit(job("c", "rk2"))
    assert sorted(names(state.jobs.list(ended=9))) == ["a"] * 5 + ["c"]
    assert (count(state, "job_content"), count(state, "board_list")) == (2, len(BOARDS) + 1)
    run_sql(state, old, seconds=2 * days, name="a")
    state.jobs.submit(job("c", "rk2"))
    assert (count(state, "job_content"), count(state, "board_list")) == (1, 1)
    assert state.jobs.find(new.id).content == {"recipe": "c"}


def test_a_damaged_content_keeps_its_jobs_alone_from_running(state: LabState) -> None:
    state.jobs.submit(job("a", priority=9), job("b"), job("c", "rk2"))
    run_sql(state, "UPDATE job_content SET content = '{' WHERE content LIKE '%\"a\"%'")
    by_name = {one.name: one for one in state.jobs.list()}
    assert "its request is missing or damaged" in str(by_name["a"].damaged)
    assert by_name["b"].damaged is None
    assert names(state.jobs.claim(["rk1", "rk2"], "w")) == ["b", "c"]
    state.jobs.submit(job("a", "rk3"))  # the same content, stored anew
    assert names(state.jobs.claim(["rk3"], "w")) == ["a"]
    assert all(one.damaged is None for one in state.jobs.list())


def test_a_damaged_board_of_a_list_keeps_no_job_from_the_others(state: LabState) -> None:
    state.jobs.submit(job("a", "rk1", "rk2", "rk3"), job("b", "rk1", "rk2", "rk3"))
    run_sql(state, "UPDATE board_list SET board = :board WHERE place = 1", board="\x1b[2J")
    assert [one.boards for one in state.jobs.list()] == [("rk1", "rk3")] * 2
    assert state.jobs.claim(["rk2"], "w") == []
    assert names(state.jobs.claim(["rk1", "rk3"], "w")) == ["a", "b"]
    (again,) = state.jobs.submit(job("c", "rk1", "rk2", "rk3"))
    assert again.boards == ("rk1", "rk2", "rk3")


def test_who_had_a_board_last_lets_others_pass(state: LabState) -> None:
    """With one board nobody has a running job when it is handed out."""
    state.groups.own(NewGroup("g", "batch", "night", "ann@pc"), None)
    state.jobs.submit(*(job(f"g{n}", "rk1", group_id="g") for n in range(9)))
    state.jobs.submit(job("own", "rk1"), job("bob", "rk1", submitter="bob@pc"))
    ran = []
    for _ in range(5):
        (one,) = state.jobs.claim(["rk1"], "w")
        state.jobs.finish(one, 0)
        ran.append(one.name)
    assert ran == ["g0", "bob", "g1", "own", "g2"]
