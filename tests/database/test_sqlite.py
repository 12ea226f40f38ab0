"""A database in a file: which file it is, and what is said of one that cannot be used."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from labctl.database.sqlite import SqliteDatabase
from labctl.errors import HostError

MOVE_AWAY = "if the file is damaged: move it away"


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "labctl.sqlite", "the lab's state", MOVE_AWAY)


def write(database: SqliteDatabase, name: str) -> None:
    with database.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS board (name TEXT)")
        connection.exec_driver_sql("INSERT INTO board VALUES (?)", (name,))


def names(database: SqliteDatabase) -> list[str]:
    return [str(name) for (name,) in database.ask("SELECT name FROM board ORDER BY rowid", {})]


def test_a_file_that_was_replaced_is_read_and_written_anew(
    database: SqliteDatabase, tmp_path: Path
) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    backup = SqliteDatabase(tmp_path / "backup.sqlite", "a backup", MOVE_AWAY)
    write(backup, "restored")
    kept = tmp_path / "kept.sqlite"
    database.path.rename(kept)
    backup.path.rename(database.path)
    assert names(database) == ["restored"]
    write(database, "new")
    assert names(database) == ["restored", "new"]
    assert names(SqliteDatabase(kept, "what was moved away", MOVE_AWAY)) == ["old"]


def test_a_file_that_was_removed_is_made_anew(database: SqliteDatabase) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    database.path.unlink()
    with pytest.raises(HostError, match="unable to open"):
        names(database)
    write(database, "new")
    assert names(database) == ["new"]


def test_a_file_that_others_overwrote_is_seen_and_used_again_once_it_is_mended(
    database: SqliteDatabase,
) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    good = database.path.read_bytes()
    database.path.write_bytes(b"scribble " * 2000)
    with pytest.raises(HostError, match="not a database"):
        names(database)
    with pytest.raises(HostError, match="not a database"):
        write(database, "lost")
    database.path.write_bytes(good)
    write(database, "new")
    assert names(database) == ["old", "new"]


def test_another_process_changes_the_tables(database: SqliteDatabase) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    other = sqlite3.connect(database.path)
    other.execute("ALTER TABLE board ADD COLUMN note TEXT")
    other.execute("INSERT INTO board VALUES ('theirs', 'new')")
    other.commit()
    other.close()
    assert names(database) == ["old", "theirs"]
    write_note = "INSERT INTO board VALUES ('ours', 'too')"
    with database.writing() as connection:
        connection.exec_driver_sql(write_note)
    assert database.ask("SELECT note FROM board WHERE name = 'ours'", {}) == [("too",)]


def test_a_transaction_that_failed_leaves_nothing(database: SqliteDatabase) -> None:
    write(database, "old")

    def fail() -> None:
        with database.writing() as connection:
            connection.exec_driver_sql("INSERT INTO board VALUES ('half')")
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        fail()
    write(database, "new")
    assert names(database) == ["old", "new"]


def test_threads_that_ask_at_once_have_a_connection_each(database: SqliteDatabase) -> None:
    write(database, "old")
    inside, seen = threading.Barrier(12), list[list[tuple[object, ...]]]()

    def ask() -> None:
        with database.questions() as question:
            inside.wait(30)
            seen.append(question("SELECT name FROM board", {}))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [[("old",)]] * 12
    write(database, "new")  # none of them keeps it from being changed


def test_a_forked_process_uses_connections_of_its_own(database: SqliteDatabase) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    child = os.fork()
    if child == 0:
        try:
            write(database, "theirs")
        finally:
            os._exit(0 if names(database) == ["old", "theirs"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(database, "ours")
    assert names(database) == ["old", "theirs", "ours"]


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
    kind: type[sqlite3.DatabaseError], code: int, hint: str, database: SqliteDatabase
) -> None:
    database.path.touch()
    refused = kind("as SQLite says it")
    refused.sqlite_errorcode = code
    with pytest.raises(HostError) as error, database.questions():
        raise refused
    assert hint in (error.value.hint or "")
    assert (MOVE_AWAY in (error.value.hint or "")) == (hint == MOVE_AWAY)
