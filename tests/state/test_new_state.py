"""A new state in a file is there whole, or not at all; an empty file is not a new lab."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from labctl.cli.root import run_cli
from labctl.config.lab import Lab, LabFile
from labctl.database import sqlite
from labctl.database.base import DamagedDatabase, patience
from labctl.retry import wait_until
from labctl.runs.record.repository import RunRepository
from labctl.state.state import LabState, lab_state

TOGETHER = """
import sys, time
from pathlib import Path
from labctl.config.lab import Lab, LabFile
from labctl.state.state import lab_state
import labctl.state.baselines, sqlalchemy
root, name = Path(sys.argv[1]), sys.argv[2]
(root / f"ready-{name}").touch()
while not (root / "go").exists():
    time.sleep(0.001)
lab_state(LabFile(root, Lab(boards={}))).baselines.set(name, ["run-1"])
"""


def state_in(root: Path) -> LabState:
    return lab_state(LabFile(root, Lab(boards={})))


def names(root: Path) -> list[str]:
    return [one.name for one in state_in(root).baselines.list()]


def make_and_die(root: Path, step: int) -> None:
    """Make a state; die at a step that changes, or is about to change, something on the disk."""
    left = [step]

    def dying(of: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return of(*given, **named)

        return called

    class Connection(sqlite._Connection):
        execute = dying(sqlite3.Connection.execute)
        cursor = dying(sqlite3.Connection.cursor)
        commit = dying(sqlite3.Connection.commit)

    sqlite._Connection = Connection  # type: ignore[misc]
    sqlite.sync_directory = dying(sqlite.sync_directory)  # type: ignore[attr-defined]
    os.link = dying(os.link)
    state_in(root).baselines.set("good", ["run-1"])


def test_a_kill_at_any_step_leaves_no_state_or_a_whole_one(tmp_path: Path) -> None:
    ends = []
    for step in [*range(1, 9), *range(9, 500, 3)]:
        root, child = tmp_path / str(step), os.fork()
        if child == 0:
            try:
                make_and_die(root, step)
            finally:
                os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        there = (root / "labctl.sqlite").exists()
        assert names(root) == (["good"] if there else [])
        state_in(root).baselines.set("next", ["run-2"])
        assert names(root) == (["good", "next"] if there else ["next"])
        if ends[-1] == 0:
            break
    assert ends[-1] == 0
    assert there
    assert len(ends) > 9


def test_processes_that_make_a_state_at_once_lose_nothing(tmp_path: Path) -> None:
    several = [f"b{number}" for number in range(6)]
    made = [
        subprocess.Popen([sys.executable, "-c", TOGETHER, str(tmp_path), name]) for name in several
    ]
    ready = [tmp_path / f"ready-{name}" for name in several]
    assert wait_until(lambda: all(one.exists() for one in ready), timeout=120, interval=0.05)
    (tmp_path / "go").touch()
    assert [one.wait(120) for one in made] == [0] * len(several)
    assert names(tmp_path) == several
    assert list(tmp_path.glob(".labctl-*")) == []


def test_threads_that_make_a_state_at_once_lose_nothing(tmp_path: Path) -> None:
    several = [f"b{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: state_in(tmp_path).baselines.set(name, ["run-1"]), several))
    assert names(tmp_path) == several


def empty(path: Path) -> None:
    path.touch()


def header_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE a (b); DROP TABLE a;")


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE a (b)")


@pytest.mark.parametrize("make", [empty, header_alone, of_another_program])
def test_an_empty_file_is_no_new_lab(tmp_path: Path, make: object) -> None:
    make(tmp_path / "labctl.sqlite")  # type: ignore[operator]
    before = (tmp_path / "labctl.sqlite").read_bytes()
    for use in (
        lambda: state_in(tmp_path).holds.hold("rk1", by="ann@desk"),
        state_in(tmp_path).baselines.list,
        lambda: state_in(tmp_path).leases.acquire("rk1", purpose="test"),
        state_in(tmp_path).backup,
    ):
        with pytest.raises(DamagedDatabase) as refused:
            use()
        assert f"remove {tmp_path / 'labctl.sqlite'}:" in (refused.value.hint or "")
    assert (tmp_path / "labctl.sqlite").read_bytes() == before


def test_an_empty_file_is_replaced_by_the_backup_that_the_hint_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices.yaml").write_text("lab: a\nboards: {}\n")
    state_in(tmp_path).baselines.set("good", ["run-1"])
    backup = state_in(tmp_path).backup()
    (tmp_path / "labctl.sqlite").write_bytes(b"")
    assert run_cli(["--lab", str(tmp_path), "baseline", "list", "--json"]) == 3
    told = json.loads(capsys.readouterr().err)
    assert told["hint"] == f"restore the last backup: `labctl state restore {backup}`"
    assert run_cli(["--lab", str(tmp_path), "state", "restore", "--yes", str(backup)]) == 0
    assert names(tmp_path) == ["good"]


def test_a_journal_of_a_file_that_is_gone_spoils_no_new_state(tmp_path: Path) -> None:
    (tmp_path / "labctl.sqlite-journal").write_bytes(b"old pages")
    with pytest.raises(DamagedDatabase, match="belongs to a file that is gone") as refused:
        state_in(tmp_path).baselines.set("good", ["run-1"])
    assert "labctl.sqlite-journal" in (refused.value.hint or "")
    (tmp_path / "labctl.sqlite-journal").unlink()
    state_in(tmp_path).baselines.set("good", ["run-1"])


def test_an_empty_index_is_made_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "index.sqlite").touch()
    assert RunRepository(runs).query() == []
    (runs / "index.sqlite").unlink()
    (runs / "index.sqlite-journal").write_bytes(b"old pages")
    (tmp_path / "boards").mkdir()
    assert RunRepository(runs).probes() == []


def test_where_no_second_name_can_be_given_the_state_is_made_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    state_in(tmp_path).baselines.set("good", ["run-1"])
    assert names(tmp_path) == ["good"]


def test_a_state_behind_a_link_is_made_where_the_link_leads(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "shared").mkdir()
    link = tmp_path / "lab" / "labctl.sqlite"
    link.symlink_to(tmp_path / "shared" / "state.sqlite")
    with patience(0.0):
        state = state_in(tmp_path / "lab")
        state.holds.hold("rk1", by="ann")
    assert link.is_symlink()
    assert [one.name for one in (tmp_path / "shared").iterdir() if ".sqlite-" not in one.name] == [
        "state.sqlite"
    ]
    assert [one.board for one in state.reservations.in_force()] == ["rk1"]
