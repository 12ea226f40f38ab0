"""The jobs of a batch in the lab's table: what becomes of them, and how the batch ends."""

import time
from itertools import groupby
from pathlib import Path
from threading import Thread
from unittest.mock import MagicMock

import pytest
from workers_made import Recorded

from labctl.config.lab import LabFile, find_lab
from labctl.config.yaml.document import load
from labctl.errors import ConfigError, ExitStatus
from labctl.farm import batch
from labctl.farm.batch import Batch, BatchJobs
from labctl.farm.batch_plan import BatchPlan, plan_batch
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.run_content import RunContent
from labctl.farm.untrusted_run import check_paths
from labctl.farm.worker import Worker
from labctl.retry import wait_until
from labctl.runs.inputs.untrusted_recipe import Workspace
from labctl.state.health import Health
from labctl.state.jobs import Jobs
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS

RECIPE = """\
name: short
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
  one: {target: rk3568, transport: {kind: hdc, link: tcp, address: "10.0.0.1:1"}}
  two: {target: rk3568, transport: {kind: hdc, link: tcp, address: "10.0.0.2:1"}}
"""


class Night:
    """A batch, its jobs in the table, and what was told of them."""

    boards = ("one", "two")

    def __init__(self, lab: LabFile, plan: str, *, untrusted: bool = False):
        path = lab.root.parent / "work" / "plan.yaml"
        path.write_text(plan)
        workspace = Workspace(path.parent) if untrusted else None
        planned = plan_batch(load(path, BatchPlan), lab, lambda _: [], lambda *_: 1.0, workspace)
        self.lab = lab
        self.batch = Batch.begin(lab.root, planned)
        self.told: list[tuple[str, str | None, int | None]] = []
        self.jobs = self.again()

    def again(self, lacking: dict[str, ConfigError] | None = None) -> BatchJobs:
        """The jobs, as another process of the same command has them."""
        return BatchJobs(self.lab, self.batch, self.boards, lacking or {}, self._tell)

    def _tell(self, job: FarmJob, _board: str, end: JobResult, ended: int | None) -> None:
        self.told.append((job.id, end.reason, ended))

    def worker(
        self, executor: Recorded, name: str = "lab1:1:me", look_seconds: float = 0.05
    ) -> Worker:
        """The worker of this batch, which owns it."""
        state = lab_state(self.lab)
        state.groups.own(self.jobs.group, name, boards=self.boards)
        return Worker(
            state,
            "lab1",
            self.boards,
            executor,
            group=self.batch.group,
            is_over=self.jobs.look,
            name=name,
            look_seconds=look_seconds,
        )


@pytest.fixture
def lab(tmp_path: Path, private_state: Path) -> LabFile:
    """A lab, in whose neighbour folder the plans and recipes are."""
    root, work = tmp_path / "lab", tmp_path / "work"
    root.mkdir()
    work.mkdir()
    (root / "devices.yaml").write_text(DEVICES)
    (work / "recipe.yaml").write_text(RECIPE)
    for folder in (root, work):
        (folder / "tool").write_text("#!/bin/sh\necho token\n")
        (folder / "any.bin").write_bytes(bytes(1000))
    return find_lab(root, TRANSPORTS)


@pytest.fixture
def untrusting(lab: LabFile) -> LabFile:
    """The lab, with boards for recipes that nobody vouches for."""
    text = DEVICES.replace("target: rk3568,", "target: rk3568, untrusted: true,")
    (lab.root / "devices.yaml").write_text(text)
    return find_lab(lab.root, TRANSPORTS)


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def plan(lab: LabFile, more: str, name: str = "night") -> str:
    return f"name: {name}\njobs:\n  - {{recipe: {lab.root.parent}/work/recipe.yaml, {more}}}\n"


def sql(state: LabState, statement: str) -> None:
    with state.changing() as connection:
        connection.exec_driver_sql(statement)


def ids(night: Night) -> list[str]:
    return [night.batch.job_id(one.job) for one in night.batch.jobs]


def claim(night: Night, state: LabState) -> list[str]:
    state.groups.own(night.jobs.group, "me")
    return [job.id for job in state.jobs.claim(night.boards, "me")]


def test_the_end_of_a_job_is_told_while_others_run(lab: LabFile) -> None:
    night = Night(lab, plan(lab, "times: 2"))
    first, second = ids(night)

    class Slow(Recorded):
        def run(self, job: FarmJob, board: str) -> JobResult:
            if job.id == second:
                assert wait_until(lambda: bool(night.told), timeout=20, interval=0.05)
            return super().run(job, board)

    night.jobs.submit()
    executor = Slow()
    night.worker(executor).run(until_empty=True)
    assert [ended for _, _, ended in night.told] == [1, 2]
    assert {job for job, _ in executor.ran} == {first, second}
    assert {one.exit_status for one in night.jobs.results.values()} == {0}


def test_a_unit_whose_board_went_bad_is_given_up(lab: LabFile, state: LabState) -> None:
    night = Night(lab, plan(lab, "times: 2, group: ab"))
    night.jobs.submit()
    (first,) = claim(night, state)
    state.jobs.finish(state.jobs.find(first), 0)
    state.health.set("one", Health.BAD, reason="slow", by="check")
    assert not night.jobs.look()
    assert night.jobs.look()
    assert "no board is left to run it on" in str(night.told[-1][1])


@pytest.mark.parametrize("reached", [None, True, False])
def test_a_board_that_no_host_reaches_is_not_waited_for(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, *, reached: bool | None
) -> None:
    """It has no `host:`, and no worker serves it."""
    monkeypatch.setattr(batch, "_WORKER_AWAY_SECONDS", -1.0)
    night = Night(lab, plan(lab, "every_board: true"))
    night.jobs.submit()
    night.jobs.reaches = lambda board: reached if board == "two" else True
    for _ in range(2):  # it is given up, and told in the next look
        night.jobs.look()
    reasons = [reason for _, reason, _ in night.told]
    why = "no board is left to run it on: no host reaches board two"
    assert [str(reason).partition(": start")[0] for reason in reasons] == [why] * (reached is False)


def test_a_clock_that_is_set_back_hides_no_end(lab: LabFile, state: LabState) -> None:
    night = Night(lab, plan(lab, "times: 2"))
    night.jobs.submit()
    first, second = claim(night, state)
    state.jobs.finish(state.jobs.find(first), 0)
    assert not night.jobs.look()
    state.jobs.finish(state.jobs.find(second), 0)
    sql(state, f"UPDATE job SET ended_at = ended_at - 3600 WHERE id = '{second}'")
    assert night.jobs.look()


def test_a_job_that_the_table_lost_is_put_there_again(lab: LabFile, state: LabState) -> None:
    night = Night(lab, plan(lab, "times: 2"))
    night.jobs.submit()
    first, second = claim(night, state)
    state.jobs.finish(state.jobs.find(first), 0)
    sql(state, f"DELETE FROM job WHERE id = '{second}'")  # as of an older backup
    assert not night.jobs.look()
    assert state.jobs.find(second).waits
    assert claim(night, state) == [second]
    state.jobs.finish(state.jobs.find(second), 0)
    assert night.jobs.look()


@pytest.mark.parametrize(
    "damage", ["priority = 'x'", "state = 'odd'", "request = 'x'", "boards = 'x'"]
)
def test_a_damaged_job_does_not_keep_a_batch_from_its_end(
    lab: LabFile, state: LabState, damage: str
) -> None:
    night = Night(lab, plan(lab, "every_board: true"))
    night.jobs.submit()
    damaged, other = sorted(ids(night))
    sql(state, f"UPDATE job SET {damage} WHERE id = '{damaged}'")
    assert claim(night, state) == [other]
    assert not night.jobs.look()
    state.jobs.finish(state.jobs.find(other), 0)
    assert night.jobs.look()
    (end,) = [one for one in night.jobs.results.values() if one.exit_status]
    assert end.exit_status == ExitStatus.INFRA
    assert "damaged: " in str(end.reason)
    assert "labctl queue cancel" in str(end.reason)


def test_an_untrusted_job_whose_copy_was_cut_off_is_copied_anew(
    untrusting: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = Night(untrusting, plan(untrusting, "times: 2"), untrusted=True)
    with monkeypatch.context() as killed:
        killed.setattr(Jobs, "submit", MagicMock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            night.jobs.submit()
    night.again().submit()
    first, second = claim(night, state)
    folders = {path.name for path in (untrusting.root / "untrusted").iterdir()}
    assert folders == {first, second}
    check_paths(RunContent.read(state.jobs.find(first).content).recipe, untrusting.root, first)


def test_the_files_of_untrusted_jobs_that_were_cancelled_are_removed(
    untrusting: LabFile, state: LabState
) -> None:
    night = Night(untrusting, plan(untrusting, "times: 2"), untrusted=True)
    night.jobs.submit()
    first, second = ids(night)
    state.jobs.cancel(first, "not needed")
    night.jobs.look()
    assert [path.name for path in (untrusting.root / "untrusted").iterdir()] == [second]


def test_two_batches_of_one_host_take_turns(lab: LabFile, state: LabState) -> None:
    plans = [plan(lab, "boards: [one], times: 4", name) for name in ("a-night", "b-night")]
    first, second = (Night(lab, text) for text in plans)
    ran = list[str]()

    class Short(Recorded):
        def run(self, job: FarmJob, board: str) -> JobResult:
            ran.append(job.id.partition(".")[0])
            time.sleep(0.2)
            return super().run(job, board)

    workers = [first.worker(Short(), "lab1:1:a", 1.0), second.worker(Short(), "lab1:2:b", 1.0)]
    for night in (first, second):
        night.jobs.submit()
    threads = [Thread(target=one.run, kwargs={"until_empty": True}) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ran) == 8
    assert max(len(list(same)) for _, same in groupby(ran)) <= 2
