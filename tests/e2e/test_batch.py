"""``labctl batch`` on six virtual boards: real deploys, leases, runs and records."""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from farm_lab import farm_lab
from labs import LabUnderTest, blamed, said

from labctl.config.lab import find_lab
from labctl.retry import wait_until
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture
def farm(tmp_path: Path, private_state: Path) -> Iterator[LabUnderTest]:
    with farm_lab(tmp_path, 6) as lab:
        yield lab


def plan(lab: LabUnderTest, *jobs: str, name: str = "night") -> str:
    path = lab.root / f"{name}.yaml"
    path.write_text(f"name: {name}\njobs:\n" + "".join(f"  - {job}\n" for job in jobs))
    return str(path)


def runs(lab: LabUnderTest) -> list[dict[str, str]]:
    """The records of all runs."""
    return [json.loads(path.read_text()) for path in sorted(lab.root.glob("runs/*/run.json"))]


def test_jobs_run_on_all_boards_at_once_each_once(farm: LabUnderTest) -> None:
    text = plan(
        farm,
        "{recipe: sleeping, set: {seconds: 1.5}, times: 10, expected: 3s}",
        "{recipe: sleeping, every_board: true, expected: 2s}",
        "{recipe: sleeping, group: ab, set: {seconds: 0.2}, expected: 1s}",
        "{recipe: sleeping, group: ab, set: {seconds: 0.3}, expected: 1s}",
    )
    done = farm.run("batch", text, "--json")
    assert done.exit_status == 0, said(done)
    jobs = json.loads(done.text)["jobs"]
    assert len(jobs) == len({job["run"] for job in jobs}) == len(runs(farm)) == 18
    assert len(farm.finished_trials()) == 18
    boards = {run["id"]: run["board"] for run in runs(farm)}
    each = [boards[job["run"]] for job in jobs if job["id"].startswith("2.")]
    assert sorted(each) == [f"b-{n}" for n in range(1, 7)]
    assert max(Counter(boards.values()).values()) <= 7  # none stood idle for long
    pair = [boards[job["run"]] for job in jobs if job["group"]]
    assert len(set(pair)) == 1
    assert "[18/18]" in said(done)

    # All of it is done: the same plan begins anew.
    shown = farm.run("batch", text, "--dry-run")
    assert "18 jobs" in shown.text


def test_a_killed_batch_goes_on_and_runs_nothing_twice(farm: LabUnderTest) -> None:
    text = plan(farm, "{recipe: sleeping, set: {seconds: 2}, times: 9, expected: 2s}")
    running = farm.start("batch", text).after_a_trial()
    running.process.kill()
    running.finish()
    kept = {path: path.stat().st_mtime_ns for path in farm.root.glob("runs/*/trials/*/record.json")}
    again = farm.start("batch", text)
    again.waiting_for(lambda: len(farm.finished_trials()) > len(kept) + 1)
    again.process.send_signal(signal.SIGINT)
    stopped = again.finish()
    assert (
        stopped.returncode == 130 if hasattr(stopped, "returncode") else stopped.exit_status == 130
    )
    done = farm.run("batch", text, "--json")
    assert done.exit_status == 0, said(done)
    assert "continuing " in said(done)
    jobs = json.loads(done.text)["jobs"]
    assert len({job["run"] for job in jobs}) == 9
    finished = Counter(
        path.parents[2].name for path in farm.root.glob("runs/*/trials/*/record.json")
    )
    assert finished == Counter(job["run"] for job in jobs)
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


def test_a_wrong_plan_is_refused_before_anything_runs(farm: LabUnderTest) -> None:
    for job, reason in (
        ("{recipe: nothing}", "job 1, nothing: "),
        ("{recipe: sleeping, on: tag=fast}", "none is tag=fast"),
        ("{recipe: sleeping, boards: [b-9]}", "no board 'b-9'"),
        ("{recipe: sleeping, uses: [usb1]}", "no shared limit 'usb1'"),
        ("{recipe: sleeping, boards: [b-1], on: tag=x}", "night.yaml:3"),
    ):
        blamed(farm.run("batch", plan(farm, job)), 2, "config", reason)
    assert runs(farm) == []


def test_a_batch_whose_boards_all_lack_an_agent_is_refused_before_anything_runs(
    farm: LabUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    text = plan(farm, "{recipe: sleeping, times: 4}")
    done = farm.run("batch", text)
    blamed(done, 2, "config", "no agent (current) is built for target host-", "labctl build")
    assert not (farm.root / "batches").exists()


@pytest.mark.parametrize("way", ["batch", "queue"])
def test_a_board_that_fails_its_check_between_jobs_gets_none(farm: LabUnderTest, way: str) -> None:
    devices = farm.root / "devices.yaml"
    names = ("b-1", "b-2", "b-3", "b-4", "b-5", "b-6")
    text = devices.read_text().replace("    workdir:", "    tags: [dull]\n    workdir:")
    text = text.replace("dull", "pair", 2)
    gone = re.sub('address: "[^"]*"', 'address: "127.0.0.1:1"', text, count=1)
    gone = gone.replace("    workdir:", "    switches: {wait: 100ms}\n    workdir:", 1)
    devices.write_text(f"{gone}health: {{jobs: 50}}\n")
    state = lab_state(find_lab(farm.root, TRANSPORTS))
    for name in names[1:]:
        state.health.checked(name, None)
    if way == "batch":
        job = "{recipe: sleeping, on: tag=pair, set: {seconds: 0.1}, times: 2}"
        done = farm.run("batch", plan(farm, job))
        told = said(done)
    else:
        started = farm.run("run", "sleeping", "--on", "tag=pair", "--detach")
        assert started.exit_status == 0, said(started)
        done = farm.run("logs", "-f", started.text.strip())
        told = (farm.root / "worker.log").read_text()
    assert done.exit_status == 0, said(done)
    assert "health check of b-1: no health check yet" in told
    assert {run["board"] for run in runs(farm)} == {"b-2"}
    assert state.health.get("b-1").health == "bad"
    jobs = 2 if way == "batch" else 1
    assert wait_until(
        lambda: state.health.get("b-2").jobs_since_check == jobs, timeout=60, interval=0.2
    )
