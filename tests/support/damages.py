"""A lab's state with a row in each of its tables, and damaged values for each of its columns."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from labctl.state.groups import NewGroup
from labctl.state.health import Health
from labctl.state.job import NewJob
from labctl.state.state import LabState
from labctl.state.tables import COLUMNS

USER, OTHER, WORKER = "ann@desk", "bob@desk", "desk:1:worker"
RUN = "20261120T223000Z-q2-abcdef"
ESCAPES = "\x1b[2J\x1b]0;title\x07\u202e rk1"
#: name -> a value that no labctl stores: at least in most columns.
DAMAGES: dict[str, Any] = {
    "text": "abc",
    "a number as text": "12x",
    "empty": "",
    "a number": 7,
    "a fraction": 0.5,
    "bytes": b"\xff\x00\xfe",
    "the year 13434": 361_775_000_000.0,
    "negative": -5,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "beyond 64 bits of REAL": 1e300,
    "a large number": 2**63 - 1,
    "broken JSON": '{"a": [1, 2',
    "JSON of another kind": '[[1], {"x": NaN}]',
    "JSON with what is no number": '{"since": "x", "holder": 5, "pid": "y", "untrusted": []}',
    "deep JSON": "[" * 20_000,
    "escapes": ESCAPES,
    "100 kB": "x" * 100_000,
    "NULL": None,
    "a naive time": "2026-11-20T10:00:00",
    "an absurd time": "99999-99-99T99:99:99Z",
}
#: table -> the board that a row of it keeps.
KEEPING = {"board_lease": "rk1", "reservation": "rk2", "board_health": "rk3", "job": "rk4"}


def fill(state: LabState) -> None:
    """Make a sound row in each table: rk1 is leased, rk2 held, rk3 sick, rk4 has a running job."""
    state.baselines.set("release", [RUN], note="the first")
    state.accepted.accept(
        "nightly",
        "llama/q8@rk1",
        "q8_0",
        ratio=1.08,
        night=RUN,
        source="a" * 40,
        good="b" * 40,
        reason="as agreed",
    )
    state.leases.acquire("rk1", purpose="run tiny", holder=USER, hardware="serial 1", seconds=9e4)
    state.holds.hold("rk2", by=USER, reason="look at the fan", seconds=3600.0)
    state.health.set("rk3", Health.BAD, reason="crashes", by=USER, evidence={"runs": [RUN]})
    state.workers.give_sign(WORKER, "desk", ["rk4"], "1.0")
    state.groups.own(NewGroup("b" * 12, "batch", "night", USER), WORKER)
    of_group = {"group_id": "b" * 12, "unit": f"{'b' * 12}.ab"}
    job = NewJob("tiny", {"recipe": "tiny"}, ("rk4",), submitter=USER, id="a" * 12, **of_group)
    state.jobs.submit(job)
    (claimed,) = state.jobs.claim(["rk4"], WORKER)
    state.stored_runs.set(RUN, "0" * 64, "desk")
    state.tokens.add("ann", "run", by=USER, seconds=3600.0)
    assert claimed.board == "rk4"


Rows = dict[str, list[dict[str, Any]]]


def rows_of(state: LabState) -> Rows:
    """All rows of the state's tables."""
    with state.changing() as connection:
        return {
            table: [
                dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()
            ]
            for table in COLUMNS
        }


def damage(
    state: LabState,
    sound: Rows,
    table: str,
    columns: Sequence[str],
    value: Any,
    *,
    whole: bool = True,
) -> list[str]:
    """Set the ``whole`` state, or a table, to its sound rows, with a value in columns of the table.

    Return the columns that took it: a database refuses some values, by its types.
    """
    took = []
    with state.changing() as connection:
        for name, rows in sound.items() if whole else [(table, sound[table])]:
            connection.execute(text(f"DELETE FROM {name}"))
            marks = ", ".join(f":{column}" for column in COLUMNS[name])
            insert = text(f"INSERT INTO {name} ({', '.join(COLUMNS[name])}) VALUES ({marks})")
            connection.execute(insert, rows)
        for column in columns:
            try:
                with connection.begin_nested():
                    update = text(f"UPDATE {table} SET {column} = :value")
                    connection.execute(update, {"value": value})
                took.append(column)
            except (DBAPIError, OverflowError, ValueError):
                pass
    return took


def damage_all(state: LabState, sound: Rows, value: Any, *, keys: bool) -> None:
    """Damage the keys of the rows of all tables, or all but the keys."""
    for number, (table, columns) in enumerate(COLUMNS.items()):
        wanted = list(columns)[:1] if keys else list(columns)[1:]
        damage(state, sound, table, wanted, value, whole=number == 0)
