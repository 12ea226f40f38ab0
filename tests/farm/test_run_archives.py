"""Run directories of another host, by way of the store."""

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from postgres_server import PostgresServer, lab_in
from records_made import plan, planned_run, run, trial

from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.errors import IntegrityError
from labctl.farm.run_archives import RunArchives, pack, unpack
from labctl.farm.store import lab_store
from labctl.records.run import RunEnd
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

RUN = "20260728T100000Z-q2-aaaaaa"


@pytest.fixture
def hosts(postgres: PostgresServer, tmp_path: Path) -> tuple[Path, Path]:
    """Two hosts of one lab that share a store; the second has measured a run."""
    name = postgres.new_lab()
    folders = [lab_in(postgres, tmp_path / host, name) for host in ("here", "there")]
    for folder in folders:
        with (folder.parent / "devices.yaml").open("a") as file:
            file.write(f"store: {tmp_path / 'store'}\n")
    made = planned_run(folders[1], run(RUN), plan())
    made.add(trial(1))
    made.finish(RunEnd.model_validate({"state": "finished", "finished": trial(1).finished}))
    RunRepository(folders[1]).query()
    return folders[0], folders[1]


def archives(runs: Path) -> RunArchives:
    lab = find_lab(runs.parent, TRANSPORTS)
    store = lab_store(lab)
    assert store is not None
    return RunArchives(store, lab_state(lab), runs)


def test_a_run_of_another_host_is_fetched_when_it_is_named(
    hosts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = hosts
    assert [found.path.name for found in archives(there).missing()] == [RUN]
    archives(there).put(RUN)
    assert archives(there).missing() == []
    assert run_cli(["--lab", str(here.parent), "show", "aaaaaa"]) == 0
    shown = capsys.readouterr()
    assert RUN in shown.out
    assert f"run {RUN} of host h is here, from the shared store" in shown.err
    assert [t.number for t in RunDirectory(here / RUN).trials()] == [1]
    assert run_cli(["--lab", str(here.parent), "report", RUN]) == 0
    assert "of host" not in capsys.readouterr().err  # it was fetched once
    assert archives(here).missing() == []  # a copy is nobody's own
    assert sorted(path.name for path in here.iterdir() if path.name.startswith(".")) == []


def test_a_host_without_runs_is_told_where_the_newest_is(
    hosts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["report"], ["show", "latest"]):
        assert run_cli(["--lab", str(hosts[0].parent), *command]) == 2
        told = capsys.readouterr().err
        assert "no run is on this host" in told
        assert f"its newest is {RUN}, of host h" in told


def test_a_run_that_went_on_is_fetched_again(hosts: tuple[Path, Path]) -> None:
    here, there = hosts
    archives(there).put(RUN)
    assert archives(here).fetch(RUN)
    (there / RUN / "annotations.json").write_text("{}")
    archives(there).put(RUN)
    assert archives(here).fetch(RUN)
    assert (here / RUN / "annotations.json").read_text() == "{}"


def test_an_exchanged_archive_is_refused(hosts: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = hosts
    archives(there).put(RUN)
    (stored,) = (path for path in (tmp_path / "store").rglob("*") if path.is_file())
    stored.write_bytes(os.urandom(stored.stat().st_size))
    with pytest.raises(IntegrityError, match="returned wrong bytes"):
        archives(here).fetch(RUN)
    assert not (here / RUN).exists()


def test_the_same_directory_is_the_same_archive(hosts: tuple[Path, Path], tmp_path: Path) -> None:
    directory = hosts[1] / RUN
    pack(directory, tmp_path / "one")
    shutil.copytree(directory, tmp_path / "copy")
    pack(tmp_path / "copy", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("name", ["../outside", "/outside", "link"])
def test_an_archive_leaves_its_folder_alone(name: str, tmp_path: Path) -> None:
    member = tarfile.TarInfo(name)
    if name == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "bad", "w:gz") as tar:
        tar.addfile(member, io.BytesIO())
    if name == "/outside":  # it is taken for a name below the folder
        unpack(tmp_path / "bad", tmp_path / "made")
        assert (tmp_path / "made" / "outside").is_file()
    else:
        with pytest.raises(IntegrityError):
            unpack(tmp_path / "bad", tmp_path / "made")
    assert not (tmp_path / "outside").exists()
