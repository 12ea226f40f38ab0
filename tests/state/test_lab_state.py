"""The lab's state, on SQLite and on PostgreSQL: kept, backed up, brought back."""

import errno
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import Connection, create_engine

from labctl.config.lab import Lab, LabFile
from labctl.database.base import patience
from labctl.errors import ConfigError, HostError, ToolMissing
from labctl.state.sql_tables import make_tables
from labctl.state.state import LabState, lab_state

RUN, OTHER = "20261120T223000Z-q2-abcdef", "20261121T223000Z-q2-123456"
#: A password whose appearance anywhere is a failure.
SECRET = "hunter2"


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    if request.param == "sqlite":
        return LabFile(tmp_path, Lab(boards={}))
    server: PostgresServer = request.getfixturevalue("postgres")
    return LabFile(tmp_path, Lab(lab=server.new_lab(), database=server.url, boards={}))


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def backups(lab: LabFile) -> list[Path]:
    return sorted((lab.root / "backups").glob("*.sqlite"))


def names(state: LabState) -> list[str]:
    return [one.name for one in state.baselines.list()]


def test_baselines_are_kept_replaced_and_removed(lab: LabFile, state: LabState) -> None:
    assert state.baselines.list() == []
    assert not (lab.root / "labctl.sqlite").exists()
    first = state.baselines.set("release-1.2", [OTHER, RUN, OTHER], variant="q8", note="ü 'x'")
    assert lab_state(lab).baselines.get("release-1.2") == first
    assert first.runs == (OTHER, RUN)
    assert (first.variant, first.note) == ("q8", "ü 'x'")
    assert "@" in first.set_by
    state.baselines.set("a", [RUN])
    second = state.baselines.set("release-1.2", [RUN])
    assert state.baselines.get("release-1.2") == second
    assert (second.runs, second.variant, second.note) == ((RUN,), None, None)
    assert names(state) == ["a", "release-1.2"]
    state.baselines.remove("a")
    assert state.baselines.get("a") is None


def test_an_unknown_baseline_is_named_with_the_nearest(state: LabState) -> None:
    with pytest.raises(ConfigError, match="no baseline 'x'"):
        state.baselines.find("x")
    state.baselines.set("nightly", [RUN])
    with pytest.raises(ConfigError, match="did you mean 'nightly'"):
        state.baselines.remove("nigthly")
    assert state.baselines.find("nightly").runs == (RUN,)


@pytest.mark.parametrize("name", ["latest", "", "-x", "a b", "a/b", "x" * 64])
def test_names_that_commands_cannot_take_are_refused(tmp_path: Path, name: str) -> None:
    state = lab_state(LabFile(tmp_path, Lab(boards={})))
    with pytest.raises(ConfigError, match="not a name for a baseline"):
        state.baselines.set(name, [RUN])
    assert list(tmp_path.iterdir()) == []


def test_the_first_change_of_a_day_is_preceded_by_a_backup(lab: LabFile, state: LabState) -> None:
    state.baselines.set("a", [RUN])
    assert backups(lab) == []  # there was nothing to back up
    state.baselines.set("b", [RUN, OTHER])
    state.baselines.remove("b")
    (made,) = backups(lab)
    assert made.name.startswith("labctl-20")
    state.restore(made)
    assert names(state) == ["a"]
    assert len(backups(lab)) == 2  # what was replaced


def test_a_backup_is_brought_back_whole(lab: LabFile, state: LabState) -> None:
    with pytest.raises(ConfigError, match="nothing to back up"):
        state.backup()
    kept = state.baselines.set("a", [RUN, OTHER], note="n")
    copy = state.backup(lab.root / "copy.sqlite")
    with pytest.raises(ConfigError, match="exists"):
        state.backup(copy)
    state.baselines.remove("a")
    state.restore(copy)
    assert state.baselines.list() == [kept]


def test_a_backup_brings_no_revoked_token_back(lab: LabFile, state: LabState) -> None:
    stolen, own = (state.tokens.add(name, "admin", by="ann@desk") for name in ("ann", "ben"))
    copy = state.backup(lab.root / "copy.sqlite")
    state.tokens.revoke("ann", by="ben@desk")
    new = state.tokens.add("ann", "run", by="ben@desk")
    after = state.backup(lab.root / "after.sqlite")
    state.restore(copy)
    assert state.tokens.find(stolen) is None
    assert state.tokens.find(own) is not None
    assert [one.action for one in state.audit.list(subject="ann")] == ["token add", "token revoke"]
    state.restore(copy)
    assert state.tokens.find(stolen) is None
    state.tokens.revoke("ben", by="ann@desk")
    state.restore(after)
    assert state.tokens.find(own) is None
    assert state.tokens.find(new) is not None


def test_no_state_is_replaced_under_those_who_work_with_it(lab: LabFile, state: LabState) -> None:
    state.baselines.set("a", [RUN])
    copy = state.backup(lab.root / "copy.sqlite")
    state.workers.give_sign("lab2:7:ab", "lab2", ["rk1"], "1")
    state.leases.acquire("rk2", purpose="run q2", holder="ann@desk")
    state.baselines.remove("a")
    with pytest.raises(ConfigError) as refused:
        state.restore(copy)
    for word in ("worker lab2:7:ab on lab2 is alive", "rk2 is in use by ann@desk: run q2"):
        assert word in refused.value.message
    assert "--force" in str(refused.value.hint)
    assert names(state) == []
    state.restore(copy, force=True)
    assert names(state) == ["a"]


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_what_is_no_backup_changes_nothing(lab: LabFile, state: LabState, content: bytes) -> None:
    state.baselines.set("a", [RUN])
    (lab.root / "x").write_bytes(content)
    with pytest.raises(ConfigError, match=r"x is not a backup of a lab's state"):
        state.restore(lab.root / "x")
    with pytest.raises(ConfigError, match="no file"):
        state.restore(lab.root / "y")
    assert names(state) == ["a"]


def test_a_state_without_a_version_is_damaged(lab: LabFile, state: LabState) -> None:
    state.baselines.set("a", [RUN])
    copy = state.backup(lab.root / "copy.sqlite")
    with sqlite3.connect(copy) as db:
        db.execute("DELETE FROM state_version")
    db.close()
    with pytest.raises(ConfigError, match=r"copy\.sqlite is not a backup .* it is damaged"):
        state.restore(copy)
    with state.changing() as connection:
        connection.exec_driver_sql("DELETE FROM state_version")
    for use in (state.baselines.list, lambda: state.baselines.set("b", [RUN]), state.backup):
        with pytest.raises(HostError, match="its table state_version holds no version"):
            use()


def test_a_folder_for_backups_that_cannot_be_written_is_named(
    lab: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.baselines.set("a", [RUN])

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(HostError, match=r"cannot write .*backups/labctl-.*: Read-only"):
        state.baselines.set("b", [RUN])


def test_the_tables_of_a_newer_labctl_are_refused(lab: LabFile, state: LabState) -> None:
    state.baselines.set("a", [RUN])
    before = state.backup(lab.root / "old.sqlite")
    with state.changing() as connection:
        connection.exec_driver_sql("UPDATE state_version SET version = 2")
    known = backups(lab)
    for use in (
        state.baselines.list,
        lambda: state.baselines.set("b", [RUN]),
        lambda: state.backup(lab.root / "lossy.sqlite"),
        lambda: state.restore(before),
    ):
        with pytest.raises(ConfigError, match="a newer labctl: state_version is 2") as refused:
            use()
        assert refused.value.hint == "update labctl on this host"
    assert backups(lab) == known
    assert not (lab.root / "lossy.sqlite").exists()


def test_the_backup_of_a_newer_labctl_is_refused(lab: LabFile, state: LabState) -> None:
    state.baselines.set("a", [RUN])
    newer = state.backup(lab.root / "newer.sqlite")
    with closing(sqlite3.connect(newer)) as db, db:
        db.execute("UPDATE state_version SET version = 2")
    with pytest.raises(ConfigError, match="a newer labctl: state_version is 2"):
        state.restore(newer)
    assert names(state) == ["a"]


def test_tables_that_cannot_all_be_made_leave_none(
    lab: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(connection: Connection) -> None:
        make_tables(connection)
        connection.exec_driver_sql("no SQL")

    with monkeypatch.context() as patch:
        patch.setattr("labctl.state.sql_tables.make_tables", make)
        with pytest.raises(HostError, match="cannot use"):
            state.baselines.set("a", [RUN])
    assert names(state) == []
    state.baselines.set("b", [RUN])
    assert names(state) == ["b"]


WRITES = """
import sys
from pathlib import Path
from labctl.config.lab import Lab, LabFile
from labctl.state.state import lab_state
root, name, url, first = sys.argv[1:]
lab = LabFile(Path(root), Lab(lab=name or None, database=url or None, boards={}))
for number in range(3):
    lab_state(lab).baselines.set(f"b{first}-{number}", ["r1", "r2"])
"""


def test_writers_of_several_processes_lose_nothing(lab: LabFile) -> None:
    words = [str(lab.root), lab.lab.lab or "", lab.lab.database or ""]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITES, *words, str(first)]) for first in range(2)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    found = lab_state(lab).baselines.list()
    assert len(found) == 6
    assert {one.runs for one in found} == {("r1", "r2")}


def test_labs_that_share_a_database_do_not_see_each_other(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    one, other = (
        lab_state(LabFile(tmp_path, Lab(lab=name, database=postgres.url, boards={})))
        for name in (postgres.new_lab(), postgres.new_lab())
    )
    one.baselines.set("a", [RUN])
    assert names(other) == []
    other.baselines.set("b", [RUN])
    assert (names(one), names(other)) == (["a"], ["b"])


def test_the_environment_names_the_database_and_no_message_its_password(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LabFile(tmp_path, Lab(lab=postgres.new_lab(), boards={}))
    monkeypatch.setenv("LABCTL_DATABASE", postgres.url)
    lab_state(lab).baselines.set("a", [RUN])
    assert not (tmp_path / "labctl.sqlite").exists()
    wrong = postgres.url.replace("labctl@/postgres", f"me:{SECRET}@/other")
    monkeypatch.setenv("LABCTL_DATABASE", wrong)
    with pytest.raises(
        ConfigError, match=r"cannot use the database postgresql://me@/other"
    ) as lost:
        lab_state(lab).baselines.list()
    assert SECRET not in f"{lost.value} {lost.value.hint} {lost.value.__cause__}"
    monkeypatch.setenv("LABCTL_DATABASE", f"postgresql://me:{SECRET}@h:99x9/db")
    with pytest.raises(ConfigError, match="LABCTL_DATABASE has to be a URL") as refused:
        lab_state(lab)
    assert SECRET not in str(refused.value)


def test_a_user_without_rights_learns_which(postgres: PostgresServer, tmp_path: Path) -> None:
    admin = lab_state(
        LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))
    )
    with admin.changing() as connection:
        connection.exec_driver_sql(f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
    url = postgres.url.replace("labctl@", f"guest:{SECRET}@")
    guest = lab_state(LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=url, boards={})))
    assert guest.baselines.list() == []
    with pytest.raises(HostError, match="permission denied for database postgres") as refused:
        guest.baselines.set("a", [RUN])
    assert "GRANT CREATE ON DATABASE postgres" in (refused.value.hint or "")
    assert SECRET not in str(refused.value)


def test_a_server_that_is_not_there_and_a_missing_package_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://me:{SECRET}@127.0.0.1:1/db"
    lab = LabFile(tmp_path, Lab(lab="x", database=url, boards={}))
    assert SECRET not in repr(lab)
    with pytest.raises(HostError, match="connection") as lost, patience(0.0):
        lab_state(lab).baselines.list()
    assert "LABCTL_DATABASE" in (lost.value.hint or "")
    assert SECRET not in str(lost.value)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ToolMissing, match="needs the Python package 'psycopg'") as missing:
        lab_state(lab).baselines.list()
    assert missing.value.hint == "pip install 'labctl-boards[postgresql]'"


def test_a_lab_in_a_database_needs_a_name(tmp_path: Path) -> None:
    for lab in (Lab(database="postgresql:///db", boards={}), Lab(lab="x" * 57, boards={})):
        found = LabFile(tmp_path, lab.model_copy(update={"database": "postgresql:///db"}))
        with pytest.raises(ConfigError, match="needs its own name"):
            lab_state(found)


def test_a_process_compiles_the_statements_of_a_file_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []

    def counted(*words: Any, **options: Any) -> Any:
        made.append(str(words[0]))
        return create_engine(*words, **options)

    monkeypatch.setattr("sqlalchemy.create_engine", counted)
    for _job in range(3):
        state = lab_state(LabFile(tmp_path, Lab(boards={})))
        state.leases.release(state.leases.acquire("rk1", purpose="run a"))
    assert len(made) == 2  # the file was made under another name
