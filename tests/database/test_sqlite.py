"""A database in a file: which file it is, and what is said of one that cannot be used."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from labctl.database.sqlite import SqliteDatabase, _Connection, _Connections
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


def test_a_backup_that_was_copied_into_the_file_is_not_taken_for_what_was_there(
    database: SqliteDatabase,
) -> None:
    write(database, "old")
    backup = database.path.read_bytes()
    write(database, "lost")
    assert names(database) == ["old", "lost"]
    database.path.write_bytes(backup)
    with closing(sqlite3.connect(database.path)) as other, other:
        other.execute("INSERT INTO board VALUES ('theirs')")  # as many changes as before
    write(database, "new")
    assert names(database) == ["old", "theirs", "new"]


def test_another_process_changes_the_tables(database: SqliteDatabase) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    other = sqlite3.connect(database.path)
    other.execute("ALTER TABLE board ADD COLUMN note TEXT")
    other.execute("INSERT INTO board VALUES ('theirs', 'new')")
    other.commit()
    other.close()
    with database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO board VALUES ('ours', 'too')")
    assert names(database) == ["old", "theirs", "ours"]
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


@pytest.fixture
def openers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process of each connection that is opened."""
    found: list[int] = []
    connect = sqlite3.connect

    def counted(*given: Any, **named: Any) -> sqlite3.Connection:
        found.append(os.getpid())
        return connect(*given, **named)

    monkeypatch.setattr(sqlite3, "connect", counted)
    return found


def test_a_forked_process_uses_connections_of_its_own(
    database: SqliteDatabase, openers: list[int]
) -> None:
    write(database, "old")
    openers.clear()
    assert names(database) == ["old"]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            write(database, "theirs")
            status = 0 if openers[1:] == [os.getpid()] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(database, "ours")
    assert names(database) == ["old", "theirs", "ours"]
    assert openers == [os.getpid()]


@pytest.mark.parametrize("use", [write, lambda database, _name: names(database)])
def test_a_connection_is_not_used_again_after_an_error(
    database: SqliteDatabase, openers: list[int], use: Callable[[SqliteDatabase, str], object]
) -> None:
    write(database, "old")
    openers.clear()
    assert names(database) == ["old"]
    database.path.write_bytes(good := database.path.read_bytes())
    database.path.write_bytes(b"scribble " * 2000)
    with pytest.raises(HostError):
        use(database, "lost")
    assert len(openers) == 1
    database.path.write_bytes(good)
    use(database, "new")
    assert len(openers) == 2


def test_what_an_interruption_left_open_is_not_used_again(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database, "old")
    seen: list[list[str]] = []
    interrupted_one: list[object] = []
    give = _Connections.give

    def ask_at_once(of: _Connections, connection: _Connection) -> None:
        give(of, connection)
        if connection is interrupted_one[0] and not seen:
            seen.append([])
            seen[0] = names(database)

    def interrupted() -> None:
        with database.writing() as connection:
            connection.exec_driver_sql("INSERT INTO board VALUES ('half')")
            interrupted_one.append(connection.connection.dbapi_connection)
            monkeypatch.setattr(_Connections, "give", ask_at_once)
            monkeypatch.setattr(connection.dialect, "do_execute", interrupt)
            connection.exec_driver_sql("INSERT INTO board VALUES ('lost')")

    def interrupt(*_words: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    monkeypatch.undo()
    assert seen == [["old"]]
    write(database, "new")
    assert names(database) == ["old", "new"]


def test_garbage_may_be_collected_while_a_file_is_looked_up(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a repository that goes with its passing index."""
    write(database, "old")
    other = SqliteDatabase(tmp_path / "other.sqlite", "another", MOVE_AWAY)
    made = _Connections.__init__

    def collected(of: _Connections, path: Path, lock_seconds: float) -> None:
        database.close()
        made(of, path, lock_seconds)

    monkeypatch.setattr(_Connections, "__init__", collected)
    asked = threading.Thread(target=write, args=(other, "new"), daemon=True)
    asked.start()
    asked.join(30)
    assert not asked.is_alive()


LOCKED = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""


def test_who_waits_for_its_turn_leaves_the_locks_of_the_writer_alone(
    database: SqliteDatabase,
) -> None:
    """A process loses its locks on a file when it closes any descriptor of it."""
    write(database, "old")
    hurried = SqliteDatabase(database.path, "the lab's state", MOVE_AWAY, lock_seconds=0.1)
    with database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO board VALUES ('new')")
        with pytest.raises(HostError, match="locked"):
            write(hurried, "too early")
        assert names(hurried) == ["old"]
        hurried.close()
        words = [sys.executable, "-c", LOCKED, str(database.path)]
        other = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        assert other.stdout == "database is locked\n"
    assert names(database) == ["old", "new"]


def open_below(folder: Path) -> list[str]:
    """List the open files of this process below a folder, the removed ones too."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return [name for name in found if name.startswith(f"{folder}/")]


def test_a_file_is_let_go(database: SqliteDatabase, tmp_path: Path) -> None:
    write(database, "old")
    assert names(database) == ["old"]
    assert len(open_below(tmp_path)) == 1
    with database.questions() as ask:
        database.close()
        assert ask("SELECT name FROM board", {}) == [("old",)]
    assert open_below(tmp_path) == []
    write(database, "new")
    database.discard()
    assert open_below(tmp_path) == []


def test_few_of_many_files_are_kept_open(tmp_path: Path) -> None:
    for number in range(40):
        write(SqliteDatabase(tmp_path / f"{number}.sqlite", "the index", MOVE_AWAY), "old")
    assert len(open_below(tmp_path)) <= 16


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
