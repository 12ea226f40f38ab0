"""Inputs of a job on a host that lacks them, and what a worker cannot run."""

import hashlib
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from artifacts_made import make_artifact
from farm_lab import write_farm
from postgres_server import PostgresServer, lab_in
from tiny_gguf import write_tiny_gguf

from labctl.build.artifact import artifacts_dir, find_artifacts, publish
from labctl.config.lab import Board, LabFile, find_lab
from labctl.config.recipe import find_recipe
from labctl.errors import Blame, ConfigError, IntegrityError
from labctl.farm.job import FarmJob
from labctl.farm.queue_ledger import QueueLedger, share_inputs
from labctl.farm.run_content import RunContent
from labctl.farm.run_executor import RunExecutor
from labctl.farm.store import SharedStore
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe, recipe_files
from labctl.state.job import NewJob
from labctl.state.state import lab_state
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS

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


LLAMA = """\
name: sleeping
target: rk3568
engine: {name: llama_cpp}
models: {tiny: {file: models/tiny.gguf}}
prompt: once upon
parameters: {tokens: 8, context: 128}
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


def test_a_host_prepares_a_job_before_it_has_a_board(
    labs: tuple[LabFile, LabFile], tmp_path: Path
) -> None:
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    share_inputs(desk, store, _submitted(desk))
    state = lab_state(host)
    ledger, job = QueueLedger(host, state, store, print), state.jobs.find("a")

    def is_prepared() -> bool:
        return all(is_here() for is_here in ledger.inputs(job).values())

    def prepared() -> bool:
        ledger.prepare(job)  # the hash of a file that has just changed is not remembered
        return is_prepared()

    assert not is_prepared()

    assert wait_until(prepared, timeout=60, interval=0.5)
    (host.root / "tools" / "sleeper").unlink()
    assert not is_prepared()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_two_jobs_need_at_once_is_fetched_once(
    labs: tuple[LabFile, LabFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Fetched again, it would change while the first job looks at its bytes."""
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    share_inputs(desk, store, _submitted(desk))
    both, fetched, get = threading.Barrier(2), list[Path](), SharedStore.get

    def slow(store: SharedStore, sha256: str, path: Path) -> None:
        fetched.append(path)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        get(store, sha256, path)

    monkeypatch.setattr(SharedStore, "get", slow)
    ledgers = [QueueLedger(host, lab_state(host), store, print) for _ in range(workers)]
    job = FarmJob("a", "a", ("rk1",))
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(ledger.content, job) for ledger in (ledgers[0], ledgers[-1])]
        for content in begun:
            content.result().check(host.root)
    assert len(fetched) == len(set(fetched)) == 2


@pytest.mark.parametrize("is_there", [True, False])
def test_a_store_that_is_away_costs_no_job_an_attempt(
    labs: tuple[LabFile, LabFile], tmp_path: Path, *, is_there: bool
) -> None:
    """Its folder is empty while it is not mounted, or cannot be used at all."""
    desk, host = labs
    share_inputs(desk, SharedStore(str(tmp_path / "store")), _submitted(desk))
    (tmp_path / "store").rename(tmp_path / "not mounted")
    if not is_there:
        (tmp_path / "store").write_text("no folder")
    store, state = SharedStore(str(tmp_path / "store")), lab_state(host)
    write_farm(desk.root, [{"name": "rk1", "address": "127.0.0.1:1", "workdir": "/w"}])
    boards = replace(host, lab=find_lab(desk.root, TRANSPORTS).lab)
    executor = RunExecutor(boards, QueueLedger(host, state, store, print), _no_connection)
    result = executor.run(FarmJob("a", "a", ("rk1",), submitter="ann@desk"), "rk1")
    assert (result.is_host_lacking, result.blame) == (True, Blame.INFRA), result.reason
    assert result.is_passing is not is_there  # a folder that is empty may be the right one
    assert "the shared store" in (result.reason or "")


def _no_connection(board: Board) -> Transport:
    raise AssertionError(board)


def test_a_build_of_the_desk_comes_to_the_host_and_no_newer_one_takes_its_place(
    labs: tuple[LabFile, LabFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "desk cache"))
    write_tiny_gguf(desk.root / "models" / "tiny.gguf")
    (desk.root / "recipes" / "sleeping.yaml").write_text(LLAMA)
    wanted = make_artifact(tmp_path, "llama-completion", "llama-bench", day=1)
    content = _submitted(desk)
    share_inputs(desk, store, content)
    make_artifact(tmp_path, "llama-completion", day=2)  # built anew, the job has begun by then

    for cache in ("desk cache", "host cache"):
        monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / cache))
        ledger = QueueLedger(host, lab_state(host), store, print)
        found = ledger.content(FarmJob("a", "a", ("rk1",)))
        program = recipe_files(found.recipe, host.root).program
        assert program is not None
        assert program.sha256 == wanted.manifest.tools["llama-completion"].sha256
        assert program.local.is_relative_to(tmp_path / cache)
    (only,) = find_artifacts("rk3568", "llama.cpp", lab_root=host.root)
    assert list(only.manifest.tools) == ["llama-completion"]


def test_a_build_that_a_host_has_with_other_bytes_is_refused(
    labs: tuple[LabFile, LabFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, host = labs
    store = SharedStore(str(tmp_path / "store"))
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "desk cache"))
    write_tiny_gguf(desk.root / "models" / "tiny.gguf")
    (desk.root / "recipes" / "sleeping.yaml").write_text(LLAMA)
    built = make_artifact(tmp_path, "llama-completion")
    share_inputs(desk, store, _submitted(desk))

    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "host cache"))
    shutil.copytree(desk.root / "models", host.root / "models")
    ledger = QueueLedger(host, lab_state(host), None, print)
    with pytest.raises(ConfigError, match=r"llama\.cpp new-[0-9a-f]+ is not built on this host"):
        ledger.content(FarmJob("a", "a", ("rk1",)))
    (tmp_path / "other").write_bytes(b"another program")
    record = built.manifest.tools["llama-completion"].model_copy(
        update={"sha256": hashlib.sha256(b"another program").hexdigest(), "size_bytes": 15}
    )
    theirs = built.manifest.model_copy(update={"tools": {"llama-completion": record}})
    folder = artifacts_dir() / "rk3568" / built.path.name
    publish(folder, theirs, {"llama-completion": tmp_path / "other"})
    with pytest.raises(ConfigError, match="has other bytes here"):
        QueueLedger(host, lab_state(host), store, print).content(FarmJob("a", "a", ("rk1",)))
    assert (folder / "bin" / "llama-completion").read_bytes() == b"another program"


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


def test_a_file_that_cannot_be_looked_for_is_left_to_the_attempt(
    labs: tuple[LabFile, LabFile],
) -> None:
    """The look for all jobs goes on: a worker without it serves nobody."""
    desk, host = labs
    document = _submitted(desk).document()
    document["files"] = {"x" * 300: "0" * 64}
    state = lab_state(host)
    state.jobs.submit(NewJob("odd", document, ("rk1",), id="odd"))
    inputs = QueueLedger(host, state, None, print).inputs(state.jobs.find("odd"))
    assert [is_here() for name, is_here in inputs.items() if name.startswith("file ")] == [True]


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
    with pytest.raises(IntegrityError, match="has changed"):
        share_inputs(desk, SharedStore(str(tmp_path / "store")), content)


def test_a_job_of_a_newer_form_is_not_understood(labs: tuple[LabFile, LabFile]) -> None:
    desk, host = labs
    _submitted(desk)
    state = lab_state(host)
    state.jobs.submit(NewJob("new", {"recipe": {"a_new_key": 1}}, ("rk1",), id="new"))
    ledger = QueueLedger(host, state, None, print)
    known = {job.id: ledger.understands(job) for job in state.jobs.list()}
    assert known == {"a": True, "new": False}
