"""One PostgreSQL under the runs of several hosts: nobody loses another's, and all find all."""

import shutil
import signal
from pathlib import Path

import pytest
from postgres_server import PostgresServer, lab_in, rows
from records_made import model, plan, planned_run, probe, recorded_run, run, trial
from test_repository import FIRST, SECOND

from labctl.board.probe_files import save_probe
from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.database.base import patience
from labctl.database.postgresql import LINK, PostgresDatabase, Timeouts
from labctl.errors import ConfigError, HostError
from labctl.index.filters import Filter
from labctl.index.index import Index
from labctl.runs.record.annotations import add_tags
from labctl.runs.record.lookup import find_run
from labctl.runs.record.repository import RunRepository, note_in_index
from labctl.transport.built_in import TRANSPORTS


@pytest.fixture
def hosts(postgres: PostgresServer, tmp_path: Path) -> tuple[Path, Path]:
    """Folders of runs on two hosts of one lab; each has measured one run."""
    name = postgres.new_lab()
    folders = [lab_in(postgres, tmp_path / host, name) for host in ("here", "there")]
    for folder, run_id in zip(folders, (FIRST, SECOND), strict=True):
        planned_run(folder, run(run_id), plan()).add(trial(1))
    return folders[0], folders[1]


def ids(runs: Path) -> list[str]:
    return [one.run.id for one in RunRepository(runs).query()]


def change(runs: Path, statement: str) -> None:
    with RunRepository(runs)._index._database.writing() as connection:
        connection.exec_driver_sql(statement)


def test_each_host_finds_all_runs_and_removes_only_its_own(hosts: tuple[Path, Path]) -> None:
    here, there = hosts
    assert ids(here) == [FIRST]
    assert ids(there) == [SECOND, FIRST]
    assert ids(here) == [SECOND, FIRST]
    assert [one.run.id for one in RunRepository(here).trials()] == [FIRST, SECOND]
    (there / SECOND).rename(there / "moved")
    assert ids(here) == [SECOND, FIRST]  # nobody who knows has looked
    assert ids(there) == [FIRST]
    assert ids(here) == [FIRST]


def test_runs_of_all_hosts_are_listed_by_time_and_a_hosts_clock_does_not_count(
    hosts: tuple[Path, Path],
) -> None:
    here, there = hosts
    ahead, later, last = (
        f"{time}T000000Z-q2-00000{n}" for n, time in enumerate(("20461122", "20261122", "20261124"))
    )
    recorded_run(here, ahead)
    recorded_run(there, middle := "20261123T000000Z-q2-dddddd")
    assert ids(there) == [middle, SECOND]
    assert ids(here) == [ahead, middle, SECOND, FIRST]  # by time
    recorded_run(here, later)
    recorded_run(here, last)
    for runs in (here, there):
        assert ids(runs)[:4] == [last, middle, later, ahead]  # it was recorded before `later`
        found = {one.run.id: one.is_ahead for one in RunRepository(runs).query()}
        assert [run for run, is_ahead in found.items() if is_ahead] == [ahead]
    assert find_run(here, "latest").path.name == last
    assert find_run(there, "latest").path.name == middle


def test_a_host_without_runs_finds_those_of_others(
    hosts: tuple[Path, Path], tmp_path: Path
) -> None:
    ids(hosts[0])
    (tmp_path / "third").mkdir()
    shutil.copy(hosts[0].parent / "devices.yaml", tmp_path / "third")
    assert ids(tmp_path / "third" / "runs") == [FIRST]
    assert not (tmp_path / "third" / "runs").exists()


def test_a_run_in_two_folders_is_one_run(hosts: tuple[Path, Path]) -> None:
    here, there = hosts
    ids(here)
    shutil.copytree(here / FIRST, there / FIRST)
    assert ids(there) == ids(here) == [SECOND, FIRST]
    copy = find_run(there, FIRST)
    add_tags(copy, ["seen-there"])
    RunRepository(there).add(copy)
    for folder in (here, there, here):
        assert RunRepository(folder).query(Filter(tags=("seen-there",)))[0].run.id == FIRST
    shutil.rmtree(there / FIRST)
    assert ids(there) == [SECOND]
    assert ids(here) == [SECOND, FIRST]


def test_probes_of_hosts_without_runs_are_kept_apart(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = postgres.new_lab()
    here, there = (lab_in(postgres, tmp_path / host, name) for host in ("here", "there"))
    first = save_probe(here.parent, probe())
    save_probe(there.parent, probe(board="rk2"))
    for folder in (here, there, here, there):
        found = RunRepository(folder).probes()
    assert [one.board for one in found] == ["rk1", "rk2"]
    first.unlink()
    assert [one.board for one in RunRepository(there).probes()] == ["rk1", "rk2"]
    assert [one.board for one in RunRepository(here).probes()] == ["rk2"]


def test_a_run_of_another_host_is_not_called_unknown(hosts: tuple[Path, Path]) -> None:
    here, there = hosts
    ids(there)
    with pytest.raises(ConfigError, match=f"run {SECOND} is not on this host") as refused:
        find_run(here, SECOND[-6:])
    assert refused.value.hint == "host h measured it: use it there, or copy its directory to here"
    with pytest.raises(ConfigError, match="no run 'other'"):
        find_run(here, "other")


def test_a_folder_that_was_moved_keeps_its_runs(hosts: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = hosts
    assert [ids(here), ids(there)] == [[FIRST], [SECOND, FIRST]]
    here.parent.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "runs"
    find_run(moved, FIRST).add(trial(2))
    assert RunRepository(moved).query()[1].run.trials_recorded == 2


def test_tables_of_another_version_are_made_again_or_left_alone(
    hosts: tuple[Path, Path],
) -> None:
    here, there = hosts
    ids(here)
    ids(there)
    change(here, "UPDATE index_version SET version = 'another'")
    change(here, "ALTER TABLE run DROP COLUMN recipe")
    said: list[str] = []
    assert [one.run.id for one in RunRepository(here, said.append).query()] == [FIRST]
    assert said == ["the index is of another version of labctl: made again from 1 run"]
    assert ids(there) == [SECOND, FIRST]
    change(here, "DROP TABLE trial")
    assert len(RunRepository(here, said.append).trials()) == 1
    assert said[1] == "the index of runs was damaged: made again from the run directories"
    change(here, "UPDATE index_version SET version = 'another', labctl = '99.0'")
    with pytest.raises(ConfigError, match=r"a newer labctl, 99\.0, made the index"):
        RunRepository(here).query()
    with pytest.raises(ConfigError, match=r"a newer labctl, 99\.0, made the index"):
        RunRepository(here).add(find_run(here, FIRST))


def test_what_postgresql_cannot_hold_is_held_otherwise(hosts: tuple[Path, Path]) -> None:
    here, _ = hosts
    prompt = "ü" * 5000
    odd = planned_run(here, run("20261122T000000Z-q2-fedcba", models=(model(name="a\0b"),)), plan())
    odd.add(trial(1, parameters={"prompt": prompt}))
    wanted = Filter(parameters=(("prompt", prompt),))
    (found,) = RunRepository(here).query(wanted)
    assert found.models[0].name == "a\N{REPLACEMENT CHARACTER}b"
    assert RunRepository(here).trials(wanted)[0].trial.parameters == {"prompt": prompt}


def test_a_writer_waits_for_another_and_not_for_ever(hosts: tuple[Path, Path]) -> None:
    here, there = hosts
    ids(here)
    lab = find_lab(here, TRANSPORTS)
    assert lab.database is not None
    impatient = PostgresDatabase(lab.database, lab.name, lab.root, Timeouts(lock=0.2))
    with RunRepository(there)._index._database.writing():
        with patience(0.0), pytest.raises(HostError, match="canceling statement due to lock"):
            Index(impatient).remove([FIRST])
        assert ids(here) == [FIRST]  # who reads waits for nobody


def test_a_server_that_stands_still_or_ends_a_connection_is_survived(
    hosts: tuple[Path, Path], postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = hosts
    before = RunRepository(here)
    assert len(before.query()) == 1
    monkeypatch.setitem(LINK, "connect_timeout", 2)
    postgres.process.send_signal(signal.SIGSTOP)
    try:
        with patience(0.0), pytest.raises(HostError, match="connection timeout expired"):
            ids(there)
    finally:
        postgres.process.send_signal(signal.SIGCONT)
    ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    others = "pid <> pg_backend_pid() AND application_name = 'labctl'"
    assert rows(there, f"{ended} WHERE {others}") != [(0,)]
    assert len(before.query()) == 1


def test_a_run_ends_well_though_its_index_cannot_take_it(hosts: tuple[Path, Path]) -> None:
    here, _ = hosts
    ids(here)
    change(here, "UPDATE index_version SET version = 'another', labctl = '99.0'")
    said: list[str] = []
    note_in_index(find_run(here, FIRST), said.append)
    assert len(said) == 1
    assert "a newer labctl, 99.0, made the index" in said[0]


def test_a_server_that_does_not_answer_is_trouble_of_the_infrastructure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "lab: x\ndatabase: postgresql://me:hunter2@127.0.0.1:1/db\nboards: {}\n"
    (tmp_path / "devices.yaml").write_text(text)
    planned_run(tmp_path / "runs", run(FIRST), plan())
    for words in (["runs"], ["runs", "--json"], ["baseline", "list"], ["show", "latest"]):
        with patience(0.0):
            assert run_cli(["--lab", str(tmp_path), *words]) == 3
        said = "".join(capsys.readouterr())
        assert "postgresql://me@127.0.0.1:1/db" in said
        assert "LABCTL_DATABASE" in said
        assert "hunter2" not in said
    with patience(0.0), pytest.raises(HostError):
        RunRepository(tmp_path / "runs").tags()
