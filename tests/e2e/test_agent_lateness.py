"""How late a stamp can be: what the agent tells of the thread that stamps."""

import os
import signal
import sys
import time
from pathlib import Path

import agent_builds
import pytest
from jobs import Job, soon

from labctl.records.trial import JobStatus

pytestmark = pytest.mark.e2e

MS = 1_000_000
#: Prints the monotonic clock, in one write each, every few milliseconds.
CLOCK = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    os.write(1, b"%d\\n" % time.monotonic_ns())
"""
#: Does so from when the file ``go`` is in the job's directory until ``enough`` is there too.
CLOCK_BETWEEN_FILES = """
import os, time
while not os.path.exists("go"): time.sleep(0.01)
while not os.path.exists("enough"):
    time.sleep(0.01)
    os.write(1, b"%d\\n" % time.monotonic_ns())
    os.close(os.open("begun", os.O_CREAT))
"""
#: Threads of a program, the first of which prints, on one CPU that others keep busy.
CROWDED = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        end = time.monotonic() + 1.5
        while time.monotonic() < end: pass
        os._exit(0)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    time.sleep(0.005)
    os.write(1, b"token ")
"""
#: Takes the permission for priorities away.
WITHOUT_PRIORITY = ("setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def lateness_ns(job: Job) -> list[int]:
    """By how much each stamp of standard output is later than what was printed."""
    text = job.read("stdout")
    return [
        stamp - int(text[offset : offset + length].split()[0])
        for stamp, stream, offset, length in job.timeline()
        if stream == 1
    ]


def test_a_stopped_agent_says_how_late_a_stamp_can_be(job: Job) -> None:
    """Its own work took 0.03 ms; stamps were late by as long as it was stopped."""
    started = job.start(sys.executable, "-c", CLOCK_BETWEEN_FILES)
    (job.directory / "go").touch()
    assert soon((job.directory / "begun").exists)
    os.kill(started["pid"], signal.SIGSTOP)
    time.sleep(1)  # how late stamps become
    os.kill(started["pid"], signal.SIGCONT)
    (job.directory / "enough").touch()
    status = job.finish()
    assert (status["outcome"], status["exit_status"]) == ("exited", 0)
    # What was printed meanwhile came in one piece, with one stamp.
    latest = max(lateness_ns(job))
    assert latest >= 900 * MS
    assert status["longest_pause_ns"] >= latest - 20 * MS
    assert status["longest_stamp_pause_ns"] >= latest - 20 * MS


def test_a_pause_before_anything_was_printed_makes_no_stamp_late(job: Job) -> None:
    """As while a model loads: the first piece of output came long after it."""
    started = job.start(sys.executable, "-c", CLOCK_BETWEEN_FILES)
    os.kill(started["pid"], signal.SIGSTOP)
    time.sleep(0.3)  # the pause
    os.kill(started["pid"], signal.SIGCONT)
    (job.directory / "go").touch()
    assert soon((job.directory / "begun").exists)
    (job.directory / "enough").touch()
    status = job.finish()
    assert status["longest_pause_ns"] >= 280 * MS
    assert status["longest_stamp_pause_ns"] < 20 * MS


def test_who_stamps_has_real_time_priority_where_that_is_permitted(job: Job) -> None:
    script = (
        "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))\n"
        "import time\nwhile not os.path.exists('enough'): time.sleep(0.01)"
    )
    started = job.start(sys.executable, "-c", script)
    threads = sorted(int(p.name) for p in Path(f"/proc/{started['pid']}/task").iterdir())
    policies = [os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK for thread in threads]
    (job.directory / "enough").touch()
    status = job.finish()
    # The job is as any other program, and so is who takes the samples.
    normal = f"{os.SCHED_OTHER} {os.getpriority(os.PRIO_PROCESS, 0)}\n"
    assert job.read("stdout").decode() == normal
    permitted = policies[0] == os.SCHED_FIFO
    assert status["stamp_scheduler"] == ("fifo" if permitted else "other")
    assert policies[1:] == [os.SCHED_OTHER]
    if os.geteuid() == 0:
        assert permitted


def test_a_real_time_parent_makes_no_real_time_job(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    job = Job(agent_builds.native_agent(), tmp_path / "job", prefix=("chrt", "-f", "1"))
    job.start(sys.executable, "-c", "import os; print(os.sched_getscheduler(0))")
    job.finish()
    assert job.read("stdout") == b"0\n"


def test_waits_for_a_cpu_are_told(tmp_path: Path) -> None:
    """Everything on one CPU, whoever stamps without any priority."""
    prefix = WITHOUT_PRIORITY if os.geteuid() == 0 else ()
    job = Job(agent_builds.native_agent(), tmp_path / "job", prefix=("taskset", "-c", "0", *prefix))
    job.start(sys.executable, "-c", CROWDED, options=("--sample-ms", "0"))
    status = job.finish()
    assert status["stamp_scheduler"] == "other"
    waited, longest = status["stamp_wait_ns"], status["longest_stamp_wait_ns"]
    assert waited > MS
    assert 0 < longest <= waited


def test_a_job_that_prints_nothing_has_no_late_stamp(job: Job) -> None:
    job.start("/bin/true")
    status = job.finish()
    assert status["stamp_wait_ns"] is None
    assert JobStatus.model_validate(status, extra="ignore").stamp_wait_ns is None
    assert status["longest_stamp_pause_ns"] is None


def test_stamps_are_in_time_although_all_cores_are_busy(job: Job) -> None:
    """Late by more than 1 ms were 69 of 6,000 without real-time priority."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    busy = (
        "import os, time\n"
        "for _ in range(2 * os.cpu_count()):\n"
        "    if os.fork() == 0:\n"
        "        end = time.monotonic() + 2\n"
        "        while time.monotonic() < end: pass\n"
        "        os._exit(0)\n"
    )
    job.start(sys.executable, "-c", busy + CLOCK, "200", "0.005")
    status = job.finish()
    late = sorted(lateness_ns(job))
    assert late[0] >= 0
    assert late[len(late) // 2] < MS
    assert status["stamp_wait_ns"] < 0.01 * (job.timeline()[-1][0] - job.timeline()[0][0])
