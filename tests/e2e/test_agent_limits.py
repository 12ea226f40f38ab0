"""The on-board agent ends jobs: time, output, space, lease, request; and nothing is left."""

import json
import sys
import time
from pathlib import Path

import agent_builds
import pytest
from jobs import Job, is_alive, pid_in, soon

from labctl import process

pytestmark = pytest.mark.e2e

#: A program that ignores SIGTERM, in a session of its own, with a child that is orphaned at once.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in sys.argv[1:]:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(name, "w") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(600)
        os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def test_a_time_out_ends_the_whole_tree(job: Job, tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    started = job.start(sys.executable, "-c", STUBBORN, *map(str, files), timeout=5)
    orphans = [pid_in(file, started["pid"]) for file in files]
    assert all(map(is_alive, orphans))
    status = job.finish()
    assert status["outcome"] == "timeout"
    assert status["signal"] == 9
    assert "5.000 s" in status["error"]
    assert not any(map(is_alive, [*orphans, started["job_pid"]]))
    assert status["unkilled_processes"] == 0
    assert 5_000_000_000 <= status["wall_ns"] < 17_000_000_000


def test_a_job_that_heeds_sigterm_may_say_its_last_words(job: Job) -> None:
    script = "trap 'echo bye; exit 7' TERM; while :; do sleep 0.1; done"
    job.start("/bin/sh", "-c", script, timeout=1)
    status = job.finish()
    assert (status["outcome"], status["exit_status"], status["signal"]) == ("timeout", 7, None)
    assert job.read("stdout").endswith(b"bye\n")
    assert status["wall_ns"] < 2_900_000_000  # not after the time that it is given for them


def test_a_stopped_program_is_killed_too(job: Job) -> None:
    job.start("/bin/sh", "-c", "kill -STOP $$", timeout=0.3)
    status = job.finish()
    assert (status["outcome"], status["signal"]) == ("timeout", 9)


def test_what_a_finished_program_left_running_is_ended(job: Job, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    left = f"setsid sh -c 'echo $$ >{pid_file}; sleep 600' &"
    program = f"{left} until [ -e {tmp_path}/seen ]; do sleep 0.1; done; exit 5"
    started = job.start("/bin/sh", "-c", program)
    orphan = pid_in(pid_file, started["pid"])
    (tmp_path / "seen").touch()
    status = job.finish()
    assert (status["outcome"], status["exit_status"]) == ("exited", 5)
    assert status["leftover_processes"] >= 1
    assert soon(lambda: not is_alive(orphan))
    assert status["wall_ns"] < 600_000_000_000


def test_a_descendant_may_finish_its_last_words(job: Job) -> None:
    job.start("/bin/sh", "-c", "(sleep 0.2; echo late) & exit 0")
    status = job.finish()
    assert status["leftover_processes"] == 0
    assert job.read("stdout") == b"late\n"


def test_endless_output_is_cut_at_the_limit(job: Job) -> None:
    job.start(
        "/bin/sh", "-c", "yes | head -c 1000; yes >&2", options=("--max-output-bytes", "5000")
    )
    status = job.finish()
    assert status["outcome"] == "output-limit"
    assert "5000" in status["error"]
    assert len(job.read("stdout")) + len(job.read("stderr")) == 5000
    assert status["stdout_bytes"] + status["stderr_bytes"] == 5000


def test_a_timeline_cannot_fill_the_board_either(job: Job) -> None:
    # Each byte is a read of its own: two million of them would be 70 MB of timeline.
    script = "import os\nwhile True: os.write(1, b'x')"
    job.start(sys.executable, "-c", script, timeout=3)
    status = job.finish()
    assert status["outcome"] in ("timeout", "output-limit")
    assert len(job.read("timeline")) < 65 << 20


def test_stop_ends_a_job(job: Job) -> None:
    started = job.start("/bin/sh", "-c", "sleep 600")
    seen = job.look("stop", 60)
    assert seen["state"] == "finished"
    assert seen["status"]["outcome"] == "stopped"
    assert not is_alive(started["job_pid"])


def test_stopping_twice_changes_nothing(job: Job) -> None:
    job.start("/bin/sleep", "600")
    first = job.look("stop", 60)["status"]
    assert job.look("stop", 60)["status"] == first


@pytest.mark.parametrize("content", ['{"lab": "x", "epoch": 2}', "not json", '{"epoch": "1"}', ""])
def test_a_newer_or_unreadable_lease_refuses_the_job(
    job: Job, tmp_path: Path, content: str
) -> None:
    lease = tmp_path / "lease"
    lease.write_text(content)
    done = job.run("/bin/touch", str(tmp_path / "ran"), options=("--lease", str(lease)))
    assert done.exit_status == 75
    assert json.loads(done.stdout)["error"] == "stale-epoch"
    assert not job.directory.exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", ['{"epoch": 1, "lab": "x"}', '{"a": {"epoch": 9}, "epoch":1}'])
def test_a_lease_of_the_same_epoch_lets_it_run(job: Job, tmp_path: Path, content: str) -> None:
    lease = tmp_path / "lease"
    lease.write_text(content)
    job.start("/bin/true", options=("--lease", str(lease)))
    assert job.finish()["exit_status"] == 0


def test_a_board_taken_by_another_ends_the_job(job: Job, tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    lease.write_text('{"epoch": 1}')
    job.start("/bin/sleep", "60", options=("--lease", str(lease)))
    (tmp_path / "new").write_text('{"epoch": 2}')
    (tmp_path / "new").replace(lease)
    status = job.finish()
    assert status["outcome"] == "stale-epoch"
    assert "epoch 2" in status["error"]


def test_a_full_disk_ends_the_job_and_says_so(tmp_path: Path) -> None:
    """On a file system of 1 MB, mounted in a namespace of the test's own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    agent = agent_builds.native_agent()
    script = (
        f"mount -t tmpfs -o size=1m none {disk} && "
        f"{agent} run --dir {disk}/job --timeout 30 --epoch 1 -- "
        "/bin/sh -c 'yes | head -c 9000000' && "
        f" {agent} wait --dir {disk}/job --seconds 20"
    )
    namespace = ["unshare", "--mount", "--map-root-user"]
    probe = process.run([*namespace, "mount", "-t", "tmpfs", "none", disk], timeout=120)
    if probe.exit_status != 0:
        pytest.skip(f"no private mounts here: {probe.tail().strip()}")
    done = process.run([*namespace, "/bin/sh", "-c", script], timeout=120)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["state"] == "finished", done.tail()
    assert seen["status"]["outcome"] == "no-space"
    assert "No space left on device" in seen["status"]["error"]


@pytest.mark.parametrize("inodes", [1, 2, 3])
def test_a_file_system_without_inodes_is_named(tmp_path: Path, inodes: int) -> None:
    """The job's folder, or one of its files, cannot be made though bytes are free."""
    agent = agent_builds.native_agent()
    script = (
        f"mount -t tmpfs -o size=1m,nr_inodes={inodes} none {tmp_path} && "
        f"{agent} run --dir {tmp_path}/job --timeout 30 --epoch 1 -- /bin/true"
    )
    done = process.run(
        ["unshare", "--mount", "--map-root-user", "/bin/sh", "-c", script], timeout=120
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["message"].endswith("No space left on device: no inodes are left"), done.tail()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "run|wait"),
        (("frobnicate",), "frobnicate"),
        (("run",), "--dir"),
        (("run", "--dir", "x", "--timeout", "1", "--epoch", "1"), "needs a program"),
        (("run", "--dir", "x", "--timeout", "0", "--epoch", "1", "--", "true"), "'0'"),
        (("run", "--dir", "x", "--timeout", "-1", "--epoch", "1", "--", "true"), "'-1'"),
        (("run", "--dir", "x", "--timeout", "1e3", "--epoch", "1", "--", "true"), "'1e3'"),
        (("run", "--dir", "x", "--timeout", "1", "--epoch", "one", "--", "true"), "'one'"),
        (("run", "--dir", "x", "--timeout", "1", "--epoch", "99999999999999999999"), "--epoch"),
        (("run", "--dir", "x", "--wrong", "1"), "unknown option --wrong"),
        (("run", "--dir"), "--dir needs a value"),
        (("wait",), "--dir"),
        (("hash",), "needs a file"),
        (("hash", "--chunk", "0", "x"), "'0'"),
        (("hash", "--parts", "0", "x"), "'0'"),
        (("hash", "--chunk", "1", "--parts", "1", "x"), "not both"),
        (("exec", "--"), "needs a program"),
        (("version", "extra"), "version"),
    ],
)
def test_wrong_use_is_refused_in_words(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = process.run([agent_builds.native_agent(), *words], timeout=120, cwd=tmp_path)
    assert done.exit_status == 2
    said = json.loads(done.stdout)
    assert said["error"] == "usage"
    assert says in said["message"]
    assert not list(tmp_path.iterdir())


def test_the_agent_does_not_wait_for_a_fork_bomb(job: Job) -> None:
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "deadline = time.monotonic() + 30\n"
        "for _ in range(60):\n"
        "    if os.fork() == 0:\n"
        "        while time.monotonic() < deadline:\n"
        "            if os.fork(): os._exit(0)\n"
        "            time.sleep(0.02)\n"  # a new process every 20 ms each
        "        os._exit(0)\n"
        "time.sleep(30)\n"  # until it is killed
    )
    job.start(sys.executable, "-c", script, timeout=0.5)
    began = time.monotonic()
    status = job.finish()
    assert status["outcome"] == "timeout"
    assert status["unkilled_processes"] == 0
    assert time.monotonic() - began < 20
    mine = f"LABCTL_JOB={job.directory}".encode()
    left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and mine in _environ(p)]
    assert left == []


def _environ(process_folder: Path) -> list[bytes]:
    try:
        return (process_folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_relative_directory_works(tmp_path: Path) -> None:
    agent = agent_builds.native_agent()
    words = [agent, "run", "--dir", "here", "--timeout", "60", "--epoch", "0", "--", "/bin/pwd"]
    assert process.run(words, timeout=120, cwd=tmp_path).exit_status == 0
    done = process.run(
        [agent, "wait", "--dir", "here", "--seconds", "60"], timeout=120, cwd=tmp_path
    )
    assert json.loads(done.stdout)["state"] == "finished"
    assert (tmp_path / "here/stdout").read_text() == f"{tmp_path / 'here'}\n"
