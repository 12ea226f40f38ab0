"""Jobs that nobody vouches for: their files, their boards, and who runs them."""

import json
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from records_made import plan as plan_made
from records_made import planned_run, run, trial
from workers_made import Recorded

from labctl.board.store import StoredObject
from labctl.cli.root import run_cli
from labctl.config.lab import LabFile, find_lab
from labctl.config.yaml.document import load
from labctl.errors import ConfigError, InfraError, JobError, LabctlError
from labctl.farm import untrusted_run
from labctl.farm.batch_plan import BatchPlan, PlannedBatch, plan_batch
from labctl.farm.job import FarmJob
from labctl.farm.queue_ledger import QueueLedger, share_inputs
from labctl.farm.run_content import RunContent
from labctl.farm.run_executor import RunExecutor
from labctl.farm.store import SharedStore
from labctl.farm.untrusted_run import check_paths, discard_ended, discard_files, take_files
from labctl.farm.worker import Worker
from labctl.records.run import RunEnd
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.inputs.untrusted_recipe import Workspace
from labctl.runs.observer import Observer
from labctl.state.health import NOT_LOOKED_THROUGH, UNTRUSTED, Health, untrusted_use
from labctl.state.job import NewJob
from labctl.state.state import lab_state
from labctl.state.uses import QUEUED_KINDS
from labctl.transport.built_in import TRANSPORTS

RECIPE = """\
name: pull
target: rk3568
engine:
  name: command
  program: {file: tool}
  arguments: ["1"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {none: {file: any.bin}}
parameters: {tokens: 1}
max_time: 5m
"""
DEVICES = """\
boards:
  good: {target: rk3568, transport: {kind: hdc, link: tcp, address: "10.0.0.1:1"}}
  spare: {target: rk3568, untrusted: true,
    transport: {kind: hdc, link: tcp, address: "10.0.0.2:1"}}
"""


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch) -> LabFile:
    """A lab, in a pull request's folder beside it."""
    folders = tmp_path / "lab", tmp_path / "pull-request"
    for folder in folders:
        folder.mkdir()
    (folders[0] / "devices.yaml").write_text(DEVICES)
    (folders[1] / "recipe.yaml").write_text(RECIPE)
    (folders[1] / "tool").write_text("#!/bin/sh\necho token\n")
    (folders[1] / "any.bin").write_bytes(bytes(1000))
    monkeypatch.chdir(folders[1])
    return find_lab(folders[0], TRANSPORTS)


def taken(lab: LabFile, job: str) -> RunContent:
    path = Path("recipe.yaml")
    workspace = Workspace.of(path, lab.root)
    recipe = read_recipe(path, lab_root=lab.root, workspace=workspace)
    return RunContent.of(take_files(recipe, lab.root, job), lab.root, untrusted=True)


def test_its_files_travel_by_their_digests(lab: LabFile, tmp_path: Path) -> None:
    content, store = taken(lab, "a1"), SharedStore(str(tmp_path / "store"))
    assert str(tmp_path / "pull-request") not in json.dumps(
        [content.recipe.resolved(), list(content.files)]
    )
    share_inputs(lab, store, content)
    state = lab_state(lab)
    state.jobs.submit(NewJob("pull", content.document(), ("spare",), "untrusted", id="a1"))
    other = LabFile(tmp_path / "other", lab.lab)
    ledger = QueueLedger(other, state, store, print)
    assert ledger.understands(state.jobs.find("a1"))
    found = ledger.content(FarmJob.queued(state.jobs.find("a1")))
    found.check(other.root)
    check_paths(found.recipe, other.root, "a1")
    assert len(list((other.root / "untrusted" / "a1").rglob("*.*"))) == 1
    with pytest.raises(ConfigError, match="is outside of"):
        check_paths(found.recipe, other.root, "b2")


@pytest.mark.parametrize(
    ("now", "said"), [("5m", "models.none.file: is outside of"), ("3h", "has 2h at most")]
)
def test_a_job_that_asks_for_more_is_refused(lab: LabFile, now: str, said: str) -> None:
    """Whoever put it into the queue."""
    (lab.root / "any.bin").write_bytes(b"of the lab")
    path = lab.root / "recipe.yaml"
    path.write_text(RECIPE.replace("file: tool", "board: /bin/tool").replace("5m", now))
    recipe = read_recipe(path, lab_root=lab.root)
    with pytest.raises(ConfigError, match=f"not of an untrusted recipe: .*{said}"):
        check_paths(recipe, lab.root, "a1")


def test_a_job_with_a_program_of_the_host_is_refused(lab: LabFile, tmp_path: Path) -> None:
    """Its document may be of anybody who can write to the queue."""
    document = taken(lab, "a1").document()
    check_paths(RunContent.read(document).recipe, lab.root, "a1")
    document["recipe"]["engine"]["program"]["file"] = str(tmp_path / "lab" / "devices.yaml")
    with pytest.raises(ConfigError, match=r"engine\.program\.file: is outside of"):
        check_paths(RunContent.read(document).recipe, lab.root, "a1")


def test_a_job_whose_run_is_finished_needs_its_files_no_more(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were removed; who did that died before it told the queue."""
    content, state = taken(lab, "a1"), lab_state(lab)
    state.jobs.submit(NewJob("pull", content.document(), ("spare",), "untrusted", id="a1"))
    record = run("20260728T100000Z-pull-aaaaaa", job="a1")
    made = planned_run(lab.root / "runs", record, plan_made())
    made.add(trial(1))
    made.finish(RunEnd.model_validate({"state": "finished", "finished": trial(1).finished}))
    discard_files(lab.root, "a1")
    ledger = QueueLedger(lab, state, None, print)
    monkeypatch.setattr(ledger, "run_of", lambda _job: record.id)
    executor = RunExecutor(lab, ledger, lambda board: pytest.fail(f"{board.name} was asked"))
    result = executor.run(FarmJob.queued(state.jobs.find("a1")), "spare")
    assert (result.exit_status, result.run) == (0, record.id), result.reason


def test_a_link_to_itself_is_no_recipe(lab: LabFile) -> None:
    Path("loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="cannot read loop"):
        Workspace.of(Path("loop"), lab.root)
    with pytest.raises(ConfigError, match="cannot read"):
        Workspace.of(Path("recipe.yaml"), lab.root).recipe("loop")


def test_files_go_with_their_jobs(lab: LabFile) -> None:
    content, state = taken(lab, "a1"), lab_state(lab)
    state.jobs.submit(NewJob("pull", content.document(), ("spare",), "untrusted", id="a1"))
    taken(lab, "b2")  # not submitted yet
    discard_ended(lab.root, state)
    assert {one.name for one in (lab.root / "untrusted").iterdir()} == {"a1", "b2"}
    state.jobs.cancel("a1", "enough")
    discard_ended(lab.root, state)
    assert [one.name for one in (lab.root / "untrusted").iterdir()] == ["b2"]


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        pytest.param(JobError("it changed the board"), False, id="ended"),
        pytest.param(InfraError("the link is lost"), True, id="broken-off"),
    ],
)
def test_files_stay_until_no_attempt_needs_them(
    lab: LabFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: LabctlError,
    is_kept: bool,
) -> None:
    def fail(*_words: object) -> None:
        raise error

    monkeypatch.setattr(untrusted_run, "run_untrusted", fail)
    content, state = taken(lab, "a1"), lab_state(lab)
    (job,) = state.jobs.submit(NewJob("pull", content.document(), ("spare",), "untrusted", id="a1"))
    ledger = QueueLedger(lab, state, SharedStore(str(tmp_path / "store")), print)
    executor = RunExecutor(lab, ledger, lambda board: pytest.fail(f"{board.name} was asked"))
    result = executor.run(FarmJob.queued(job), "spare")
    assert result.reason is not None
    assert error.message in result.reason
    assert (lab.root / "untrusted" / "a1").exists() is is_kept


def test_a_job_of_a_later_labctl_is_left_alone(lab: LabFile) -> None:
    state = lab_state(lab)
    (job,) = state.jobs.submit(NewJob("pull", {}, ("spare",)))
    with state.changing() as connection:
        connection.exec_driver_sql("UPDATE job SET kind = 'later'")
    worker, executor = spare_worker(lab)
    worker.run(until_empty=True)
    assert executor.ran == []
    assert not QueueLedger(lab, state, None, print).understands(replace(job, kind="later"))  # type: ignore[arg-type]
    assert state.jobs.find(job.id).state == "waiting"


def spare_worker(lab: LabFile) -> tuple[Worker, Recorded]:
    state, executor = lab_state(lab), Recorded()
    understands = QueueLedger(lab, state, None, print).understands
    worker = Worker(state, "lab1", ["spare"], executor, look_seconds=0.1)
    worker.understands = lambda job: job.kind in QUEUED_KINDS or understands(job)
    return worker, executor


def test_a_board_that_was_not_looked_through_takes_untrusted_jobs_alone(lab: LabFile) -> None:
    """The next one begins with the look; without it the board would wait for a person."""
    state = lab_state(lab)
    evidence = {UNTRUSTED: NOT_LOOKED_THROUGH}
    state.health.set("spare", Health.BAD, reason="killed", by="test", evidence=evidence)
    state.jobs.submit(NewJob("a", {}, ("spare",)), NewJob("b", {}, ("spare",), "untrusted"))
    worker, executor = spare_worker(lab)
    worker.run(until_empty=True)
    assert [state.jobs.find(job).name for job, _ in executor.ran] == ["b"]
    assert [job.name for job in state.jobs.list()] == ["a"]


@pytest.mark.parametrize("is_used", [False, True])
def test_the_queue_is_empty_where_only_a_look_keeps_its_jobs_waiting(
    lab: LabFile, *, is_used: bool
) -> None:
    """Unless an untrusted recipe has the board now: its look lets them run."""
    state = lab_state(lab)
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            evidence = untrusted_use(other.pid)
            state.health.set("spare", Health.BAD, reason="used", by="test", evidence=evidence)
            if not is_used:
                other.kill()
                other.wait()
            state.jobs.submit(NewJob("a", {}, ("spare",)))
            worker, executor = spare_worker(lab)
            assert worker._is_empty() is not is_used
            if not is_used:
                worker.run(until_empty=True)
            assert executor.ran == []
        finally:
            other.kill()


def plan(lab: LabFile, jobs: str) -> PlannedBatch:
    path = Path("plan.yaml")
    path.write_text(f"name: night\njobs: [{jobs}]\n")
    return plan_batch(
        load(path, BatchPlan),
        lab,
        lambda selector: (_ for _ in ()).throw(ConfigError(selector.text)),
        lambda _recipe, _boards: 1.0,
        Workspace.of(path, lab.root),
    )


def test_an_untrusted_batch_has_marked_boards_alone(lab: LabFile) -> None:
    planned = plan(lab, "{recipe: recipe.yaml}, {recipe: recipe.yaml, boards: [spare]}")
    assert [(one.job.boards, one.job.untrusted) for one in planned.jobs] == [(("spare",), True)] * 2


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ("{recipe: recipe.yaml, boards: [good]}", "board good takes no untrusted recipes"),
        ("{recipe: recipe.yaml, on: tag=x}", "tag=x,untrusted=yes"),
        ("{recipe: ../lab/devices.yaml}", "is outside of"),
        ("{recipe: recipe.yaml, set: {prompt_file: /etc/passwd}}", "is outside of"),
        ("{recipe: recipe.yaml, set: {max_time: 3h}}", "has 2h at most"),
        ("{recipe: recipe.yaml, times: 101}", "the most is 100"),
    ],
)
def test_what_an_untrusted_batch_cannot_have(lab: LabFile, jobs: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan(lab, jobs)
    assert said in f"{error.value.message} {error.value.details}"


@pytest.mark.parametrize("option", [("--build",), ("--spare", "good")])
def test_what_an_untrusted_run_cannot_have(
    lab: LabFile, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    words = ["--lab", str(lab.root), "run", "recipe.yaml", "--untrusted", "--board", "spare"]
    assert run_cli([*words, *option]) == 2
    assert "--untrusted cannot be used with --build or --spare" in capsys.readouterr().err


def test_a_night_is_no_place_for_a_pull_request(
    lab: LabFile, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plan.yaml").write_text("builds: nonsense\n")
    assert run_cli(["--lab", str(lab.root), "nightly", "--untrusted", "plan.yaml"]) == 2
    said = capsys.readouterr().err
    assert "a night needs trusted results" in said
    assert "labctl batch --untrusted" in said


class HeldStore:
    """The store of a board that is inspected: which files are hashed and removed."""

    def __init__(self, *found: StoredObject):
        self.found, self.hashed, self.removed = found, list[StoredObject](), list[str]()

    def contents(self) -> list[StoredObject]:
        return list(self.found)

    def verify(self, items: list[StoredObject]) -> list[StoredObject]:
        self.hashed += items
        return []

    def remove(self, sha256: str) -> None:
        self.removed.append(sha256)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_hole_in_the_board_store_is_damage_and_is_not_hashed(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    agent, good = StoredObject("a" * 64, 7), StoredObject("b" * 64, 7)
    hole = StoredObject("c" * 64, 1 << 42, "model", is_whole=False)
    store = HeldStore(agent, good, hole)
    held = MagicMock(store=store, agent_object=SimpleNamespace(stored=agent))
    monkeypatch.setattr(untrusted_run, "hold_board", lambda *_: nullcontext(held))
    look = untrusted_run._Inspection(
        lab, lab.board("spare"), lambda _: MagicMock(), Observer(), [hole] if is_kept else []
    )
    assert look.damaged() == ["model"]
    assert store.hashed == [agent, good]
    assert store.removed == [hole.sha256]
