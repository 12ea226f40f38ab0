"""A lab's database that goes away: everything waits, nothing is stored twice or lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cut_connections import CuttingProxy, Moment, cutting_proxy
from postgres_server import PostgresServer

from labctl.config.lab import Lab, LabFile
from labctl.database.base import DatabaseAway, patience
from labctl.database.postgresql import PostgresDatabase
from labctl.errors import ConfigError
from labctl.state.health import Health
from labctl.state.job import NewJob
from labctl.state.job_order import Suits
from labctl.state.state import LabState, lab_state


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(postgres.socket / ".s.PGSQL.5432") as made:
        yield made


@pytest.fixture
def state(tmp_path: Path, postgres: PostgresServer, proxy: CuttingProxy) -> LabState:
    url = f"postgresql://labctl@127.0.0.1:{proxy.port}/postgres"
    made = lab_state(LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=url, boards={})))
    made.jobs.submit()  # makes the tables
    return made


def hold(state: LabState) -> object:
    return state.holds.hold("rk1", by="ann@desk")


CHANGES: dict[str, Callable[[LabState], object]] = {
    "job": lambda state: state.jobs.submit(NewJob("q8", {}, ("rk1",), id="one")),
    "hold": hold,
    "reservation": lambda state: state.reservations.add(
        "rk1", 4e9, 4e9 + 60, holder="ann@desk", by="ann@desk"
    ),
    "token": lambda state: state.tokens.add("ann", "admin", by="ann@desk"),
    "baseline": lambda state: state.baselines.set("good", ["run-1"]),
    "accepted slowdown": lambda state: state.accepted.accept(
        "nightly", "llama/q8@rk1", "q8_0", ratio=1.08, night="n", source="a" * 40, good="b" * 40
    ),
    "audit": lambda state: state.audit.record("ann@desk", "cli", "recover", "rk1"),
    "health": lambda state: state.health.set("rk1", Health.BAD, reason="hot", by="ann@desk"),
    "count": lambda state: state.health.job_done("rk1"),
    "event": lambda state: state.events.add("rk1", "flip", "suspected", by="nightly"),
    "lease": lambda state: state.leases.acquire("rk1", purpose="test"),
}


def rows(state: LabState) -> dict[str, int]:
    tables = (
        "job reservation access_token baseline baseline_run audit board_event board_lease"
        " accepted_slowdown"
    )
    counts = {name: state.ask(f"SELECT COUNT(*) FROM {name}", {})[0][0] for name in tables.split()}
    jobs = state.ask("SELECT COALESCE(SUM(jobs_since_check), 0) FROM board_health", {})
    return counts | {"counted": int(jobs[0][0])}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_once_though_the_answer_to_its_commit_is_lost(
    state: LabState, proxy: CuttingProxy, tmp_path: Path, change: str, moment: Moment
) -> None:
    calm = lab_state(LabFile(tmp_path / "calm", Lab(boards={})))
    CHANGES[change](calm)
    notes: list[str] = []
    proxy.cuts = [(b"COMMIT", moment)] * 2
    with patience(note=notes.append):
        assert CHANGES[change](state) is not None or change in ("audit", "count", "event")
    assert proxy.cuts == []
    assert rows(state) == rows(calm)
    assert len(notes) == 1
    assert "retrying for at most 10 minutes" in notes[0]


@pytest.mark.parametrize("words", [b"INSERT INTO reservation", b"pg_advisory_xact_lock", b"BEGIN"])
def test_a_connection_that_is_reset_in_a_transaction_costs_nothing(
    state: LabState, proxy: CuttingProxy, words: bytes
) -> None:
    before = rows(state)
    proxy.cuts = [(words, "before"), (words, "after")]
    hold(state)
    assert proxy.cuts == []
    assert rows(state)["reservation"] == before["reservation"] + 1
    assert rows(state)["audit"] == before["audit"] + 1


def test_a_claim_whose_answer_is_lost_gives_the_job_to_its_worker(
    state: LabState, proxy: CuttingProxy
) -> None:
    state.jobs.submit(NewJob("q8", {}, ("rk1",), id="one"))
    proxy.cuts = [(b"COMMIT", "after")]
    (job,) = state.jobs.claim(["rk1"], "lab1:1:x")
    assert (job.id, job.attempts, proxy.cuts) == ("one", 1, [])


def test_a_claim_that_is_tried_again_uses_a_shared_limit_once(
    state: LabState, proxy: CuttingProxy
) -> None:
    state.jobs.submit(NewJob("q8", {}, ("rk1",), id="one"))

    def room_for_one() -> Suits:
        room = [1]
        return lambda _job, _board: bool(room and room.pop())

    proxy.cuts = [(b"COMMIT", "before")]
    (job,) = state.jobs.claim(["rk1"], "lab1:1:x", suits=room_for_one)
    assert (job.id, proxy.cuts) == ("one", [])


def test_a_lease_whose_answer_came_late_is_taken_anew(
    tmp_path: Path, state: LabState, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("labctl.state.leases.steady_seconds", lambda: now[0])
    proxy.cuts = [(b"COMMIT", "after")]

    def later(_line: str) -> None:
        now[0] += 300

    with patience(note=later):
        lease = state.leases.acquire("rk1", purpose="test")
    assert lease.stop_before > now[0]
    assert state.leases.get("rk1") is not None


def test_questions_wait_too(state: LabState, proxy: CuttingProxy) -> None:
    hold(state)
    state.reservations.list()
    proxy.cuts = [(b"FROM reservation", "before")]
    assert [one.board for one in state.reservations.list()] == ["rk1"]
    assert proxy.cuts == []


def test_a_database_that_stays_away_is_an_error_when_the_patience_is_over(tmp_path: Path) -> None:
    url = "postgresql://labctl@127.0.0.1:1/postgres"
    state = lab_state(LabFile(tmp_path, Lab(lab="a", database=url, boards={})))
    notes: list[str] = []
    with patience(0.3, note=notes.append), pytest.raises(DatabaseAway):
        state.jobs.list()
    assert "retrying for at most 0.3 s" in notes[0]
    with patience(0.0, note=notes.append), pytest.raises(DatabaseAway):
        state.jobs.submit()
    assert len(notes) == 1


def test_who_is_to_stop_waits_no_longer(tmp_path: Path) -> None:
    url = "postgresql://labctl@127.0.0.1:1/postgres"
    state = lab_state(LabFile(tmp_path, Lab(lab="a", database=url, boards={})))
    stopping = threading.Event()
    waiting = patience(note=lambda _line: stopping.set(), stopping=stopping)
    with waiting, pytest.raises(KeyboardInterrupt):
        state.jobs.list()


def test_a_writer_that_stood_still_begins_its_transaction_anew(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    from labctl.database.postgresql import Timeouts

    lab = LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))
    database = PostgresDatabase(postgres.url, lab.name, tmp_path, Timeouts(idle=0.2))
    tries: list[int] = []

    def slow_at_first(connection: object) -> int:
        tries.append(1)
        if len(tries) == 1:
            threading.Event().wait(1.0)  # the server's limit is meant
        connection.exec_driver_sql("SELECT 1")  # type: ignore[attr-defined]
        return len(tries)

    assert LabState(lab, database).change(slow_at_first) == 2


def test_a_wrong_password_or_database_is_told_at_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    for number, url in enumerate(
        [
            postgres.url.replace("/postgres?", "/nowhere?"),
            postgres.url.replace("labctl@", "nobody-of-that-name@"),
        ]
    ):
        root = tmp_path / str(number)
        state = lab_state(LabFile(root, Lab(lab="a", database=url, boards={})))
        for use in (state.jobs.list, state.jobs.submit):
            with pytest.raises(ConfigError, match="does not exist"):
                use()


@pytest.mark.parametrize(
    "words",
    [
        'FATAL:  password authentication failed for user "ann"',
        "FATAL:  Passwort-Authentifizierung für Benutzer »ann« fehlgeschlagen",
        "FATAL:  Datenbank »farm« existiert nicht",
        '致命错误:  用户 "ann" Password 认证失败',
        '致命错误:  数据库 "farm" 不存在',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "ann", database "farm"',
        "fe_sendauth: no password supplied",
    ],
)
def test_a_refusal_is_known_by_the_words_of_the_server(words: str) -> None:
    from psycopg import OperationalError

    database = PostgresDatabase("postgresql://ann:secret@db/farm", "a", Path("/nowhere"))
    error = database._typed(OperationalError(f"connection failed: {words}"))
    assert isinstance(error, ConfigError)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "words",
    [
        "Connection refused\n\tIs the server running on that host?",
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is shutting down",
        "FATAL:  the database system is in recovery mode",
        "FATAL:  sorry, too many clients already",
        "FATAL:  tut mir leid, schon zu viele Verbindungen",
        "server closed the connection unexpectedly",
        "failed to resolve host 'db': [Errno -3] Temporary failure in name resolution",
        "connection timeout expired",
    ],
)
def test_what_may_mend_itself_is_waited_for(words: str) -> None:
    from psycopg import OperationalError

    database = PostgresDatabase("postgresql://ann@db/farm", "a", Path("/nowhere"))
    assert isinstance(database._typed(OperationalError(words)), DatabaseAway)


@pytest.mark.parametrize("state_of", ["SerializationFailure", "DeadlockDetected", "AdminShutdown"])
def test_a_failed_transaction_is_tried_again(state_of: str) -> None:
    from psycopg import errors

    database = PostgresDatabase("postgresql://ann@db/farm", "a", Path("/nowhere"))
    assert isinstance(database._typed(getattr(errors, state_of)("words")), DatabaseAway)


def test_too_many_connections_are_waited_for(postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg

    url = f"{postgres.url}&application_name=crowd"
    lab = LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))
    crowd: list[object] = []
    try:
        while True:
            crowd.append(psycopg.connect(url))
    except psycopg.OperationalError:
        pass

    def leave(_line: str) -> None:
        for one in crowd:
            one.close()  # type: ignore[attr-defined]

    notes: list[str] = []
    with patience(note=lambda line: (notes.append(line), leave(line))[0]):
        lab_state(lab).jobs.submit()
    assert "too many clients" in notes[0]


def test_ctrl_c_ends_a_wait_at_once(tmp_path: Path) -> None:
    url = "postgresql://labctl@127.0.0.1:1/postgres"
    state = lab_state(LabFile(tmp_path, Lab(lab="a", database=url, boards={})))

    def interrupt(_line: str) -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    with patience(note=interrupt), pytest.raises(KeyboardInterrupt):
        state.jobs.list()
