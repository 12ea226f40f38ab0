"""A job's directory is its working directory: what it does to the agent's files there is told."""

import sys
import time
from pathlib import Path

import agent_builds
import pytest
from jobs import Job, soon

from labctl import process

pytestmark = pytest.mark.e2e

HOLE = 200 << 30
#: A file under its own name is none of these afterwards.
CHANGES = {
    "os.truncate(name, 200 << 30)": "has another size: 2147483",
    "open(name, 'ab').write(b'more')": "has another size",
    "os.unlink(name)": "is gone",
    "os.rename(name, 'x'); os.symlink('x', name)": "is a symbolic link",
    "os.rename(name, 'x'); os.symlink('/dev/zero', name)": "is a symbolic link",
    "os.link(name, 'x')": "has another name",
    "os.unlink(name); os.mkfifo(name)": "is a FIFO",
    "os.unlink(name); os.mkdir(name); open(name + '/x', 'w')": "is a directory",
    "os.unlink(name); socket.socket(socket.AF_UNIX).bind(name)": "is a socket",
    "os.rename(name, 'x'); shutil.copy('x', name)": "is another file",
}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def run(job: Job, change: str, *names: str) -> dict[str, object]:
    """Run a program that prints, and changes these files; return how it ended."""
    script = (
        "import os, shutil, socket\nprint('text', flush=True)\n"
        f"for name in {names!r}:\n    {change}\nprint('more', flush=True)\n"
    )
    began = time.monotonic()
    job.start(sys.executable, "-c", script)
    status = job.finish(seconds=60)
    assert time.monotonic() - began < 30
    return status


def hashed(job: Job, *names: str) -> process.Completed:
    """What is asked of the board before a file is fetched."""
    words = [job.agent, "hash", "--plain", str(80 << 20), *names]
    return process.run(words, cwd=job.directory, timeout=30)


@pytest.mark.parametrize(("change", "said"), CHANGES.items())
@pytest.mark.parametrize("name", ["stdout", "telemetry"])
def test_a_file_that_the_agent_did_not_write_is_told(
    job: Job, name: str, change: str, said: str
) -> None:
    status = run(job, change, name)
    assert status["outcome"] == "files-changed"
    assert f"{name} {said}" in str(status["error"])
    assert status["stdout_bytes"] == len("text\nmore\n")
    done = hashed(job, name)
    if "bytes, not" not in str(status["error"]) and said not in ("is gone", "is another file"):
        assert done.exit_status == 1
        assert done.text.startswith(f"changed {name}: ")


def test_a_hole_is_not_read(job: Job) -> None:
    run(job, f"os.truncate(name, {HOLE})", "stderr")
    began = time.monotonic()
    done = hashed(job, "started.json", "stderr")
    assert time.monotonic() - began < 10
    first, second = done.text.splitlines()
    assert first.endswith("  started.json")
    assert second == "changed stderr: is larger than all that was written"


@pytest.mark.parametrize(
    "change",
    [
        "os.mkfifo(name)",
        "os.mkdir(name); open(name + '/x', 'w')",
        "os.symlink('/nowhere/x', name)",
        "os.link('stdout', name); os.unlink('x') if os.path.exists('x') else None",
        "open(name, 'w').write('{\"outcome\":\"exited\"}')",
    ],
)
@pytest.mark.parametrize("name", ["status.json", "status.json.tmp", "started.json"])
def test_nothing_keeps_the_status_away(job: Job, name: str, change: str) -> None:
    status = run(job, f"os.unlink(name) if os.path.exists(name) else None; {change}", name)
    assert status["outcome"] in ("exited", "files-changed")
    assert status["exit_status"] == 0


def test_a_directory_that_nobody_may_enter_keeps_nothing_away(job: Job) -> None:
    status = run(job, "os.chmod(name, 0); os.chmod('.', 0)", "stdout")
    assert status["outcome"] == "exited"
    assert job.read("stdout") == b"text\nmore\n"


def test_waiting_opens_nothing_that_waits_itself(job: Job) -> None:
    script = (
        "import os, time\nfor name in 'stderr', 'stdout', 'telemetry':\n"
        "    os.unlink(name); os.mkfifo(name)\nopen('done', 'w').close(); time.sleep(600)\n"
    )
    job.start(sys.executable, "-c", script)
    assert soon((job.directory / "done").exists)
    seen = job.look()
    assert (seen["state"], seen["stdout_bytes"], seen["stderr_end"]) == ("running", None, None)
    assert job.look("stop", 30)["status"]["outcome"] == "files-changed"
