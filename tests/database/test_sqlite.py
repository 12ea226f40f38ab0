"""What is said of a database in a file that cannot be used."""

import sqlite3
from pathlib import Path

import pytest

from labctl.database.sqlite import SqliteDatabase
from labctl.errors import HostError

MOVE_AWAY = "if the file is damaged: move it away"


@pytest.mark.parametrize(
    ("kind", "code", "hint"),
    [
        (sqlite3.OperationalError, sqlite3.SQLITE_FULL, "free some space on this host"),
        (sqlite3.OperationalError, sqlite3.SQLITE_READONLY, "check who may write to the file"),
        (sqlite3.OperationalError, sqlite3.SQLITE_BUSY, "another program writes to it"),
        (sqlite3.OperationalError, sqlite3.SQLITE_IOERR, MOVE_AWAY),
        (sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB, MOVE_AWAY),
    ],
)
def test_only_a_file_that_may_be_damaged_is_to_be_moved_away(
    kind: type[sqlite3.DatabaseError], code: int, hint: str, tmp_path: Path
) -> None:
    database = SqliteDatabase(tmp_path / "labctl.sqlite", "the lab's state", MOVE_AWAY)
    database.path.touch()
    refused = kind("as SQLite says it")
    refused.sqlite_errorcode = code
    with pytest.raises(HostError) as error, database.questions():
        raise refused
    assert hint in (error.value.hint or "")
    assert (MOVE_AWAY in (error.value.hint or "")) == (hint == MOVE_AWAY)
