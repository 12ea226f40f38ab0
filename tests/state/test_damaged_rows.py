"""One damaged value in each column of each table of the state: all others stay in sight, and a
board of which nobody knows that it is free is not.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import pytest
from damages import DAMAGES, ESCAPES, KEEPING, OTHER, RUN, USER, WORKER, Rows, damage, fill, rows_of
from postgres_server import PostgresServer
from sqlalchemy import text

from labctl.config.lab import Lab, LabFile
from labctl.config.quotas import Quota
from labctl.errors import BoardBusy, BoardOutOfService, ConfigError
from labctl.state.damaged import damaged_rows, remove_damaged
from labctl.state.health import Health
from labctl.state.job import NewJob
from labctl.state.lease_wish import Wish
from labctl.state.state import LabState, lab_state
from labctl.state.tables import COLUMNS

QUOTAS = {"default": Quota(boards=5, hours=100)}


@dataclass(frozen=True)
class Filled:
    """A state with a sound row in each table."""

    state: LabState
    rows: Rows
    #: Damaged values that `make test` tries in a column, and in which columns: each, or each third.
    #: The rules are the same in both databases.
    tries: int
    each: int


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    root = tmp_path_factory.mktemp("lab")
    if request.param == "sqlite":
        made = LabFile(root, Lab(boards={}, quotas=QUOTAS))
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        new = Lab(lab=server.new_lab(), database=server.url, boards={}, quotas=QUOTAS)
        made = LabFile(root, new)
    found = lab_state(made)
    fill(found)
    return Filled(found, rows_of(found), *((2, 1) if request.param == "sqlite" else (1, 3)))


READS: tuple[Callable[[LabState], Any], ...] = (
    lambda state: state.baselines.list(),
    lambda state: state.accepted.list("nightly"),
    lambda state: state.leases.list(),
    lambda state: state.reservations.list(),
    lambda state: state.reservations.in_force(),
    lambda state: state.reservations.of_leased(),
    lambda state: state.health.list(),
    lambda state: [state.health.get(f"rk{number}") for number in range(1, 6)],
    lambda state: state.events.list(),
    lambda state: state.events.list(limit=1),
    lambda state: state.health.history("rk1", since=0.0),
    lambda state: state.jobs.list(ended=10),
    lambda state: sorted(state.jobs.wanted_boards()),
    lambda state: state.jobs.to_stop(WORKER),
    lambda state: state.groups.news("b" * 12, 0.0),
    lambda state: state.jobs.waiting(["rk1", "rk4"]),
    lambda state: state.workers.list(),
    lambda state: state.stored_runs.list(),
    lambda state: state.stored_runs.get(RUN),
    lambda state: state.audit.list(),
    lambda state: state.audit.list(limit=1, actor="ann"),
    lambda state: state.tokens.list(),
    lambda state: state.identity,
    damaged_rows,
)


def shown(value: Any) -> str:
    """What a reader prints of it: JSON, which has no NaN."""

    def plain(one: Any) -> Any:
        return asdict(one) if is_dataclass(one) and not isinstance(one, type) else str(one)

    return json.dumps(value, default=plain, allow_nan=False)


def test_every_column_of_every_table_has_its_rule(lab: Filled) -> None:
    state = lab.state
    with state.changing() as connection:
        for table, columns in COLUMNS.items():
            found = connection.execute(text(f"SELECT * FROM {table}"))
            assert set(found.keys()) == columns.keys(), table
            assert found.first() is not None, f"no row in {table}: `fill` has to make one"


def test_sound_rows_are_sound(lab: Filled) -> None:
    damage(lab.state, lab.rows, "audit", [], None)
    assert damaged_rows(lab.state) == []
    others_work(lab.state)
    assert damaged_rows(lab.state) == []


@pytest.mark.parametrize("table", COLUMNS)
def test_a_damaged_value_hides_nothing(lab: Filled, table: str) -> None:
    """A few values in each column, in turn; `make soak` tries all."""
    words = list(DAMAGES)
    damage(lab.state, lab.rows, table, [], None)
    first = list(COLUMNS).index(table)
    for number, column in list(enumerate(COLUMNS[table]))[first % lab.each :: lab.each]:
        turn = (number + first) % len(words)
        tried = 0
        for word in words[turn:] + words[:turn]:
            if damage(lab.state, lab.rows, table, [column], DAMAGES[word], whole=False):
                tried += 1
                if in_sight(lab.state, table, column) or tried == lab.tries:
                    break
    for word in (words * 2)[first : first + lab.tries]:
        damaged_rows_leave_the_rest(lab, table, word)


@pytest.mark.soak
@pytest.mark.parametrize("word", DAMAGES)
@pytest.mark.parametrize("table", COLUMNS)
def test_each_damaged_value_hides_nothing(lab: Filled, table: str, word: str) -> None:
    damage(lab.state, lab.rows, table, [], None)
    for column in COLUMNS[table]:
        if damage(lab.state, lab.rows, table, [column], DAMAGES[word], whole=False):
            in_sight(lab.state, table, column)  # else the types of PostgreSQL refuse it
    damaged_rows_leave_the_rest(lab, table, word)


def damaged_rows_leave_the_rest(lab: Filled, table: str, word: str) -> None:
    """All columns but the key are damaged: what does not need these rows works."""
    if damage(lab.state, lab.rows, table, list(COLUMNS[table])[1:], DAMAGES[word]):
        in_sight(lab.state, table, "")
        others_work(lab.state)


def in_sight(state: LabState, table: str, column: str, *, is_named: bool = False) -> bool:
    """Each part answers, with nothing for a terminal in it, and says what is damaged.

    Return whether anything is.
    """
    damaged = [one.damaged for one in damaged_rows(state) if one.table == table]
    answers = {number: shown(ask(state)) for number, ask in enumerate(READS)}
    for words in answers.values():
        assert "\\u001b" not in words, column
        assert len(words) < 60_000, column
    for why in damaged:
        assert f"{column} is " in why
        assert "to remove it: `labctl " in why
    if not damaged or not column or (column == "board" and table != "job" and not is_named):
        return bool(damaged)  # sound, or a row of no board
    for user in (USER, OTHER):
        if table == "board_health":
            with pytest.raises(BoardOutOfService, match="damaged"):
                state.health.require_work(KEEPING[table], user)
        elif table in KEEPING:
            with pytest.raises(BoardBusy, match="damaged"):
                state.leases.refuse_if_taken(Wish(KEEPING[table], "run", holder=user))
    return True


@pytest.mark.parametrize("table", KEEPING)
def test_a_board_whose_name_is_bytes_is_kept(lab: Filled, table: str) -> None:
    damage(lab.state, lab.rows, table, [], None)
    column = "boards" if table == "job" else "board"
    with lab.state.changing() as connection:
        if connection.dialect.name != "sqlite":
            return  # PostgreSQL keeps no bytes in a column of text
        connection.execute(text(f"UPDATE {table} SET {column} = CAST({column} AS BLOB)"))
    in_sight(lab.state, table, column, is_named=True)


@pytest.mark.parametrize("table", KEEPING)
def test_the_board_of_a_damaged_row_is_nobodys_until_a_person_removes_it(
    lab: Filled, table: str
) -> None:
    state, board = lab.state, KEEPING[table]
    column = "state" if table == "job" else "reason" if table == "board_health" else "holder"
    damage(state, lab.rows, table, [column], ESCAPES)
    row = next(
        one
        for one in damaged_rows(state)
        if {"board_health": board, "job": "a" * 12}.get(table, "") in one.damaged
    )
    for user in (USER, OTHER):
        if table != "board_health":
            with pytest.raises(BoardBusy, match="damaged"):
                state.leases.acquire(board, purpose="run", holder=user)
            with pytest.raises(BoardBusy, match="damaged"):
                state.holds.hold(board, by=user)
    (new,) = state.jobs.submit(NewJob("other", {}, (board,), submitter=OTHER))
    if table != "board_lease":  # workers look at leases themselves
        assert state.jobs.claim([board], "other worker") == []
    ways: dict[str, Callable[[], object]] = {
        "labctl release": lambda: state.holds.release(board, by=OTHER, force=True, reason="x"),
        "labctl boards good": lambda: state.health.set(board, Health.GOOD, reason="x", by=OTHER),
        "labctl queue cancel": lambda: state.jobs.cancel("a" * 12, "x"),
        "labctl hold --cancel": lambda: state.reservations.cancel(
            state.reservations.list(board)[0].id, by=OTHER, force=True, reason="x"
        ),
    }
    (way,) = [act for command, act in ways.items() if f"`{command}" in row.damaged]
    way()
    assert row not in damaged_rows(state)
    assert [job.id for job in state.jobs.claim([board], "other worker")] == [new.id]
    state.leases.acquire(board, purpose="run", holder=OTHER, job=new.id)


def test_a_row_of_any_table_is_removed_by_its_id_and_the_audit_log_knows(lab: Filled) -> None:
    for table, columns in COLUMNS.items():
        key = next(iter(columns))
        if not damage(
            lab.state, lab.rows, table, [key], ESCAPES if key != "id" or table != "audit" else -5
        ):
            continue
        rows = damaged_rows(lab.state)
        assert rows, table
        with pytest.raises(ConfigError, match="no damaged row"):
            remove_damaged(lab.state, ["0" * 12], by=USER, reason="disk error")
        gone = remove_damaged(lab.state, [one.id for one in rows], by=USER, reason="disk error")
        assert gone == rows
        assert damaged_rows(lab.state) == []
        last = lab.state.audit.list()[-1]
        assert (last.actor, last.action, last.subject) == (USER, "state remove", table)
        assert lab.state.identity


def others_work(state: LabState) -> None:
    """Everything that does not need the damaged row."""
    lease = state.leases.acquire("rk5", purpose="run", holder=OTHER)
    state.leases.renew(lease)
    state.leases.release(lease)
    state.holds.hold("rk5", by=OTHER, seconds=60.0)
    state.holds.release("rk5", by=OTHER)
    state.health.set("rk5", Health.GOOD, reason="new fan", by=OTHER)
    state.health.job_done("rk5")
    state.health.want_check("rk5", "it is due")
    (job,) = state.jobs.submit(NewJob("other", {}, ("rk5",), submitter=OTHER))
    (ran,) = state.jobs.claim(["rk5"], "other worker")
    assert ran.id == job.id
    state.jobs.free_lost()
    state.jobs.move(state.jobs.requeue(ran, "link lost").id, first=True)
    state.jobs.cancel(job.id, "enough")
    state.workers.give_sign("other worker", "desk", ["rk5"], "1.0")
    state.workers.remove("other worker")
