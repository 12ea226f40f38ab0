"""What CPU and kernel count of a job: perf events, real ones of software, stand-ins of hardware."""

import json
import sys
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from jobs import Job

pytestmark = pytest.mark.e2e

#: Works, then starts a thread and a process that work; prints in between.
WORKS = """
import subprocess, sys, threading, time
def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: sum(range(1000))
work(0.2)
print("one", flush=True)
thread = threading.Thread(target=work, args=(0.2,))
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.2: pass"])
print("two", flush=True)
"""


def counted(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in job.read("counters").splitlines()]


def test_software_events_are_counted_for_all_that_a_job_starts(tmp_path: Path) -> None:
    job = Job(agent_builds.native_agent(), tmp_path / "job")
    job.start(sys.executable, "-c", WORKS)
    status = job.finish()
    found, lines = status["counters"], counted(job)
    if "task_clock_ns" in found["absent"]:
        pytest.skip(found["absent"]["task_clock_ns"])
    used = status["user_ns"] + status["system_ns"]
    assert found["counts"]["task_clock_ns"] == pytest.approx(used, rel=0.15)
    assert found["counts"]["page_faults"] > 100
    stamps = [stamp for stamp, stream, _, _ in job.timeline() if stream == 1]
    assert lines[0]["mono_ns"] == stamps[0]
    assert 200e6 <= lines[0]["counts"]["task_clock_ns"] < found["counts"]["task_clock_ns"] - 300e6
    assert lines[-1]["counts"] == found["counts"]
    assert all(found["counts"].get(name) is None for name in found["absent"])


def test_hardware_events_are_scaled_and_those_that_took_turns_are_marked(tmp_path: Path) -> None:
    fakes = tmp_path / "fakes"
    (fakes / "sys").mkdir(parents=True)
    environment = {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(fakes)}
    job = Job(agent_builds.counting_agent(), tmp_path / "job", environment)
    job.start("/bin/sh", "-c", "sleep 0.3; echo; sleep 0.2")
    found = job.finish()["counters"]
    counts = found["counts"]
    assert counts["instructions"] == pytest.approx(counts["cycles"] / 2, rel=0.01)
    assert counts["last_level_refills"] == pytest.approx(counts["cycles"] / 200, rel=0.01)
    assert found["counted_permille"] == {"last_level_refills": 500}
    assert found["refill_event"] == "cache-misses"
    assert found["absent"] == {
        "bus_accesses": "this CPU's driver lists no such event",
        "stalled_cycles": "this CPU or kernel does not count it (No such file or directory)",
    }
    first, last = counted(job)
    assert last["counts"]["cycles"] > first["counts"]["cycles"] + 200e6


def pmu(fakes: Path, name: str) -> None:
    folder = fakes / "sys/bus/event_source/devices" / name
    (folder / "events").mkdir(parents=True)
    (folder / "type").write_text("8\n")
    for event, number in (
        ("cpu_cycles", "0x11"), ("inst_retired", "0x08"), ("l2d_cache_refill", "0x17"),
        ("l3d_cache_refill", "0x2a"), ("bus_access", "0x19"),
    ):  # fmt: skip
        (folder / "events" / event).write_text(f"event={number}\n")


def test_an_arm_cpu_counts_the_refills_of_its_last_cache(tmp_path: Path) -> None:
    fakes = tmp_path / "fakes"
    pmu(fakes, "armv8_cortex_a55")
    environment = {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(fakes)}
    job = Job(agent_builds.counting_agent(), tmp_path / "job", environment)
    job.start("/bin/sh", "-c", "sleep 0.3")
    found = job.finish()["counters"]
    counts = found["counts"]
    assert counts["instructions"] == pytest.approx(counts["cycles"] * 1.5, rel=0.01)
    assert counts["last_level_refills"] == pytest.approx(counts["cycles"] / 50, rel=0.01)
    assert found["refill_event"] == "l3d_cache_refill"
    assert "bus_accesses" in counts
    pmu(fakes, "armv8_cortex_a76")
    job = Job(agent_builds.counting_agent(), tmp_path / "other", environment)
    job.start("/bin/true")
    found = job.finish()["counters"]
    assert found["absent"]["cycles"] == "several kinds of CPU count apart"


def test_a_user_counts_without_the_kernels_work(tmp_path: Path) -> None:
    (tmp_path / "fakes/sys").mkdir(parents=True)
    environment = {
        "LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(tmp_path / "fakes"),
        "STAND_IN_USER_ONLY": "1",
    }  # fmt: skip
    job = Job(agent_builds.counting_agent(), tmp_path / "job", environment)
    job.start("/bin/true")
    found = job.finish()["counters"]
    assert found["user_only"] is True
    assert "cycles" in found["counts"]
    assert found["absent"]["context_switches"] == "only root may count the kernel's work here"


def test_a_program_that_cannot_start_counted_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    job = Job(agent_builds.native_agent(), tmp_path / "job")
    assert job.run(str(broken)).exit_status == 126
    found = json.loads((job.directory / "status.json").read_text())["counters"]
    assert found["counts"] == {}


def test_counting_a_chatty_job_stays_cheap(tmp_path: Path) -> None:
    job = Job(agent_builds.counting_agent(), tmp_path / "job")
    job.start("/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done")
    job.finish()
    assert len(counted(job)) < len(job.timeline()) / 10
