"""The on-board agent runs a job: streams, stamps, status, detachment."""

import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agent_builds
import pytest
from jobs import Job, is_alive, pid_in, soon

from labctl import process

pytestmark = pytest.mark.e2e

#: Prints the monotonic clock itself, each time in one write, and waits a known time between.
TRUTH = """
import os, sys, time
for gap in map(float, sys.argv[1:]):
    time.sleep(gap)
    os.write(1, b"%d\\n" % time.monotonic_ns())
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def test_a_job_leaves_its_streams_and_its_status(job: Job) -> None:
    started = job.start("/bin/sh", "-c", "printf out; printf err >&2; sleep 0.05; exit 3")
    status = job.finish()
    assert (status["outcome"], status["exit_status"], status["signal"]) == ("exited", 3, None)
    assert status["error"] is None
    assert job.read("stdout") == b"out"
    assert job.read("stderr") == b"err"
    assert (status["stdout_bytes"], status["stderr_bytes"]) == (3, 3)
    assert started == json.loads(job.read("started.json"))
    assert started["argv"][0] == "/bin/sh"
    assert started["emulator"] is None
    assert started["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert status["wall_ns"] == status["end_mono_ns"] - status["start_mono_ns"]
    assert 50_000_000 <= status["wall_ns"] < 5_000_000_000
    assert status["start_mono_ns"] == started["start_mono_ns"]
    assert abs(status["end_utc_ns"] - time.time_ns()) < 60_000_000_000
    assert not list(job.directory.glob("*.tmp"))


def test_the_command_returns_at_once_and_holds_no_stream(job: Job) -> None:
    began = time.monotonic()
    # `process.run` reads both pipes to their end: a held one would keep it for 50 s.
    job.start("/bin/sh", "-c", "sleep 50")
    assert time.monotonic() - began < 20
    assert job.look()["state"] == "running"
    assert job.look("stop", 60)["state"] == "finished"


def test_a_job_that_is_about_to_be_started_is_waited_for_and_stopped(job: Job) -> None:
    """Who is interrupted while it starts a job wants nothing of it to be left."""
    job.directory.mkdir()
    directory = os.open(job.directory, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_SH)  # as the supervisor does first of all
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(job.look, "stop", 60)
        assert soon(lambda: _others_with_open(job.directory))
        started = job.start("/bin/sleep", "1000", timeout=2000)
        os.close(directory)
        assert stopped.result()["state"] == "finished"
    assert not is_alive(started["job_pid"])
    assert job.finish()["outcome"] == "stopped"


def _others_with_open(path: Path) -> bool:
    """Whether another process has that file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(os.getpid()) != link.parts[2] and link.readlink() == path:
                return True
        except OSError:
            continue  # it has closed it, or ended
    return False


def test_where_no_job_is_nothing_is_waited_for(job: Job) -> None:
    job.directory.mkdir()
    assert job.look("stop", 1000)["state"] == "absent"


def test_a_job_outlives_the_session_that_started_it(job: Job) -> None:
    run = f"{job.agent} run --dir {job.directory} --timeout 30 --epoch 1 --"
    script = f"{run} /bin/sh -c 'sleep 0.7; echo done'; sleep 60"
    launcher = process.start(["/bin/sh", "-c", script])
    assert soon((job.directory / "started.json").exists)
    process.stop(launcher)
    launcher.communicate()
    assert job.finish()["exit_status"] == 0
    assert job.read("stdout") == b"done\n"


def test_the_timeline_tells_when_each_piece_was_written(job: Job) -> None:
    gaps = [0.2, *[0.02] * 30, *[0.1] * 5]
    started = job.start(sys.executable, "-c", TRUTH, *map(str, gaps))
    assert job.finish()["exit_status"] == 0
    entries = job.timeline()
    assert len(entries) == len(gaps)
    out, errors = job.read("stdout"), []
    for stamp, stream, offset, length in entries:
        assert stream == 1
        written_ns = int(out[offset : offset + length])
        assert stamp >= written_ns
        elapsed = written_ns - started["start_mono_ns"]
        errors.append((stamp - written_ns) / max(1_000_000, elapsed // 100))
    # On a shared machine a single stamp can be late because nothing at all ran.
    assert statistics.median(errors) < 1
    assert sum(error < 1 for error in errors) >= len(errors) * 0.9, sorted(errors)


def test_the_timeline_covers_both_streams_without_holes(job: Job) -> None:
    script = "for i in 1 2 3 4 5; do echo out$i; sleep 0.01; echo err$i >&2; sleep 0.01; done"
    job.start("/bin/sh", "-c", script)
    job.finish()
    ends = {1: 0, 2: 0}
    last = 0
    for stamp, stream, offset, length in job.timeline():
        assert stamp >= last
        last = stamp
        assert offset == ends[stream]
        assert length > 0
        ends[stream] = offset + length
    assert ends == {1: len(job.read("stdout")), 2: len(job.read("stderr"))}


def test_binary_output_is_kept_byte_for_byte(job: Job, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3_000_000) + b"\0\0no newline at the end"
    (tmp_path / "data").write_bytes(data)
    job.start("/bin/cat", str(tmp_path / "data"))
    assert job.finish()["stdout_bytes"] == len(data)
    assert job.read("stdout") == data


def test_a_megabyte_a_second_is_kept_up_with(job: Job) -> None:
    script = (
        "import os, time\n"
        "began = time.monotonic()\n"
        "for i in range(2000):\n"
        "    os.write(1, b'%07d' % i * 143 + b'\\n')\n"
        "    while time.monotonic() - began < i / 1000: time.sleep(0.0005)\n"
    )
    job.start(sys.executable, "-c", script)
    status = job.finish()
    assert status["exit_status"] == 0
    assert job.read("stdout") == b"".join(b"%07d" % i * 143 + b"\n" for i in range(2000))
    assert status["agent_cpu_ns"] < status["wall_ns"] * 0.2


def test_a_job_killed_by_a_signal_is_told_from_one_that_exits(job: Job) -> None:
    job.start("/bin/sh", "-c", "kill -SEGV $$")
    status = job.finish()
    assert (status["outcome"], status["exit_status"], status["signal"]) == ("signaled", None, 11)


def test_a_job_killed_from_outside_is_not_called_a_time_out(job: Job) -> None:
    started = job.start("/bin/sleep", "30")
    os.kill(started["job_pid"], 9)
    status = job.finish()
    assert (status["outcome"], status["signal"]) == ("signaled", 9)
    assert status["oom_kills"] is not None


def _other_loader(found: re.Match[bytes]) -> bytes:
    return b"/no/ld.so".ljust(len(found[0]), b"\0")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/does/not/exist", (127, "spawn-failed", "No such file or directory")),
        ("not-on-the-path", (127, "spawn-failed", "No such file or directory")),
        ("{plain}", (126, "spawn-failed", "Permission denied")),
        ("/dev", (126, "spawn-failed", "Permission denied")),
        ("{garbage}", (126, "exec-format", "Exec format error")),
        ("{crlf}", (127, "spawn-failed", "its interpreter /bin/sh\r is not there")),
        ("{odd}", (127, "spawn-failed", "its interpreter /no/such is not there")),
        ("{elsewhere}", (127, "spawn-failed", "its loader /no/ld.so is not there")),
    ],
)
def test_a_program_that_cannot_start_is_reported_twice(
    job: Job, tmp_path: Path, program: str, expected: tuple[int, str, str]
) -> None:
    garbage, plain = tmp_path / "garbage", tmp_path / "plain"
    garbage.write_bytes(b"\x7fELF but not really")
    garbage.chmod(0o755)
    plain.write_text("#!/bin/sh\n")
    crlf, odd, elsewhere = (tmp_path / name for name in ("crlf", "odd", "elsewhere"))
    crlf.write_bytes(b"#!/bin/sh\r\necho\r\n")
    odd.write_bytes(b"#! /no/such -x\n")
    true = Path(shutil.which("true") or "").read_bytes()
    elsewhere.write_bytes(re.sub(rb"/lib64/ld-linux[^\0]+", _other_loader, true, count=1))
    for path in (crlf, odd, elsewhere):
        path.chmod(0o755)
    program = program.format(garbage=garbage, plain=plain, crlf=crlf, odd=odd, elsewhere=elsewhere)
    done = job.run(program)
    said = json.loads(done.stdout)
    assert (done.exit_status, said["error"]) == expected[:2]
    assert said["message"] == f"cannot execute {program}: {expected[2]}"
    written = job.finish()
    assert written["outcome"] == "spawn-failed"
    assert written["error"] == said["message"]


def test_a_directory_serves_one_job_only(job: Job) -> None:
    job.start("/bin/true")
    first = job.finish()
    done = job.run("/bin/true")
    assert done.exit_status == 73
    assert json.loads(done.stdout)["error"] == "directory-used"
    assert job.finish() == first


def test_the_job_sees_a_clean_process(tmp_path: Path) -> None:
    job = Job(agent_builds.native_agent(), tmp_path / "job", {"MINE": "yes"})
    script = (
        "import os, sys, signal, json; from pathlib import Path\n"
        "print(json.dumps(dict(fds=sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1],"
        " stdin=os.read(0, 10).decode(), cwd=os.getcwd(), sid=os.getsid(0) == os.getpid(),"
        " nice=os.nice(0), oom=Path('/proc/self/oom_score_adj').read_text().strip(),"
        " sig=[l for l in open('/proc/self/status') if l.startswith(('SigBlk', 'SigIgn'))],"
        " env=os.environ.get('MINE'))))"
    )
    job.start(sys.executable, "-c", script)
    assert job.finish()["exit_status"] == 0
    seen = json.loads(job.read("stdout"))
    assert seen["fds"] == [0, 1, 2]
    assert seen["stdin"] == ""
    assert seen["cwd"] == str(job.directory)
    assert seen["sid"]
    assert seen["nice"] == os.nice(0)
    assert seen["oom"] == Path("/proc/self/oom_score_adj").read_text().strip()
    assert "SigBlk:\t0000000000000000\n" in seen["sig"]
    assert seen["env"] == "yes"


def test_telemetry_follows_the_job(job: Job, tmp_path: Path) -> None:
    script = (
        "import time; block = bytearray(40_000_000)\n"
        "end = time.process_time() + 0.4\n"
        "while time.process_time() < end: pass"
    )
    job.start(sys.executable, "-c", script, options=("--sample-ms", "50"))
    status = job.finish()
    samples = job.telemetry()
    assert len(samples) >= 5
    assert max(sample.get("rss_bytes", 0) for sample in samples) > 40_000_000
    assert status["max_rss_bytes"] > 40_000_000
    assert samples[-1]["utime_ns"] + samples[-1]["stime_ns"] >= 380_000_000
    assert status["user_ns"] + status["system_ns"] >= 390_000_000
    assert [s["mono_ns"] for s in samples] == sorted(s["mono_ns"] for s in samples)
    assert samples[0]["mem_available_bytes"] > 0
    assert samples[-1]["minflt"] > 1000


def test_without_telemetry_there_are_no_samples(job: Job) -> None:
    job.start("/bin/sleep", "0.2", options=("--sample-ms", "0"))
    job.finish()
    assert job.read("telemetry") == b""


def test_jobs_run_side_by_side(tmp_path: Path) -> None:
    jobs = [Job(agent_builds.native_agent(), tmp_path / f"job{i}") for i in range(8)]
    for number, job in enumerate(jobs):
        job.start("/bin/sh", "-c", f"echo begin; sleep 0.5; echo {number}; exit {number}")
    for number, job in enumerate(jobs):
        assert job.finish()["exit_status"] == number
        assert job.read("stdout") == b"begin\n%d\n" % number


def test_the_agent_costs_next_to_nothing(job: Job) -> None:
    # It sleeps at the pace of a model that generates.
    script = "import time\nfor i in range(60): print('token', flush=True); time.sleep(0.05)"
    job.start(sys.executable, "-c", script)
    status = job.finish()
    # Its goal of 0.5 % is measured by a bench; this finds a loop that spins.
    assert status["agent_cpu_ns"] < status["wall_ns"] * 0.02


def test_hashes_of_what_is_left_match_what_was_printed(job: Job) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)"
    job.start(sys.executable, "-c", script)
    job.finish()
    expected = hashlib.sha256(bytes(range(256)) * 4096).hexdigest()
    done = process.run([job.agent, "hash", job.directory / "stdout"], timeout=120)
    assert done.text == f"{expected}  1048576  {job.directory}/stdout\n"


def test_waiting_ends_when_the_job_does_and_not_before(job: Job) -> None:
    job.start("/bin/sh", "-c", "until [ -e enough ]; do sleep 0.1; done")
    assert job.look(seconds=0.2)["state"] == "running"
    (job.directory / "enough").touch()
    began = time.monotonic()
    assert job.look(seconds=60)["state"] == "finished"
    assert time.monotonic() - began < 30


def test_an_empty_directory_holds_no_job(job: Job) -> None:
    job.directory.mkdir()
    assert job.look()["state"] == "absent"


def test_a_supervisor_killed_before_it_could_say_anything_is_lost(job: Job) -> None:
    """It makes the streams' files, and is killed before there is a started.json."""
    job.directory.mkdir()
    for name in ("stdout", "stderr", "timeline", "telemetry", "status.json.tmp"):
        (job.directory / name).touch()
    directory = os.open(job.directory, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_SH)  # as a supervisor that lives
    assert job.look()["state"] == "absent"
    os.close(directory)
    assert job.look()["state"] == "lost"
    assert (job.look("stop", 60)["state"], job.look("stop", 60)["killed"]) == ("lost", 0)


def test_a_job_of_an_earlier_boot_is_told(tmp_path: Path) -> None:
    agent = agent_builds.native_agent()
    first = Job(agent, tmp_path / "job", {"LABCTL_SANDBOX": "one boot"})
    second = Job(agent, tmp_path / "job", {"LABCTL_SANDBOX": "another boot"})
    first.start("/bin/sleep", "30")
    assert second.look()["state"] == "rebooted"
    assert second.look("stop", 5)["state"] == "rebooted"
    assert first.look("stop", 10)["state"] == "finished"
    assert second.look()["state"] == "finished"


def test_a_killed_supervisor_takes_its_job_along(job: Job) -> None:
    started = job.start("/bin/sh", "-c", "sleep 100 & setsid sleep 100 & echo $! >last; wait")
    orphan = pid_in(job.directory / "last", started["pid"])
    os.kill(started["pid"], 9)
    assert soon(lambda: not is_alive(started["job_pid"]) and not is_alive(orphan))
    assert job.look()["state"] == "lost"
    stopped = job.look("stop", 60)
    assert (stopped["state"], stopped["killed"]) == ("lost", 0)
