"""The on-board agent against names, threads, sensors and limits that were made to confuse it."""

import json
import resource
import sys
from pathlib import Path

import agent_builds
import pytest
from jobs import Job, is_alive, pid_in, soon

from labctl import process
from labctl.results.telemetry import read_telemetry

pytestmark = pytest.mark.e2e

#: As a process may call itself: what ends the name in /proc/PID/stat, and fields as they follow it.
NAMES = (") Z 1 1 1 (", "a b) R 0\\n(", "((((", ")))) T 1", "\\n\\n\\n", "x\\ty ")
CALL_ITSELF = """
def call_itself(name):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name.encode().decode("unicode_escape"))
"""
#: Orphans in sessions of their own, all with such names, that ignore SIGTERM.
DISGUISED = f"""
import os, signal, sys, time
{CALL_ITSELF}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
call_itself(sys.argv[1])
for name, file in zip(sys.argv[1::2], sys.argv[2::2]):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            call_itself(name)
            with open(file, "w") as out:
                out.write(f"{{os.getpid()}}\\n")
            time.sleep(600)
        os._exit(0)
end = time.process_time() + 0.2
while time.process_time() < end: pass
time.sleep(600)
"""
#: Threads that come and go all the time, with such names.
FLICKERING = """
import sys, threading, time
end = time.monotonic() + 1
def one(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)
names = [") R 1 (", "a\\nb", "((", "))"]
while time.monotonic() < end:
    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def test_no_name_hides_a_process_from_the_end(job: Job, tmp_path: Path) -> None:
    words = [w for i, name in enumerate(NAMES) for w in (name, str(tmp_path / f"pid{i}"))]
    started = job.start(sys.executable, "-c", DISGUISED, *words, timeout=300)
    orphans = [pid_in(tmp_path / f"pid{i}", started["pid"]) for i in range(len(NAMES))]
    assert all(map(is_alive, orphans))
    status = job.look("stop", 60)["status"]
    assert status["outcome"] == "stopped"
    assert not any(map(is_alive, [*orphans, started["job_pid"]]))
    assert status["unkilled_processes"] == 0


def test_no_name_falsifies_the_telemetry(job: Job, tmp_path: Path) -> None:
    words = (NAMES[0], str(tmp_path / "pid"))
    started = job.start(sys.executable, "-c", DISGUISED, *words, options=("--sample-ms", "20"))
    pid_in(tmp_path / "pid", started["pid"])
    job.look("stop", 60)
    read = read_telemetry(job.directory / "telemetry")
    assert read.unreadable_lines == 0
    times = [s.user_ns + (s.system_ns or 0) for s in read.samples if s.user_ns is not None]
    assert times == sorted(times)
    assert times[-1] < 60_000_000_000
    assert all(sample.minor_faults for sample in read.samples)


def test_threads_that_come_and_go_leave_whole_samples(job: Job) -> None:
    job.start(sys.executable, "-c", FLICKERING, options=("--sample-ms", "1"))
    assert job.finish()["exit_status"] == 0
    read = read_telemetry(job.directory / "telemetry")
    assert read.unreadable_lines == 0
    assert len(read.samples) > 20
    assert max(len(sample.threads) for sample in read.samples) > 1


def test_what_is_only_a_part_is_not_told_as_the_whole(job: Job) -> None:
    """Of more threads than are looked at, no sum of their waiting is given."""
    script = (
        "import threading, time\n"
        "over = threading.Event()\n"
        "ts = [threading.Thread(target=over.wait) for _ in range(100)]\n"
        # They sleep while samples are taken.
        "[t.start() for t in ts]; time.sleep(0.5); over.set(); [t.join() for t in ts]\n"
    )
    job.start(sys.executable, "-c", script, options=("--sample-ms", "20"))
    job.finish()
    samples = read_telemetry(job.directory / "telemetry").samples
    crowded = [sample for sample in samples if len(sample.threads) == 64]
    assert crowded
    assert all(sample.runqueue_wait_ns is None for sample in crowded)


def test_sensors_may_be_called_anything(tmp_path: Path) -> None:
    kinds = ['quo"te\\back', "ünïcode-" * 8, "tab\tbell\a", "{}[]:,", "two\nlines", ""]
    fakes = tmp_path / "fakes"
    for number, kind in enumerate(kinds):
        zone = fakes / f"sys/class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(kind)
        (zone / "temp").write_text("-40000\n" if number == 0 else f"{number}000\n")
    broken = fakes / "sys/class/thermal/thermal_zone9"
    broken.mkdir()
    (broken / "type").write_text("broken")
    (broken / "temp").write_text('no"thing\n')
    environment = {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(fakes)}
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    job.start("/bin/true")
    job.finish()
    seen = job.telemetry()[0]["temps_mc"]
    untrusted = {"thermal_zone9 broken": 'no"thing, not a whole number'}
    assert job.telemetry()[0]["temps_untrusted"] == untrusted
    assert seen['thermal_zone0 quo"te\\back'] == -40000
    assert seen["thermal_zone4 two"] == 4000
    assert len(seen) == len(kinds)
    assert job.look()["sample"]["temps_mc"] == seen


def test_samples_cannot_fill_the_board_either(job: Job) -> None:
    limit = 200_000
    options = ("--sample-ms", "1", "--max-output-bytes", str(limit))
    job.start("/bin/sleep", "3", options=options)
    status = job.finish()
    assert (status["outcome"], status["exit_status"]) == ("exited", 0)
    samples = job.telemetry()
    assert limit / 4 < len(job.read("telemetry")) < limit * 1.1
    # They become rarer, but go on to the end.
    ends = [sample["mono_ns"] for sample in samples]
    assert ends[-1] >= status["end_mono_ns"]
    assert ends[-2] - ends[-3] > ends[1] - ends[0]


def test_what_was_printed_so_far_is_told_while_it_runs(job: Job) -> None:
    script = (
        "import os, time\n"
        "os.write(2, b'loading\\nreading ')\n"
        "for i in range(4): os.write(1, b'a\\nb '); time.sleep(0.05)\n"
        "time.sleep(600)\n"  # until it is killed
    )
    started = job.start(sys.executable, "-c", script, options=("--sample-ms", "50"))
    seen: list[dict[str, object]] = []

    def told() -> bool:
        sample = (answer := job.look(seconds=0.2))["sample"]
        seen.append(answer)
        return bool(sample and sample["stdout"]["pieces"] == 4 and answer["stderr_end"])

    assert soon(told), seen[-1]
    answer = seen[-1]
    sample = answer["sample"]
    assert isinstance(sample, dict)
    out, err = sample["stdout"], sample["stderr"]
    assert (out["pieces"], out["lines"], out["bytes"]) == (4, 4, 16)
    assert (err["pieces"], err["lines"], err["bytes"]) == (1, 1, 16)
    assert started["start_mono_ns"] < out["first_ns"] < out["last_ns"] <= sample["mono_ns"]
    assert answer["stderr_end"] == "loading\nreading "
    assert answer["state"] == "running"
    job.look("stop", 60)
    # The timeline says the same.
    stamps = [stamp for stamp, stream, _, _ in job.timeline() if stream == 1]
    assert (stamps[0], stamps[-1]) == (out["first_ns"], out["last_ns"])


def test_before_anything_was_printed_no_time_is_told(job: Job) -> None:
    job.start("/bin/sleep", "0.1", options=("--sample-ms", "20"))
    job.finish()
    sample = job.telemetry()[0]
    assert sample["stdout"] == {"pieces": 0, "lines": 0, "bytes": 0}


def test_no_samples_no_word_of_them(job: Job) -> None:
    job.start("/bin/true", options=("--sample-ms", "0"))
    job.finish()
    assert job.look()["sample"] is None


def test_a_job_may_lock_what_is_permitted_and_no_more_is_claimed(job: Job) -> None:
    script = "import resource; print(*resource.getrlimit(resource.RLIMIT_MEMLOCK))"
    started = job.start(sys.executable, "-c", script, options=("--memlock", "1"))
    job.finish()
    soft, hard = map(int, job.read("stdout").split())
    assert soft == hard
    told = started["memlock_bytes"]
    assert told == ("unlimited" if soft == resource.RLIM_INFINITY else soft)
    assert soft in (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1])


def test_a_job_that_did_not_ask_keeps_its_limit(job: Job) -> None:
    started = job.start("/bin/true")
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    expected = "unlimited" if soft == resource.RLIM_INFINITY else soft
    assert started["memlock_bytes"] == expected
    assert job.finish()["suspended_ns"] == 0


def test_a_board_without_dev_null_starts_nothing_and_says_so(tmp_path: Path) -> None:
    agent = agent_builds.native_agent()
    script = (
        f"mount -t tmpfs none /dev && exec {agent} run --dir {tmp_path}/job --timeout 30"
        " --epoch 1 -- /bin/true"
    )
    words = ["unshare", "--mount", "--map-root-user", "/bin/sh", "-c", script]
    done = process.run(words, timeout=120)
    if b"unshare" in done.stderr or b"mount:" in done.stderr:
        pytest.skip(f"no private mounts here: {done.tail().strip()}")
    assert done.exit_status == 71
    said = json.loads(done.stdout)
    assert said["error"] == "system"
    assert "/dev/null" in said["message"]
