"""Inputs of a job on a host that lacks them, and what a worker cannot run."""

import shutil
from pathlib import Path

import pytest
from postgres_server import PostgresServer, lab_in

from labctl.config.lab import LabFile, find_lab
from labctl.config.recipe import find_recipe
from labctl.errors import ConfigError, IntegrityError
from labctl.farm.job import FarmJob
from labctl.farm.queue_ledger import QueueLedger, share_inputs
from labctl.farm.run_content import RunContent
from labctl.farm.store import SharedStore
from labctl.runs import read_recipe
from labctl.state import NewJob, lab_state
from labctl.transport.registry import TRANSPORTS

RECIPE = """\
name: sleeping
target: rk3568
engine:
  name: command
  program: {file: tools/sleeper}
  arguments: ["1"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {none: {file: models/any.bin}}
parameters: {tokens: 1}
max_time: 5m
"""


@pytest.fixture
def labs(postgres: PostgresServer, tmp_path: Path) -> tuple[LabFile, LabFile]:
    """A desk with a recipe and its files, and a lab host without any."""
    name = postgres.new_lab()
    desk, host = (lab_in(postgres, tmp_path / one, name).parent for one in ("desk", "host"))
    for folder in ("tools", "models", "recipes"):
        (desk / folder).mkdir()
    (desk / "tools" / "sleeper").write_text("#!/bin/sh\nsleep $1\n")
    (desk / "models" / "any.bin").write_bytes(bytes(1000))
    (desk / "recipes" / "sleeping.yaml").write_text(RECIPE)
    return find_lab(desk, TRANSPORTS), find_lab(host, TRANSPORTS)


def _submitted(desk: LabFile) -> RunContent:
    recipe = read_recipe(find_recipe("sleeping", desk.root), (), lab_root=desk.root)
    content = RunContent.of(recipe, desk.root)
    job = NewJob("sleeping", content.document(), ("rk1",), id="a")
    lab_state(desk).jobs.submit(job)
    return content


def test_a_host_fetches_the_files_of_a_job(labs: tuple[LabFile, LabFile], tmp_path: Path) -> None:
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    share_inputs(desk, store, _submitted(desk))
    content = QueueLedger(host, lab_state(host), store, print).content(FarmJob("a", "a", ("rk1",)))
    content.check(host.root)
    assert (host.root / "models" / "any.bin").read_bytes() == bytes(1000)
    assert (host.root / "tools" / "sleeper").read_text() == "#!/bin/sh\nsleep $1\n"


def test_a_file_that_is_another_one_here_is_refused(
    labs: tuple[LabFile, LabFile], tmp_path: Path
) -> None:
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    share_inputs(desk, store, _submitted(desk))
    shutil.copytree(desk.root / "models", host.root / "models")
    (host.root / "models" / "any.bin").write_bytes(b"another")
    content = QueueLedger(host, lab_state(host), store, print).content(FarmJob("a", "a", ("rk1",)))
    with pytest.raises(ConfigError, match="changed since the job was submitted"):
        content.check(host.root)


def test_a_host_without_a_store_says_which_file_it_lacks(labs: tuple[LabFile, LabFile]) -> None:
    desk, host = labs
    _submitted(desk)
    ledger = QueueLedger(host, lab_state(host), None, print)
    with pytest.raises(ConfigError, match=r"models/any\.bin is not on this host"):
        ledger.content(FarmJob("a", "a", ("rk1",)))


def test_a_job_writes_nothing_outside_the_labs_folder(
    labs: tuple[LabFile, LabFile], tmp_path: Path
) -> None:
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    document = _submitted(desk).document()
    digest = store.put(desk.root / "models" / "any.bin")
    for number, name in enumerate(("../outside", str(tmp_path / "outside"))):
        hostile = {**document, "files": {name: digest}}
        lab_state(desk).jobs.submit(NewJob("bad", hostile, ("rk1",), id=f"bad{number}"))
        ledger = QueueLedger(host, lab_state(host), store, print)
        with pytest.raises(ConfigError, match="is not on this host"):
            ledger.content(FarmJob(f"bad{number}", "bad", ("rk1",)))
    assert not (tmp_path / "outside").exists()


def test_a_file_that_changed_before_it_was_shared_is_not_shared(
    labs: tuple[LabFile, LabFile], tmp_path: Path
) -> None:
    desk, _ = labs
    content = _submitted(desk)
    (desk.root / "models" / "any.bin").write_bytes(b"another")
    with pytest.raises(IntegrityError, match="is not what it was"):
        share_inputs(desk, SharedStore(str(tmp_path / "store")), content)


def test_a_job_of_a_newer_form_is_not_understood(labs: tuple[LabFile, LabFile]) -> None:
    desk, host = labs
    _submitted(desk)
    state = lab_state(host)
    state.jobs.submit(NewJob("new", {"recipe": {"a_new_key": 1}}, ("rk1",), id="new"))
    ledger = QueueLedger(host, state, None, print)
    known = {job.id: ledger.understands(job) for job in state.jobs.list()}
    assert known == {"a": True, "new": False}
