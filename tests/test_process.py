import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hostile_checkout import HostileCheckout
from jobs import is_alive

from labctl import pip, process
from labctl.errors import HostError, HostTimeout, ToolMissing
from labctl.progress import reading_commands
from labctl.retry import wait_until


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
    assert wait_until(lambda: not is_alive(int(pid_file.read_text())), timeout=30, interval=0.05)


def test_a_missing_program_and_a_missing_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="program not found on this host: no-such-program"):
        process.run(["no-such-program"], timeout=1)
    with pytest.raises(HostError, match="no directory"):
        process.run(["true"], timeout=1, cwd=tmp_path / "gone")


@pytest.mark.parametrize(
    ("content", "lacks", "hint"),
    [
        (b"#!/bin/sh\r\necho\r\n", r"its interpreter /bin/sh\x0d is not", "line ends of Windows"),
        (b"#! /no/such -x\n", "its interpreter /no/such is not", "first line"),
        (None, "its loader /no/ld.so is not", "statically"),
    ],
)
def test_a_program_without_its_interpreter_names_that(
    tmp_path: Path, content: bytes | None, lacks: str, hint: str
) -> None:
    program = tmp_path / "program"
    if content is None:  # the name of the loader, in as many bytes
        true = Path(shutil.which("true") or "").read_bytes()
        old = re.search(rb"/lib[^\0]*/ld-[^\0]+", true)
        assert old is not None
        content = true.replace(old[0], b"/no/ld.so".ljust(len(old[0]), b"\0"), 1)
    program.write_bytes(content)
    program.chmod(0o755)
    with pytest.raises(ToolMissing) as refused:
        process.run([program], timeout=20)
    assert lacks in refused.value.message
    assert hint in str(refused.value.hint)


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
        lambda: not is_alive(int(pid_file.read_text())), timeout=30, interval=0.05
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
    assert wait_until(lambda: not is_alive(int(pid_file.read_text())), timeout=30, interval=0.05)


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


@pytest.fixture
def checkout(
    tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> HostileCheckout:
    """The present folder is a stranger's checkout."""
    made = HostileCheckout(tmp_path / "checkout")
    made.folder.mkdir()
    made.plant()
    monkeypatch.chdir(made.folder)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_programs_start_in_an_empty_folder_of_labctls_own(
    checkout: HostileCheckout, private_state: Path
) -> None:
    assert process.run(["pwd"], timeout=60).text == f"{private_state}/empty\n"
    folder = process.empty_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # What a program leaves is gone when the next one starts, also a link or a folder.
    process.run(["sh", "-c", "mkdir -p a/b; touch oom; ln -s / link"], timeout=60)
    assert process.run(["ls", "-A"], timeout=60).text == ""
    assert process.run(["sh", "-c", "rmdir $PWD"], timeout=60).exit_status == 0
    assert process.run(["pwd"], timeout=60).text == f"{folder}\n"
    assert checkout.traces == []


def test_an_empty_folder_of_somebody_elses_is_refused(
    private_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_state.mkdir()
    (private_state / "empty").symlink_to(tmp_path)
    with pytest.raises(HostError, match="made by somebody else"):
        process.run(["true"], timeout=60)
    (private_state / "empty").unlink()
    (private_state / "empty").mkdir(mode=0o777)
    assert stat.S_IMODE(process.empty_folder().stat().st_mode) == 0o700
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    with pytest.raises(HostError, match="made by somebody else"):
        process.run(["true"], timeout=60)


@pytest.mark.parametrize("cwd", [None, Path()])
def test_no_program_is_found_by_a_relative_folder(
    checkout: HostileCheckout, cwd: Path | None
) -> None:
    """Neither by labctl nor by a program of its own; also when it starts in the checkout."""
    assert process.run(["git", "--version"], timeout=60, cwd=cwd).text.startswith("git version")
    assert process.run(["sh", "-c", "git --version"], timeout=60, cwd=cwd).exit_status == 0
    monkeyed = {**os.environ, "PATH": f":bin:.:{os.environ['PATH']}"}
    assert process.run(["flock", "-V"], timeout=60, cwd=cwd, env=monkeyed).exit_status == 0
    assert checkout.traces == []


def test_labctls_own_python_imports_nothing_of_the_present_folder(
    checkout: HostileCheckout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout.folder / ".git").mkdir()
    lists = ["", ".", "sub", str(checkout.folder), str(checkout.folder / "sub"), str(tmp_path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(lists))
    show = "import sys, os; print(os.environ['PYTHONPATH'], *sys.path, sep='\\n')"
    (checkout.folder / "third_party" / ".git").mkdir(parents=True)
    for here in (checkout.folder, checkout.folder / "third_party"):
        monkeypatch.chdir(here)
        done = process.run([sys.executable, "-P", "-c", show], timeout=60)
        path, *folders = done.text.splitlines()
        assert path == str(tmp_path)
        assert not [one for one in folders if Path(one).resolve().is_relative_to(checkout.folder)]
        done = process.run(pip.download("--help"), timeout=60)
        assert (done.exit_status, checkout.traces) == (0, [])


def test_what_lies_below_the_present_folder_is_the_users_own(
    tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From ``/`` everything does. labctl's own folder counts in its own checkout, too."""
    own = Path(process.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(own), str(tmp_path)]))
    show = [sys.executable, "-P", "-c", "import os; print(os.environ['PYTHONPATH'])"]
    for here, kept in (
        (Path("/"), [own, tmp_path]),
        (tmp_path.parent, [own, tmp_path]),
        (tmp_path, [own]),
        (own, [own, tmp_path]),
        (own / "tests", [own, tmp_path]),
    ):
        monkeypatch.chdir(here)
        assert process.run(show, timeout=60).text.strip() == os.pathsep.join(map(str, kept)), here


def test_a_present_folder_that_was_removed_is_no_bug(
    tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PYTHONPATH", str(Path(process.__file__).parents[1]))
    gone.rmdir()
    with process.elsewhere():
        assert Path.cwd() == private_state / "empty"
    for words, told in (
        (("--version",), ""),
        (("hdc", "list", "targets"), "error (config): the present folder was removed\n"),
    ):
        # As a user starts it: labctl.process would start it in another folder.
        done = subprocess.run(
            [sys.executable, "-m", "labctl", *words], capture_output=True, text=True, check=False
        )
        assert done.stderr.startswith(told), words
        assert done.returncode == (2 if told else 0), done.stderr
    with pytest.raises(FileNotFoundError):
        Path.cwd()


def test_pip_keeps_what_the_user_has_set(
    checkout: HostileCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings, proxies and certificates; of the checkout's file it reads nothing."""
    kept = {"PIP_RETRIES": "7", "HTTPS_PROXY": "http://p:1", "SSL_CERT_FILE": "/c", "HOME": "/h"}
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    told = process.run(["env"], timeout=60).text.splitlines()
    assert {f"{name}={value}" for name, value in kept.items()} <= set(told)
    done = process.run([*pip.download()[:4], "config", "list"], timeout=60)
    assert "retries='7'" in done.text
    assert "index-url='http://127.0.0.1:1/'" not in done.text
