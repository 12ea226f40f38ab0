"""The agent's lease: nothing of an old epoch happens after a new one is on the board."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import agent_builds
import pytest
from jobs import Job, is_alive, soon

from labctl import process

pytestmark = pytest.mark.e2e


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work" / "lease"


def agent(*words: str) -> tuple[int, dict[str, object]]:
    """Status and answer of the agent; no answer if the program said nothing."""
    done = process.run([agent_builds.native_agent(), *words], timeout=60)
    lines = done.stdout.decode().splitlines()
    return done.exit_status, json.loads(lines[-1]) if lines else {}


def take(lease: Path, epoch: int, before: int, *options: str) -> tuple[int, dict[str, object]]:
    text = json.dumps({"lab": "lab's", "epoch": epoch})
    numbers = ("--epoch", str(epoch), "--before", str(before))
    return agent("take", "--lease", str(lease), *numbers, *options, "--", text)


def guard(lease: Path, epoch: int, script: str) -> tuple[int, dict[str, object]]:
    return agent("guard", "--lease", str(lease), "--epoch", str(epoch), "--", "sh", "-c", script)


@contextmanager
def started(*words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent, beside; killed at the end if it still runs."""
    running = process.start([agent_builds.native_agent(), *words], cwd=Path("/"), stderr=None)
    try:
        yield running
    finally:
        if running.poll() is None:
            process.stop(running)
        assert running.stdout is not None
        running.stdout.close()


def test_each_epoch_follows_the_one_that_was_seen(lease: Path) -> None:
    assert take(lease, 3, 0)[0] == 0
    assert json.loads(lease.read_text()) == {"lab": "lab's", "epoch": 3}
    for epoch, before in [(4, 0), (5, 2), (3, 3), (2, 3), (9, 8)]:
        status, answer = take(lease, epoch, before)
        assert (status, answer["error"]) == (75, "stale-epoch"), (epoch, before)
    assert take(lease, 9, 3)[0] == 0
    assert [path.name for path in lease.parent.iterdir()] == ["lease"]


def test_a_change_needs_an_epoch_that_is_not_older(lease: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert guard(lease, 0, f"echo one >>{made}") == (0, {})  # nobody has come yet
    take(lease, 7, 0)
    status, answer = guard(lease, 6, f"echo two >>{made}")
    assert (status, answer["error"]) == (75, "stale-epoch")
    assert "epoch 7" in str(answer["message"])
    assert guard(lease, 7, f"echo three >>{made}; exit 4")[0] == 4
    assert made.read_text() == "one\nthree\n"


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "",
        '{"epoch": "1"}',
        '{"epoch": -1}',
        '{"epoch": 9223372036854775808}',
        '{"epoch": 18446744073709551617}',
        '{"epoch": 1' + " " * 5000 + "}",
        "\0" * 100,
    ],
)
def test_a_lease_that_is_none_refuses_everything(lease: Path, content: str) -> None:
    lease.write_text(content)
    for status, answer in [guard(lease, 5, ":"), take(lease, 5, 0), take(lease, 5, 1)]:
        assert (status, answer["error"]) == (75, "stale-epoch")
    assert lease.read_text() == content


@pytest.mark.parametrize("kind", ["symlink", "directory", "fifo", "socket"])
def test_what_is_no_file_is_no_lease(lease: Path, tmp_path: Path, kind: str) -> None:
    good = tmp_path / "good"
    good.write_text('{"epoch": 1}')
    if kind == "symlink":
        lease.symlink_to(good)
    elif kind == "directory":
        lease.mkdir()
    elif kind == "fifo":
        os.mkfifo(lease)
    else:
        os.mknod(lease, 0o140600)
    for status, answer in [guard(lease, 5, ":"), take(lease, 5, 1), take(lease, 5, 0)]:
        assert (status, answer["error"]) == (75, "stale-epoch")
    assert good.read_text() == '{"epoch": 1}'


def test_a_new_lease_writes_through_no_link(lease: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (lease.parent / "lease.tmp").symlink_to(precious)
    assert take(lease, 1, 0)[0] == 0
    assert precious.read_text() == "mine"
    assert lease.is_file()
    assert not lease.is_symlink()


@pytest.mark.parametrize("text", ["", "x", '{"epoch": 4}', '{"epoch": 5}' + " " * 4096])
def test_a_text_that_is_not_that_lease_is_not_written(lease: Path, text: str) -> None:
    numbers = ("--epoch", "5", "--before", "0")
    status, answer = agent("take", "--lease", str(lease), *numbers, "--", text)
    assert (status, answer["error"]) == (2, "usage")
    assert not lease.exists()


def test_a_new_epoch_waits_for_the_changes_of_the_old_one(lease: Path, tmp_path: Path) -> None:
    take(lease, 1, 0)
    gate, made = tmp_path / "gate", tmp_path / "made"
    os.mkfifo(gate)
    # The agent has become the shell, which is gone before its child is.
    script = f"(read line <{gate}; echo late >{made}) & echo begun >{tmp_path}/begun"
    words = ("--lease", str(lease), "--epoch")
    with started("guard", *words, "1", "--", "sh", "-c", script) as old:
        assert soon((tmp_path / "begun").exists)
        old.wait(30)
        text = json.dumps({"epoch": 2})
        with started("take", *words, "2", "--before", "1", "--", text) as new:
            assert guard(lease, 1, ":") == (0, {})  # not on the board yet
            assert new.poll() is None
            gate.write_text("\n")
            assert new.wait(30) == 0
    assert made.read_text() == "late\n"
    assert json.loads(lease.read_text())["epoch"] == 2
    assert guard(lease, 1, f"echo later >>{made}")[0] == 75
    assert made.read_text() == "late\n"


def test_an_agent_that_is_killed_keeps_nobody_out(lease: Path, tmp_path: Path) -> None:
    take(lease, 1, 0)
    script = f"echo $$ >{tmp_path}/pid; exec sleep 600"
    words = ("--lease", str(lease), "--epoch", "1", "--", "sh", "-c", script)
    with started("guard", *words) as old:
        assert soon((tmp_path / "pid").exists)
        old.send_signal(signal.SIGKILL)
        old.wait(30)
    assert take(lease, 2, 1)[0] == 0


def test_a_new_epoch_ends_the_jobs_of_older_ones_first(lease: Path, tmp_path: Path) -> None:
    take(lease, 1, 0)
    jobs = lease.parent / "jobs"
    jobs.mkdir()
    job = Job(agent_builds.native_agent(), jobs / "one")
    (jobs / "elsewhere").symlink_to(tmp_path)
    (jobs / "file").write_text("")
    running = job.start("/bin/sleep", "600", timeout=300, options=("--lease", str(lease)))
    assert take(lease, 2, 1, "--jobs", str(jobs)) == (0, {"schema": 1})
    assert not is_alive(running["job_pid"])
    assert json.loads((jobs / "one" / "status.json").read_text())["outcome"] == "stopped"


def test_jobs_of_an_old_epoch_neither_start_nor_are_stopped(lease: Path, tmp_path: Path) -> None:
    take(lease, 2, 0)
    new, old = (Job(agent_builds.native_agent(), tmp_path / name) for name in ("new", "old"))
    new.start("/bin/sleep", "600", timeout=300, options=("--lease", str(lease), "--epoch", "2"))
    options = ("--dir", str(new.directory), "--lease", str(lease), "--epoch")
    status, answer = agent("stop", *options, "1")
    assert (status, answer["error"]) == (75, "stale-epoch")
    assert new.look("wait")["state"] == "running"
    done = old.run("/bin/true", options=("--lease", str(lease)))
    assert done.exit_status == 75
    assert not old.directory.exists()
    assert agent("stop", *options, "2")[0] == 0


def test_many_takers_and_changers_agree_on_one_order(lease: Path, tmp_path: Path) -> None:
    """Each change that went through is of the epoch that was on the board then."""
    log = tmp_path / "log"
    path, program = shlex.quote(str(lease)), shlex.quote(str(agent_builds.native_agent()))
    # A change notes the epoch in the file; under its lock that cannot change meanwhile.
    note = f'before=$(cat {path}); sleep 0.01; [ "$before" = "$(cat {path})" ] || echo no >>{log}'
    change = (
        f"for epoch in 1 2 3 4 5 6 7 8; do {program} guard --lease {path} --epoch $epoch --"
        f" sh -c {shlex.quote(note)}; done"
    )
    takes = "; ".join(
        f"{program} take --lease {path} --epoch {epoch} --before {epoch - 1} --"
        f" '{{\"epoch\": {epoch}}}'"
        for epoch in range(1, 9)
    )
    began = time.monotonic()
    script = " & ".join([f"({change})"] * 3 + [f"({takes})"]) + " & wait"
    done = process.run(["sh", "-c", script], timeout=120)
    assert done.exit_status == 0, (done.tail(), time.monotonic() - began)
    assert json.loads(lease.read_text()) == {"epoch": 8}
    assert not log.exists()
