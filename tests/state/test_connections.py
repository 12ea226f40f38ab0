"""Connections of a process to the lab's database: few, and made again when the server ends them."""

import gc
import os
import signal
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer

from labctl import process
from labctl.config.lab import Lab, LabFile
from labctl.database import postgresql
from labctl.database.base import DatabaseAway, patience
from labctl.database.postgresql import PostgresDatabase, Timeouts
from labctl.errors import HostError
from labctl.retry import wait_until
from labctl.state.state import LabState, lab_state


@pytest.fixture
def lab(tmp_path: Path, postgres: PostgresServer) -> LabFile:
    return LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        yield connection


def connections(server: "psycopg.Connection[tuple[Any, ...]]") -> set[int]:
    """The server's processes for labctl: those of this test, and of what earlier ones left."""
    question = "SELECT pid FROM pg_stat_activity WHERE application_name = 'labctl'"
    return {pid for (pid,) in server.execute(question).fetchall()}


def with_timeouts(lab: LabFile, timeouts: Timeouts) -> LabState:
    """The state of a lab by connections of their own."""
    assert lab.database is not None
    return LabState(lab, PostgresDatabase(lab.database, lab.name, lab.root, timeouts))


def use(state: LabState, number: int) -> None:
    lease = state.leases.acquire(f"rk{number}", purpose="test")
    assert state.leases.get(lease.board) is not None
    state.leases.release(lease)


def test_two_connections_are_enough_for_many_boards(
    lab: LabFile, server: "psycopg.Connection[tuple[Any, ...]]"
) -> None:
    gc.collect()
    before = connections(server)
    states = [lab_state(lab) for _ in range(30)]
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(use, states, range(30)))
    assert len(connections(server) - before) == 2
    assert states[0].leases.list() == []
    del states
    gc.collect()
    assert wait_until(lambda: connections(server) <= before, timeout=60, interval=0.05)


def test_connections_that_the_server_ended_are_made_again_without_a_word(
    lab: LabFile, server: "psycopg.Connection[tuple[Any, ...]]"
) -> None:
    state = lab_state(lab)
    for number in range(3):
        before = connections(server)
        use(state, number)
        for pid in connections(server):
            server.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        assert not connections(server) & before
    use(state, 3)


def test_connections_that_are_made_again_leave_nothing_behind(
    lab: LabFile, server: "psycopg.Connection[tuple[Any, ...]]"
) -> None:
    state = lab_state(lab)
    use(state, 0)
    kept = [weakref.ref(questions_of(state).connection)]
    for number in range(3):
        for pid in connections(server):
            server.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        use(state, number)
        kept.append(weakref.ref(questions_of(state).connection))
    gc.collect()
    assert [one() is not None for one in kept] == [False, False, False, True]


def questions_of(state: LabState) -> postgresql._Questions:
    database = state._database
    assert isinstance(database, postgresql.PostgresDatabase)
    asking = database._connections._asking
    assert asking is not None
    return asking


def test_the_end_of_a_forked_process_ends_no_connection_of_its_parent(
    lab: LabFile, postgres: PostgresServer
) -> None:
    """Its process ends as programs do, not as pytest's own forks: with what it has to finish."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from labctl.config.lab import Lab, LabFile\n"
        "from labctl.state.state import lab_state\n"
        "state = lab_state(LabFile(Path(sys.argv[1]),"
        " Lab(lab=sys.argv[2], database=sys.argv[3], boards={})))\n"
        "state.leases.acquire('rk1', purpose='test')\n"
        "def process(): return state.ask('SELECT pg_backend_pid()', {})\n"
        "before = process()\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0 if process() != before else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert process() == before\n"
    )
    argv = [sys.executable, "-c", program, str(lab.root), lab.lab.lab or "", postgres.url]
    done = process.run(argv, timeout=120)
    assert done.exit_status == 0, done.tail()


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def at_once(ask: Callable[[], object]) -> object:
    with patience(0.0):
        return ask()


def timers() -> list[threading.Timer]:
    return [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_a_question_to_a_server_that_stands_still_ends(
    lab: LabFile, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = with_timeouts(lab, Timeouts(answer=2.0, fresh=600))
    use(state, 1)

    def process() -> int:
        return int(state.ask("SELECT pg_backend_pid()", {})[0][0])

    first = process()
    with frozen(first):
        assert process() != first  # one that stands still alone is replaced
    second = process()
    monkeypatch.setitem(postgresql.LINK, "connect_timeout", 2)
    with frozen(postgres.process.pid, second), ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(at_once, process) for _ in range(2)]
        assert wait_until(lambda: bool(timers()), timeout=60, interval=0.01)
        assert all(one.daemon for one in timers())  # else no process could end meanwhile
        lease = state.leases.acquire("rk1", purpose="test")  # it waits for no question
        for refused in asked:
            with pytest.raises(DatabaseAway):
                refused.result(120)
    monkeypatch.undo()
    state.leases.release(lease)
    use(state, 1)


def test_who_waits_too_long_to_write_is_told_why(lab: LabFile) -> None:
    state = with_timeouts(lab, Timeouts(lock=1.0))
    with ThreadPoolExecutor(1) as pool, state.changing():
        refused = pool.submit(at_once, partial(use, state, 1))
        with pytest.raises(HostError, match="other threads of this process have its only connec"):
            refused.result(60)
    use(state, 1)


def test_a_forked_process_has_connections_of_its_own(lab: LabFile) -> None:
    state = lab_state(lab)
    use(state, 1)
    child = os.fork()
    if child == 0:
        try:
            use(state, 2)
        finally:
            os._exit(0 if state.leases.list() == [] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    use(state, 3)


def test_a_connection_to_a_file_serves_all_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    connect = sqlite3.connect

    def counted(*given: Any, **named: Any) -> sqlite3.Connection:
        made.append(given)
        return connect(*given, **named)

    monkeypatch.setattr(sqlite3, "connect", counted)
    for _user in range(3):
        state = lab_state(LabFile(tmp_path, Lab(boards={})))
        state.leases.release(state.leases.acquire("rk1", purpose="test"))
        assert state.leases.list() == []
    assert len(made) == 2  # the file was made under another name


def test_a_writer_that_was_stopped_does_not_keep_the_others_from_their_leases(
    lab: LabFile, tmp_path: Path
) -> None:
    assert lab.lease_seconds / 4 > Timeouts().idle  # others renew theirs meanwhile
    stopped = with_timeouts(lab, Timeouts(idle=0.2))
    other = lab_state(replace(lab, root=tmp_path / "other"))
    lease = other.leases.acquire("rk1", purpose="test", seconds=30.0)

    def stop_in_the_middle() -> None:
        with stopped.changing() as connection:
            assert other.leases.renew(lease).epoch == lease.epoch
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(DatabaseAway, match="idle-in-transaction"):
        stop_in_the_middle()
