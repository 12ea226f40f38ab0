import os
import threading
import time
from pathlib import Path

import pytest

from labctl import process
from labctl.errors import HostError, HostTimeout, ToolMissing
from labctl.progress import reading_commands
from labctl.retry import wait_until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_finished_program_is_returned_whatever_its_status() -> None:
    done = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=30)
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert done.tail() == "out\nerr"


def test_the_boot_id_of_this_host_is_read_in_one_place() -> None:
    told = process.run(["cat", "/proc/sys/kernel/random/boot_id"], timeout=30)
    assert process.boot_id() == told.text.strip()
    root = Path(process.__file__).parent
    naming = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "/proc/sys/kernel/random/boot_id" in path.read_text()
    }
    # In the shell of a board, and in the hint for a board whose shell cannot read it.
    assert naming == {"process.py", "virtual/marks.py", "transport/readiness.py"}


def test_input_and_no_input() -> None:
    assert process.run(["cat"], timeout=30, input_bytes=b"in").stdout == b"in"
    assert process.run(["cat"], timeout=30).stdout == b""


def test_a_time_out_kills_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; echo begun; wait"
    began = time.monotonic()
    with pytest.raises(HostTimeout, match=r"sh did not end within 2 s") as caught:
        process.run(["sh", "-c", script], timeout=2)
    assert time.monotonic() - began < 30
    assert caught.value.details == "begun\n"
    assert wait_until(lambda: not alive(int(pid_file.read_text())), timeout=30, interval=0.05)


def test_a_missing_program_and_a_missing_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="program not found on this host: no-such-program"):
        process.run(["no-such-program"], timeout=1)
    with pytest.raises(HostError, match="no directory"):
        process.run(["true"], timeout=1, cwd=tmp_path / "gone")


def test_a_program_that_nobody_may_run_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-such-program").touch(mode=0o600)  # as a folder that one may not enter
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ToolMissing, match="program not found on this host: no-such-program"):
        process.run(["no-such-program"], timeout=1)
    with pytest.raises(HostError, match="Permission denied"):
        process.run([str(tmp_path / "no-such-program")], timeout=1)


def test_streaming_gives_lines_as_they_come_and_keeps_a_log(tmp_path: Path) -> None:
    lines: list[str] = []
    log = tmp_path / "log"
    done = process.run_streaming(
        ["sh", "-c", "echo a; printf '\\377b\\n' >&2; exit 1"],
        timeout=30,
        on_line=lines.append,
        log=log,
    )
    assert done.exit_status == 1
    assert lines == ["a", "\ufffdb"]
    assert log.read_bytes() == b"a\n\xffb\n"


@pytest.mark.parametrize("log", ["/dev/full", "/nonexistent/log"])
def test_a_log_that_cannot_be_written_is_the_hosts_fault_and_stops_the_program(
    tmp_path: Path, log: str
) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; echo x; exec sleep 60"
    began = time.monotonic()
    with pytest.raises(HostError, match=f"cannot write {log}"):
        process.run_streaming(["sh", "-c", script], timeout=30, on_line=str, log=Path(log))
    assert time.monotonic() - began < 30
    assert not pid_file.exists() or wait_until(
        lambda: not alive(int(pid_file.read_text())), timeout=30, interval=0.05
    )
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer)]


def test_streaming_ends_at_its_time_out_though_a_child_holds_the_pipe() -> None:
    began = time.monotonic()
    with pytest.raises(HostTimeout):
        process.run_streaming(["sh", "-c", "sleep 60 & wait"], timeout=0.5, on_line=str)
    assert time.monotonic() - began < 30


def test_an_error_in_a_callback_stops_the_program(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def fail(_line: str) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError):
        process.run_streaming(
            ["sh", "-c", f"echo $$ > {pid_file}; echo x; sleep 60"], timeout=30, on_line=fail
        )
    assert wait_until(lambda: not alive(int(pid_file.read_text())), timeout=30, interval=0.05)


def test_a_stubborn_program_is_killed() -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    child = process.start(["sh", "-c", script])
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    assert process.stop(child, grace=0.3) == -9
    child.stdout.close()
    child.stderr.close()


def test_a_command_is_told_without_its_passwords() -> None:
    told: list[str] = []
    with reading_commands(told.append):
        for word in (
            "https://me:SECRET@host/x.git",
            "ssh://me:p@SECRET@host:22/x.git",
            "--url=http://SECRET@192.168.1.30/status",
            "git@host:x.git",
            "https://host/?mail=a@b",
        ):
            process.run(["true", word], timeout=60)
    assert told == [
        "true https://host/x.git",
        "true ssh://me@host:22/x.git",
        "true --url=http://192.168.1.30/status",
        "true git@host:x.git",
        "true 'https://host/?mail=a@b'",
    ]
