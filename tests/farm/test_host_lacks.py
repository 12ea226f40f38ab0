"""What a host lacks for jobs: it leaves those to other hosts until that is there."""

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from artifacts_made import make_artifact
from farm_lab import write_farm
from postgres_server import PostgresServer, lab_in
from tiny_gguf import write_tiny_gguf
from workers_made import Recorded, Started, made_worker, new_job, start

from labctl import process
from labctl.config.lab import Board, LabFile, find_lab
from labctl.config.target import load_target
from labctl.deploy.plan import agent_artifact
from labctl.errors import ConfigError, HostError, ToolMissing
from labctl.farm import host_lacks, run_executor
from labctl.farm.host_lacks import HostLacks
from labctl.farm.host_setup import host_worker, missing_tools
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_content import RunContent
from labctl.farm.run_executor import RunExecutor
from labctl.farm.worker import Worker
from labctl.results.gates import leave_open
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe
from labctl.state.job import NewJob
from labctl.state.state import LabState, lab_state
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS


def _no_agent(lab_root: Path) -> None:
    agent_artifact("aarch64", load_target("rk3568"), lab_root)


def _no_program(_lab_root: Path) -> None:
    raise ToolMissing("program not found on this host: pip")


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [(_no_agent, "no agent (current) is built"), (_no_program, "program not found")],
)
def test_what_a_host_lacks_is_never_the_jobs_fault_and_costs_no_attempt(
    lab: LabFile,
    state: LabState,
    monkeypatch: pytest.MonkeyPatch,
    lacking: Callable[[Path], None],
    reason: str,
) -> None:
    """Whatever a host without its agents takes, it would end otherwise: all of the queue."""
    said: list[str] = []

    def run_recipe(*_: object) -> None:
        lacking(lab.root)

    monkeypatch.setenv("LABCTL_CACHE", str(lab.root / "empty cache"))
    monkeypatch.setattr(host_lacks, "_BOARD_SECONDS", 0.2)
    monkeypatch.setattr(run_executor, "run_recipe", run_recipe)
    monkeypatch.setattr(RunExecutor, "_request", lambda *_: None)
    executor = RunExecutor(_two_boards(lab.root), cast("QueueLedger", _NoRuns()), _no_connection)
    state.jobs.submit(*(new_job(name, "rk1", "rk2") for name in "ab"))
    for _ in range(4):
        worker = Worker(lab_state(lab), "lab1", ["rk1"], executor)
        worker.note = worker.log = said.append
        worker.run(until_empty=True)
    jobs = state.jobs.list()
    assert [(job.state, job.failures, *job.tried) for job in jobs] == [("waiting", 0)] * 2
    assert any(reason in (job.reason or "") for job in jobs)
    if lacking is _no_agent:
        assert any("to mend it: labctl build --target rk3568 --product agent" in x for x in said)
    assert state.health.get("rk1").check_wanted_for is None
    made_worker(lab, well := Recorded(), "rk2", host="lab2").run(until_empty=True)
    assert sorted(well.ran) == [("a", "rk2"), ("b", "rk2")]


def _no_connection(board: Board) -> Transport:
    raise AssertionError(board)


class _WithAgent(Recorded):
    """An executor that needs the agent of a host, as this one has it."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        try:
            agent_artifact("aarch64", load_target("rk3568"), Path())
        except ConfigError as error:
            self.ran.append((f"{job.id} lacks it", board))
            return JobResult.of(error)
        return super().run(job, board)


def test_what_was_built_meanwhile_is_noticed_without_waiting_for_another_try(
    lab: LabFile,
    state: LabState,
    started: Started,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk1"))
    executor = _WithAgent()
    hosted = replace(
        lab, lab=lab.lab.model_copy(update={"boards": _two_boards(tmp_path).lab.boards})
    )
    worker = host_worker(
        hosted, "lab1", ["rk1"], connect=_no_connection, compare=leave_open, note=lambda _: None
    )
    worker.executor, worker.understands = executor, lambda _job: True
    worker.lacks, worker.on_begin, worker.on_run = (
        lambda _job: None,
        lambda _job, _board: None,
        lambda _job, _run: True,
    )
    start(started, worker)
    assert wait_until(lambda: ("a lacks it", "rk1") in executor.ran, timeout=60, interval=0.05)
    make_artifact(tmp_path, "agent", product="agent", version="current")
    done = {"a": "done", "b": "done"}
    assert wait_until(
        lambda: {job.id: job.state for job in state.jobs.list(ended=9)} == done,
        timeout=50,  # less than any pause
        interval=0.05,
    ), executor.ran
    assert executor.ran == [("a lacks it", "rk1"), ("a", "rk1"), ("b", "rk1")]


class _WithTool(Recorded):
    """An executor that needs a program of this host."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        try:
            process.run(["quantize-it"], timeout=30)
        except ToolMissing as error:
            self.ran.append((f"{job.id} lacks it", board))
            return JobResult.of(error.during("making the model"))
        return super().run(job, board)


def test_a_tool_that_is_installed_meanwhile_is_noticed_soon(
    lab: LabFile,
    state: LabState,
    started: Started,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk1"))
    executor = _WithTool()
    start(started, made_worker(lab, executor, "rk1"))
    assert wait_until(lambda: ("a lacks it", "rk1") in executor.ran, timeout=60, interval=0.05)
    tool = tmp_path / "quantize-it"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    done = {"a": "done", "b": "done"}
    assert wait_until(
        lambda: {job.id: job.state for job in state.jobs.list(ended=9)} == done,
        timeout=50,  # less than any pause
        interval=0.05,
    ), executor.ran
    assert executor.ran == [("a lacks it", "rk1"), ("a", "rk1"), ("b", "rk1")]


def test_a_program_that_is_here_and_cannot_run_is_not_tried_again_and_again(
    tmp_path: Path,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/no/such/interpreter\n")
    tool.chmod(0o755)
    with pytest.raises(ToolMissing) as missing:
        process.run([str(tool)], timeout=30)
    lacks = HostLacks(lambda: None)
    lacks.note("a", "rk1", JobResult.of(missing.value), None)
    assert (lacks.jobs("ab"), lacks.pauses("rk1")) == ({"a"}, True)


def test_a_host_that_lacks_something_is_not_asked_again_and_again(
    lab: LabFile, state: LabState
) -> None:
    lack = JobResult.of(ToolMissing("program not found on this host: pip"))
    state.jobs.submit(new_job("a", "rk1"), new_job("b", "rk2"))
    executor = Recorded({"a": [lack]})
    worker = made_worker(lab, executor, "rk1", "rk2")
    worker.run(until_empty=True)
    worker.run(until_empty=True)
    assert sorted(executor.ran) == [("a", "rk1"), ("b", "rk2")]


def test_a_store_that_comes_back_is_asked_again_soon_and_costs_no_attempt(
    lab: LabFile, state: LabState, started: Started
) -> None:
    away = JobResult.of(HostError("cannot use the store").of_host())
    state.jobs.submit(new_job("a", "rk1"))
    executor = Recorded({"a": [away] * 4})
    worker = made_worker(lab, executor, "rk1")
    worker.away_seconds = 0.1
    start(started, worker)
    assert wait_until(lambda: state.jobs.find("a").state == "done", timeout=50, interval=0.05)
    assert (len(executor.ran), state.jobs.find("a").failures) == (5, 0)


class _NoRuns:
    def run_of(self, job: FarmJob) -> None:
        pass


def _two_boards(root: Path) -> LabFile:
    boards = (("rk1", "h:1"), ("rk2", "h:2"))
    write_farm(root, [{"name": name, "address": at, "workdir": "/w"} for name, at in boards])
    return find_lab(root, TRANSPORTS)


QUANTIZING = """\
name: quantizing
target: rk3568
engine:
  name: command
  program: {file: tool}
  arguments: ["1"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {base: {file: tiny.gguf}, small: {derive: {from: base, quantization: Q8_0}}}
model: MODEL
parameters: {tokens: 1}
max_time: 5m
"""


def test_a_host_without_llama_quantize_leaves_its_jobs_to_others_and_runs_the_rest(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "empty cache"))
    root = lab_in(postgres, tmp_path / "lab").parent
    write_tiny_gguf(root / "tiny.gguf")
    (root / "tool").write_text("#!/bin/sh\n")
    lab = find_lab(root, TRANSPORTS)
    state, said = lab_state(lab), list[str]()
    for model in ("small", "base"):
        path = root / f"{model}.yaml"
        path.write_text(QUANTIZING.replace("MODEL", model))
        content = RunContent.of(read_recipe(path, (), lab_root=root), root)
        state.jobs.submit(NewJob(model, content.document(), ("rk1",), id=model))
    ledger = QueueLedger(lab, state, None, said.append)
    for _ in range(2):
        worker = made_worker(lab, Recorded(), "rk1")
        worker.understands, worker.lacks = ledger.understands, ledger.lacks
        worker.note = said.append
        worker.run(until_empty=True)
    (left,) = [job for job in state.jobs.list() if job.state == "waiting"]
    assert (left.id, left.attempts, left.failures) == ("small", 0, 0)
    done = state.jobs.get("base")
    assert done is not None
    assert (done.state, done.exit_status) == ("done", 0)
    lines = [line for line in said if line.startswith("job small")]
    assert len(lines) == 2  # once for each worker
    (line, _) = lines
    assert "no llama-quantize that runs on this host is built" in line
    assert "labctl build --target rk3568 --product llama.cpp --tool llama-quantize" in line
    make_artifact(tmp_path, "llama-quantize", target=f"host-{platform.machine()}")
    assert QueueLedger(lab, state, None, said.append).lacks(left) is None


def test_a_worker_says_at_its_start_what_its_host_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "empty cache"))
    agent, quantizer = missing_tools(_two_boards(tmp_path), ["rk1", "rk2"])
    assert "no agent (current) is built" in agent
    assert "--product agent" in agent
    assert "--tool llama-quantize" in quantizer
    assert quantizer.endswith("; jobs that need it wait until then, or for another host")


def test_a_target_that_cannot_be_read_keeps_no_worker_from_the_boards_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "empty cache"))
    lab = _two_boards(tmp_path)
    lab.lab.boards["rk1"] = lab.board("rk1").model_copy(update={"target": "torn"})
    (tmp_path / "toolchains" / "torn").mkdir(parents=True)
    (tmp_path / "toolchains" / "torn" / "target.yaml").write_text("oops: [")
    torn, agent, _ = missing_tools(lab, ["rk1", "rk2"])
    assert "not valid YAML" in torn
    assert torn.endswith("; jobs on boards of target torn fail")
    assert "no agent (current) is built" in agent
