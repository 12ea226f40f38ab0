"""The scheduler at full size: 200 virtual boards, 2,000 jobs of one process, another user's runs.

The boards' daemons, shells and agents run on this host too, which those of real boards do not:
nearly one second of CPU a job. Jobs of four minutes leave it time for them. Their lengths differ as
those of real recipes do: where all are nearly equal and a board has ten of them, no order fills the
last round (200 to 290 s: 94.7 % by the longest first, without any time between two jobs). On a host
that is busy with other things the makespan says little; the CPU time of a job does.
"""

import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from farm_lab import farm_lab
from labs import LabUnderTest

from labctl import process
from labctl.retry import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

#: Fewer for a host that is busy: LABCTL_SOAK_BOARDS=50 LABCTL_SOAK_JOBS=500.
BOARDS = int(os.environ.get("LABCTL_SOAK_BOARDS", "200"))
JOBS = int(os.environ.get("LABCTL_SOAK_JOBS", "2000"))
SEED = 15
#: Length of a job, in s, at least and at most.
SHORTEST, LONGEST = (
    float(word) for word in os.environ.get("LABCTL_SOAK_SECONDS", "60-420").split("-")
)
#: Runs of another user, which come when all boards are busy.
OTHERS = 20
#: Time, in s, between the end of a job and the start of the next on its board: on a busy host.
BETWEEN = 15.0


def resident_bytes(pid: int) -> int:
    """Memory of a process and its children; 0 once it has ended."""
    try:
        (line,) = [
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError):
        return 0
    return int(line.split()[1]) * 1024 + sum(resident_bytes(int(child)) for child in children)


@dataclass(frozen=True)
class CpuSeconds:
    """CPU time of a process, and of its children that have ended."""

    own: float = 0.0
    children: float = 0.0

    @classmethod
    def of(cls, pid: int) -> "CpuSeconds":
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system, children_user, children_system = (
            int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]
        )
        return cls(user + system, children_user + children_system)


def agents_cpu_seconds(trials: list[Path]) -> float:
    """CPU time that the boards' agents took beside their jobs: they are children of nobody here."""
    records = (json.loads((trial / "record.json").read_text()) for trial in trials)
    return sum(int(record["job"]["agent_cpu_ns"]) for record in records) / 1e9


@dataclass
class Used:
    """What the controller and its children took."""

    resident_bytes: int = 0
    cpu: CpuSeconds = field(default_factory=CpuSeconds)


def has_ended(pid: int, within_ms: int) -> bool:
    """Wait for the end of a child, which is not reaped."""
    descriptor = os.pidfd_open(pid)
    try:
        (waiting := select.poll()).register(descriptor, select.POLLIN)
        return bool(waiting.poll(within_ms))
    finally:
        os.close(descriptor)


def run_batch(plan: Path, used: Used) -> tuple[dict[str, Any], float]:
    """Run a plan; return what it found, and how long it took, in s."""
    argv = [sys.executable, "-m", "labctl", "batch", str(plan), "--json"]
    # Files: what it tells of 2,000 jobs fills a pipe.
    with plan.with_suffix(".said").open("w+b") as out, plan.with_suffix(".err").open("w+b") as err:
        began = time.monotonic()
        running = process.start(
            argv, cwd=plan.parent, env=os.environ, stdout=out.fileno(), stderr=err.fileno()
        )
        try:
            while not has_ended(running.pid, within_ms=1000):
                used.resident_bytes = max(used.resident_bytes, resident_bytes(running.pid))
            used.cpu = CpuSeconds.of(running.pid)  # it has ended, and is not yet reaped
        finally:
            status = process.stop(running)
    took = time.monotonic() - began
    assert status == 0, plan.with_suffix(".err").read_text()[-5000:]
    return json.loads(plan.with_suffix(".said").read_text()), took


def run_others(lab: LabUnderTest) -> list[dict[str, Any]]:
    """Run a recipe on any board as another user, OTHERS times; return their jobs.

    They come at once, when the batch keeps all boards busy.
    """
    asked = ("queue", "list", "--json", "--ended", "1000")

    def all_run() -> bool:
        jobs = json.loads(lab.run(*asked).text)
        return sum(job["state"] == "running" for job in jobs) >= 0.9 * BOARDS

    assert wait_until(all_run, timeout=600, interval=2)
    argv = [sys.executable, "-m", "labctl", "run", "sleeping", "--set", f"seconds={SHORTEST}"]
    argv += ["--on", f"target={agent_builds.HOST}", "--json"]
    with (lab.root / "others.said").open("wb") as said:
        environment = os.environ | {"LOGNAME": "other"}
        runs = [
            subprocess.Popen(argv, cwd=lab.root, env=environment, stdout=said, stderr=said)
            for _ in range(OTHERS)
        ]
        statuses = [run.wait(timeout=3600) for run in runs]
    assert statuses == [0] * OTHERS, (lab.root / "others.said").read_text()[-5000:]
    jobs = json.loads(lab.run(*asked).text)
    return [job for job in jobs if job["submitter"].startswith("other@")]


def test_two_hundred_boards_are_kept_busy(tmp_path: Path, private_state: Path) -> None:
    random.seed(SEED)
    seconds = [round(random.uniform(SHORTEST, LONGEST), 1) for _ in range(JOBS)]
    # The boards' storage is no part of this host's disk.
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as storage,
        farm_lab(tmp_path, BOARDS, storage=Path(storage)) as lab,
    ):
        entries = "".join(
            f"  - {{recipe: sleeping, set: {{seconds: {one}}}, expected: {one}s}}\n"
            for one in seconds
        )
        (tmp_path / "full.yaml").write_text(f"name: full\njobs:\n{entries}")
        # Each board gets the files once; what is measured are trials with a deploy's check.
        (tmp_path / "first.yaml").write_text(
            "name: first\njobs:\n  - {recipe: sleeping, set: {seconds: 0.1}, every_board: true}\n"
        )
        run_batch(tmp_path / "first.yaml", Used())
        boards, earlier = lab.board.process.pid, set(lab.finished_trials())
        before, used = CpuSeconds.of(boards), Used()
        with ThreadPoolExecutor(1) as pool:
            others = pool.submit(run_others, lab)
            found, took = run_batch(tmp_path / "full.yaml", used)
            waited = [job["started_at"] - job["submitted_at"] for job in others.result()]
        trials = [trial for trial in lab.finished_trials() if trial not in earlier]
        assert len({one["run"] for one in found["jobs"]}) == JOBS == len(trials) - OTHERS
        after = CpuSeconds.of(boards)
    least = max((sum(seconds) + OTHERS * SHORTEST) / BOARDS, *seconds)
    parts = {
        "controller": used.cpu.own,
        "its programs": used.cpu.children,
        "boards' hdc daemons": after.own - before.own,
        "boards' shells": after.children - before.children,
        "boards' agents": agents_cpu_seconds(trials),
    }
    each = ", ".join(f"{name} {part / JOBS:.3f}" for name, part in parts.items())
    print(
        f"\nseed {SEED}: {JOBS} jobs on {BOARDS} boards in {took:.0f} s, at least {least:.0f} s:"
        f" {least / took:.1%}; {used.resident_bytes / 2**20:.0f} MiB;"
        f" {sum(parts.values()) / JOBS:.3f} CPU s a job ({each}); load {os.getloadavg()};"
        f" {OTHERS} runs of another user waited {max(waited):.0f} s at most"
    )
    assert len(waited) == OTHERS
    assert max(waited) < LONGEST + BETWEEN
    assert used.resident_bytes < 400e6
    assert least / took >= 0.95
