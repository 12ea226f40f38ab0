"""Leases of boards in the lab's state, on SQLite and on PostgreSQL."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from labctl.config.lab import Lab, LabFile
from labctl.database.base import patience
from labctl.errors import BoardBusy, HostError, LeaseLost
from labctl.retry import wait_until
from labctl.state.events import this_user
from labctl.state.lease import steady_seconds
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


def history(state: LabState, board: str = "rk1") -> list[tuple[str, str, str | None]]:
    return [(one.value, one.made_by, one.reason) for one in state.health.history(board)]


def test_one_has_a_board_and_others_learn_who(lab: LabFile, state: LabState) -> None:
    first = state.leases.acquire("rk1", purpose="run a\x1b[31m", holder="ann@desk")
    assert (first.epoch, first.holder, first.purpose) == (1, "ann@desk", "run a\\x1b[31m")
    assert first.expires == pytest.approx(first.since + 60, abs=1)
    assert first.stop_before <= steady_seconds() + 60
    with pytest.raises(BoardBusy, match=r"board rk1 is in use by ann@desk since 20.*: run a"):
        lab_state(lab).leases.acquire("rk1", purpose="run b")
    assert lab_state(lab).leases.acquire("rk2", purpose="run b").holder == this_user()
    state.leases.release(first)
    state.leases.release(first)
    assert state.leases.acquire("rk1", purpose="run c").epoch == 2
    assert history(state) == [
        ("leased", "ann@desk", "run a\\x1b[31m"),
        ("idle", "ann@desk", None),
        ("leased", this_user(), "run c"),
    ]


def test_many_that_end_at_once_free_their_boards_and_are_counted(state: LabState) -> None:
    boards = [f"rk{number}" for number in range(12)]
    leases = {board: state.leases.acquire(board, purpose="run") for board in boards}
    stale = replace(leases["rk3"], token="another")

    def end(board: str) -> None:
        state.leases.release(stale if board == "rk3" else leases[board])
        state.health.job_done(board)
        state.health.job_done("rk0")

    with ThreadPoolExecutor(len(boards)) as pool:
        list(pool.map(end, boards))
    assert [one.board for one in state.leases.list()] == ["rk3"]
    counts = {board: state.health.get(board).jobs_since_check for board in boards}
    assert counts == dict.fromkeys(boards, 1) | {"rk0": 13}


def test_a_lease_that_others_see_cannot_be_used(state: LabState) -> None:
    held = state.leases.acquire("rk1", purpose="run a")
    (seen,) = state.leases.list()
    assert state.leases.get("rk1") == seen
    assert held.token not in f"{seen} {held} {vars(seen)}"
    state.leases.release(seen)
    with pytest.raises(LeaseLost):
        state.leases.renew(seen)
    assert state.leases.renew(held).board == "rk1"


def test_an_epoch_is_never_given_twice(state: LabState) -> None:
    lease = state.leases.acquire("rk1", purpose="a", minimum_epoch=7)
    assert lease.epoch == 7
    lease = state.leases.raise_epoch(lease, 12)
    assert lease.epoch == 12
    assert state.leases.raise_epoch(lease, 9).epoch == 12
    state.leases.release(lease)
    assert state.leases.acquire("rk1", purpose="b", minimum_epoch=3).epoch == 13


def test_a_lease_that_is_not_renewed_ends_by_the_database(state: LabState) -> None:
    stale = state.leases.acquire("rk1", purpose="a", holder="ann@desk", seconds=0.5)
    assert wait_until(lambda: state.leases.get("rk1") is None, timeout=30, interval=0.05)
    for use in (
        lambda: state.leases.renew(stale),
        lambda: state.leases.raise_epoch(stale, 99),
    ):
        with pytest.raises(LeaseLost, match="the lease of board rk1 has ended"):
            use()
    after = state.leases.acquire("rk1", purpose="b", holder="bob@desk")
    assert after.epoch == stale.epoch + 1
    with pytest.raises(LeaseLost, match="bob@desk has it now"):
        state.leases.renew(stale)
    state.leases.release(stale)  # of a holder that comes back: nothing
    assert state.leases.get("rk1") is not None
    assert [what[0] for what in history(state)] == ["leased", "idle", "leased"]
    assert history(state)[1][2] == "its holder did not renew it"
    assert state.health.history("rk1")[1].at == stale.expires


def test_renewing_makes_a_lease_longer_and_never_shorter(state: LabState) -> None:
    lease = state.leases.acquire("rk1", purpose="a", seconds=5)
    longer = state.leases.renew(lease, 500)
    assert longer.expires > lease.expires + 400
    assert longer.stop_before > lease.stop_before + 400
    assert state.leases.renew(lease, 5).expires == longer.expires


#: A process that has imported labctl, and as many more as are asked for.
ACQUIRES = """
import os
import sys
from pathlib import Path
from labctl.config.lab import Lab, LabFile
from labctl.errors import BoardBusy
from labctl.state.state import lab_state
import labctl.database.postgresql, psycopg, sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite
root, name, url, count = sys.argv[1:]
go, tell = os.pipe()
pids = []
for _ in range(int(count)):
    pids.append(os.fork())
    if pids[-1] == 0:
        os.close(tell)
        lab = Lab(lab=name or None, database=url or None, boards={})
        state = lab_state(LabFile(Path(root), lab))
        os.read(go, 1)  # all begin when the other end is closed
        try:
            told = state.leases.acquire("rk1", purpose="a", seconds=600).epoch
        except BoardBusy:
            told = "busy"
        os.write(1, f"{told} ".encode())
        sys.exit(0)
os.close(tell)
sys.exit(sum(os.waitpid(pid, 0)[1] for pid in pids) > 0)
"""


def test_of_many_that_want_a_board_exactly_one_gets_it(lab: LabFile) -> None:
    words = [str(lab.root), lab.lab.lab or "", lab.lab.database or ""]
    done = subprocess.run(
        [sys.executable, "-c", ACQUIRES, *words, "6"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    assert sorted(done.stdout.split()) == ["1", *["busy"] * 5]


def test_a_database_that_is_gone_gives_no_board(tmp_path: Path) -> None:
    url = "postgresql://me@127.0.0.1:1/db"
    state = lab_state(LabFile(tmp_path, Lab(lab="x", database=url, boards={})))
    with patience(0.0), pytest.raises(HostError, match="cannot use the database"):
        state.leases.acquire("rk1", purpose="a")


def test_what_fails_while_a_board_is_taken_leaves_it_free(
    state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.leases.release(state.leases.acquire("rk1", purpose="a"))

    def fails(*_: object, **__: object) -> None:
        raise HostError("cut")

    with monkeypatch.context() as patch:
        patch.setattr("labctl.state.leases.set_state", fails)
        with pytest.raises(HostError, match="cut"):
            state.leases.acquire("rk1", purpose="b")
    assert state.leases.list() == []
    assert state.leases.acquire("rk1", purpose="c").epoch == 2
