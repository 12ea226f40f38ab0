"""CPU time of a job's whole tree, and of the kernel's page reclaim, apart from everything else."""

import os
import sys
from pathlib import Path

import agent_builds
import pytest
from jobs import Job

from labctl.records.telemetry import TelemetrySample
from labctl.results.telemetry import read_telemetry

pytestmark = pytest.mark.e2e

SECOND = 10**9
#: Of a time that is counted in ticks of 10 ms, rounded down twice a process.
COUNTED = 0.95
#: Works for so many seconds of CPU time, on two threads' worth of processes.
BUSY = "import time\nend = {seconds}\nwhile time.process_time() < end: pass"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def samples(job: Job) -> tuple[TelemetrySample, ...]:
    return read_telemetry(job.directory / "telemetry").samples


def tree_ns(job: Job) -> int:
    """The tree's time as the last sample has it."""
    last = samples(job)[-1].tree_cpu_ns
    assert last is not None
    return last


def used_ns(status: dict[str, int]) -> int:
    """What the kernel says of all that the job started, once it is over."""
    return status["user_ns"] + status["system_ns"]


def test_a_program_behind_a_shell_is_the_job(job: Job, tmp_path: Path) -> None:
    program = tmp_path / "program"
    # Long: a look at all processes of a host with many takes 1/1000 of the time, and no more.
    program.write_text(BUSY.format(seconds=6))
    job.start(
        *("/bin/sh", "-c", f"{sys.executable} {program}\ntrue"), options=("--sample-ms", "100")
    )
    status = job.finish()
    assert status["exit_status"] == 0
    # The shell itself did next to nothing.
    own = samples(job)[-1]
    assert (own.user_ns or 0) + (own.system_ns or 0) < SECOND // 4
    assert tree_ns(job) >= COUNTED * 6 * SECOND
    assert tree_ns(job) == pytest.approx(used_ns(status), rel=0.05)
    # Seen while it ran, not only at its end; how often depends on the host's other processes.
    seen = [s.tree_cpu_ns for s in samples(job) if s.tree_cpu_ns]
    assert seen[0] < 5 * SECOND
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("sh -c '{program}; true'", id="ended and waited for"),
        pytest.param(
            "(setsid sh -c '{program}; touch done' &); until [ -e done ]; do sleep 0.1; done",
            id="orphan in another session",
        ),
        pytest.param("{program} & {program} & wait; true", id="two at once"),
    ],
)
def test_no_descendant_is_somebody_else(job: Job, tmp_path: Path, way: str) -> None:
    program = tmp_path / "program"
    program.write_text(BUSY.format(seconds=0.5))
    script = way.format(program=f"{sys.executable} {program}")
    job.start("/bin/sh", "-c", script, options=("--sample-ms", "100"))
    status = job.finish()
    assert tree_ns(job) == pytest.approx(used_ns(status), rel=0.1)
    assert tree_ns(job) >= COUNTED * SECOND // 2 * way.count("{program}")


def test_others_are_not_the_job(job: Job, tmp_path: Path) -> None:
    """A program of the same name, started beside it."""
    program = tmp_path / "program"
    program.write_text(BUSY.format(seconds=0.7))
    beside = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, str(program)])
    job.start("/bin/sh", "-c", "sleep 1; true", options=("--sample-ms", "100"))
    job.finish()
    os.waitpid(beside, 0)
    assert tree_ns(job) < SECOND // 4


def test_the_kernels_page_reclaim_is_told_apart(job: Job) -> None:
    names = {p.read_text().strip() for p in Path("/proc").glob("[0-9]*/comm") if p.exists()}
    if not any(name.startswith("kswapd") for name in names):
        pytest.skip("no kernel threads are to be seen here")
    job.start("/bin/sleep", "0.1")
    job.finish()
    assert samples(job)[-1].reclaim_cpu_ns is not None


def test_a_program_that_calls_itself_kswapd_is_none(job: Job, tmp_path: Path) -> None:
    script = (
        "import ctypes, time\n"
        "ctypes.CDLL(None).prctl(15, b'kswapd0', 0, 0, 0)\n"
        "while time.process_time() < 0.5: pass\n"
    )
    job.start(sys.executable, "-c", script, options=("--sample-ms", "100"))
    job.finish()
    reclaim = [s.reclaim_cpu_ns for s in samples(job) if s.reclaim_cpu_ns is not None]
    assert not reclaim or reclaim[-1] - reclaim[0] < SECOND // 4
    assert tree_ns(job) >= COUNTED * SECOND // 2


def test_a_tree_of_fifty_processes_costs_little(job: Job) -> None:
    """The bench has the figure; here, no more than it may be on a busy machine."""
    script = (
        "import os, time\n"
        "for _ in range(50):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(600)\n"  # until it is killed
        "while time.process_time() < 3: pass\n"
        "os.killpg(0, 9)\n"
    )
    job.start(sys.executable, "-c", script)
    status = job.finish()
    # Of what it works, or would on a machine of its own: beside others it is looked at for longer.
    assert status["agent_cpu_ns"] <= 0.01 * max(used_ns(status), status["wall_ns"])
