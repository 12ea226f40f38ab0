"""What the agent sees of a job and its board, and the CPUs and the priority it gives a job."""

import json
import os
import sys
from pathlib import Path

import agent_builds
import pytest
from jobs import Job

from labctl import process
from labctl.results.telemetry import read_telemetry

pytestmark = pytest.mark.e2e

#: Two threads; one works, one waits.
BUSY = """
import threading, time
over = threading.Event()
idle = threading.Thread(target=over.wait)
idle.start()
end = time.process_time() + 0.5
while time.process_time() < end: sum(range(1000))
over.set()
idle.join()
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def test_telemetry_tells_threads_apart(job: Job) -> None:
    job.start(sys.executable, "-c", BUSY, options=("--sample-ms", "50"))
    assert job.finish()["exit_status"] == 0
    samples = read_telemetry(job.directory / "telemetry").samples
    seen = [sample for sample in samples if len(sample.threads) == 2]
    assert seen
    busy, idle = sorted((sum(times) for times in seen[-1].threads.values()), reverse=True)
    assert busy >= 100_000_000
    assert idle < busy / 4
    assert all(sample.runqueue_wait_ns is not None for sample in seen)


def test_telemetry_counts_what_comes_from_storage(job: Job, tmp_path: Path) -> None:
    data = tmp_path / "data"
    size = 16 << 20
    data.write_bytes(os.urandom(size))
    script = (
        "import os, sys\n"
        "f = os.open(sys.argv[1], os.O_RDONLY)\n"
        "os.fsync(f)\n"
        "os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "while os.read(f, 1 << 20): pass\n"
    )
    job.start(sys.executable, "-c", script, str(data), options=("--sample-ms", "20"))
    assert job.finish()["exit_status"] == 0
    samples = read_telemetry(job.directory / "telemetry").samples
    first, last = samples[0], samples[-1]
    if first.device_read_bytes is None or last.read_bytes is None:
        pytest.skip("the files of tests are on no block device here")
    assert last.read_bytes >= size * 0.9
    assert last.device_read_bytes is not None
    assert last.device_read_bytes - first.device_read_bytes >= size * 0.9


def test_telemetry_tells_of_the_board(job: Job) -> None:
    job.start("/bin/sleep", "0.1")
    job.finish()
    sample = read_telemetry(job.directory / "telemetry").samples[0]
    assert sample.cpu_busy_ns
    pressure = [p for p in ("cpu", "memory", "io") if Path(f"/proc/pressure/{p}").exists()]
    for name in pressure:
        assert f"{name}_some" in sample.pressure_ns
    assert bool(sample.pressure_ns) == bool(pressure)


def test_what_a_board_lacks_is_left_out_of_its_telemetry(tmp_path: Path) -> None:
    (tmp_path / "fakes" / "sys").mkdir(parents=True)
    job = Job(
        agent_builds.native_agent(),
        tmp_path / "job",
        {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(tmp_path / "fakes")},
    )
    job.start("/bin/true")
    job.finish()
    for sample in job.telemetry():
        assert not {"temps_mc", "cooling", "freq_khz", "freq_limit_khz"} & set(sample)


def test_throttling_is_seen(tmp_path: Path) -> None:
    fakes = tmp_path / "fakes"
    thermal = fakes / "sys/class/thermal"
    cpufreq = fakes / "sys/devices/system/cpu/cpu0/cpufreq"
    for folder, files in (
        (thermal / "thermal_zone0", {"type": "soc-thermal", "temp": "95000"}),
        (thermal / "thermal_zone1", {"type": "vbat", "temp": "4120"}),
        (thermal / "thermal_zone2", {"type": "pm8550-bcl-lvl0", "temp": "0"}),
        (thermal / "thermal_zone3", {"type": "socd", "temp": "18"}),
        (thermal / "cooling_device0", {"type": "thermal-cpufreq-0", "cur_state": "3"}),
        (cpufreq, {"scaling_cur_freq": "1104000", "scaling_max_freq": "1416000"}),
    ):
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n")
    environment = {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(fakes)}
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    job.start("/bin/true")
    job.finish()
    sample = read_telemetry(job.directory / "telemetry").samples[0]
    # Phones have zones of voltage, current and charge too.
    assert sample.temperatures_mc == {"thermal_zone0 soc-thermal": 95000}
    assert sample.untrusted_zones == {}
    assert sample.cooling == {"cooling_device0 thermal-cpufreq-0": 3}
    assert sample.freq_khz == {"0": 1_104_000}
    assert sample.freq_limit_khz == {"0": 1_416_000}


def test_a_zone_that_reads_no_thousandths_of_a_degree_is_absent_and_named(tmp_path: Path) -> None:
    fakes = tmp_path / "fakes"
    for number, reads in enumerate(("78", "45000", "999999")):
        zone = fakes / f"sys/class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text("soc\n")
        (zone / "temp").write_text(f"{reads}\n")
    environment = {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(fakes)}
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    job.start("/bin/true")
    job.finish()
    untrusted = {
        "thermal_zone0 soc": "78, perhaps whole degrees",
        "thermal_zone2 soc": "999999, outside -40 to 150 °C",
    }
    sample = read_telemetry(job.directory / "telemetry").samples[0]
    assert sample.temperatures_mc == {"thermal_zone1 soc": 45000}
    assert sample.untrusted_zones == untrusted
    asked = process.run([job.agent, "facts"], timeout=60, env={**os.environ, **environment})
    facts = json.loads(asked.stdout)
    assert (facts["temps_mc"], facts["temps_untrusted"]) == (
        {"thermal_zone1 soc": 45000},
        untrusted,
    )


def test_a_job_runs_on_the_cpus_it_is_given(job: Job) -> None:
    last = max(os.sched_getaffinity(0))
    script = "import os; print(sorted(os.sched_getaffinity(0)), os.nice(0))"
    started = job.start(sys.executable, "-c", script, options=("--cpus", str(last), "--nice", "3"))
    assert (started["cpus"], started["nice"]) == (str(last), os.nice(0) + 3)
    assert job.finish()["exit_status"] == 0
    assert job.read("stdout").decode() == f"[{last}] {os.nice(0) + 3}\n"


def test_cpus_that_are_not_there_are_refused(job: Job) -> None:
    done = job.run("/bin/true", options=("--cpus", f"0-{os.cpu_count()}"))
    assert done.exit_status == 71
    assert json.loads(done.stdout)["error"] == "cpus"
    assert job.finish()["outcome"] == "spawn-failed"


@pytest.mark.parametrize(
    "words",
    [
        ("--cpus", "3-1"),
        ("--cpus", "0,"),
        ("--cpus", "-1"),
        ("--cpus", "all"),
        ("--cpus", "99999"),
        ("--nice", "20"),
        ("--nice", "-21"),
        ("--nice", "x"),
    ],
)
def test_other_cpus_and_priorities_are_wrong_use(job: Job, words: tuple[str, str]) -> None:
    done = job.run("/bin/true", options=words)
    assert done.exit_status == 2
    assert json.loads(done.stdout)["error"] == "usage"


def test_samples_never_hold_up_the_stamps(job: Job) -> None:
    """A sample every millisecond, and stamps that are as good as without any."""
    script = (
        "import os, time\n"
        "for i in range(200):\n"
        "    time.sleep(0.01); os.write(1, b'%d\\n' % time.monotonic_ns())\n"
    )
    job.start(sys.executable, "-c", script, options=("--sample-ms", "1"))
    job.finish()
    out = job.read("stdout")
    late = [
        # Of lines that were read as one piece, the last one was just written.
        stamp - int(out[offset : offset + length].split()[-1])
        for stamp, _, offset, length in job.timeline()
    ]
    assert len(job.telemetry()) > 100
    assert sorted(late)[len(late) // 2] < 1_000_000


def test_many_threads_make_no_sample_invalid(job: Job) -> None:
    count = 100
    script = (
        "import threading, time\n"
        "over = threading.Event()\n"
        f"ts = [threading.Thread(target=over.wait) for _ in range({count})]\n"
        # They sleep while samples are taken.
        "[t.start() for t in ts]; time.sleep(0.5); over.set(); [t.join() for t in ts]\n"
    )
    job.start(sys.executable, "-c", script, options=("--sample-ms", "20"))
    job.finish()
    read = read_telemetry(job.directory / "telemetry")
    assert read.unreadable_lines == 0
    assert max(len(sample.threads) for sample in read.samples) == 64
