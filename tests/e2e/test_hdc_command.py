"""``labctl hdc`` as a person uses it: in a folder without a lab, with boards in another process."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from virtual_process import BoardProcess, virtual_board_process

from labctl import process
from labctl.retry import wait_until
from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Person:
    """Somebody with a terminal in an empty folder, and a board."""

    folder: Path
    board: BoardProcess

    def words(self, *words: str) -> tuple[str, ...]:
        return "hdc", "-t", self.board.address, *words

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "labctl", *self.words(*words)]

    def run(self, *words: str, timeout: float = 120) -> process.Completed:
        return forked.run(self.words(*words), cwd=self.folder, timeout=timeout)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        return forked.start(self.words(*words), cwd=self.folder)


@pytest.fixture(scope="module")
def shared_board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardProcess]:
    with virtual_board_process(tmp_path_factory.mktemp("shared") / "board") as board:
        yield board


@pytest.fixture
def person(tmp_path: Path, private_state: Path, shared_board: BoardProcess) -> Person:
    """Somebody who leaves the board as it was."""
    (tmp_path / "here").mkdir()
    return Person(tmp_path / "here", shared_board)


@pytest.fixture
def owner(tmp_path: Path, private_state: Path) -> Iterator[Person]:
    """Somebody who has a board alone, and may break it."""
    (tmp_path / "here").mkdir()
    with virtual_board_process(tmp_path / "board") as board:
        yield Person(tmp_path / "here", board)


def test_a_command_gives_its_output_and_status(person: Person) -> None:
    done = person.run("shell", "echo out; echo err >&2; exit 7")
    assert (done.exit_status, done.stdout) == (7, b"out\nerr\n")
    done = person.run("shell", "printf", "'%s-'", "a", "b", "| cat; printf '\\377\\0'")
    assert (done.exit_status, done.stdout) == (0, b"a-b-\xff\0")


def test_own_failures_are_255(owner: Person) -> None:
    process.stop(owner.board.process)
    done = owner.run("shell", "true")
    assert done.exit_status == 255
    assert b"error (infra): no board answers" in done.stderr
    assert owner.run("shell", "--timeout", "x", "true").exit_status == 255


def test_output_comes_before_the_end(person: Person) -> None:
    running = person.start("shell", "echo ready; sleep 100")
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
        assert running.returncode == 130, said
        assert time.monotonic() - began < 30
    finally:
        process.stop(running)
    assert "sleep 100" not in processes(person)


def test_a_reader_that_goes_away_ends_the_command(person: Person) -> None:
    running = person.start("shell", "while :; do echo 40 winks; sleep 0.04; done")
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=120) == 255
    assert running.stderr is not None
    running.stderr.close()
    assert "40 winks" not in processes(person)


def processes(person: Person) -> str:
    """Command lines of everything that runs on the board."""
    lines = []
    for pid in person.board.marked():
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return "\n".join(lines)


def test_files_and_directories_go_where_they_are_expected(person: Person) -> None:
    here, workdir = person.folder, Path(person.board.workdir) / "files"
    workdir.mkdir()
    (here / "file").write_bytes(os.urandom(2_000_000))
    (here / "file").chmod(0o754)
    (here / "folder" / "empty").mkdir(parents=True)
    (here / "folder" / "inside").write_text("inside")
    (here / "folder" / "out").symlink_to("/etc")
    done = person.run("send", "--mode", "file", f"{workdir}/")
    assert (done.exit_status, done.stderr) == (0, b"")
    assert done.text == f"{workdir}/file: 1 file, 2.00 MB, proven by hash\n"
    assert (workdir / "file").read_bytes() == (here / "file").read_bytes()
    assert (workdir / "file").stat().st_mode & 0o7777 == 0o754
    assert person.run("send", "file", f"{workdir}/renamed").exit_status == 0
    assert (workdir / "renamed").stat().st_mode & 0o7777 == 0o644
    for _ in range(2):  # the second replaces what is there
        done = person.run("send", "folder", str(workdir))
        assert done.text == f"{workdir}/folder: 1 file, 6 B, proven by hash\n"
        assert done.stderr == b"left out: out (neither a file nor a directory)\n"
        assert sorted(path.name for path in (workdir / "folder").iterdir()) == ["empty", "inside"]
    assert person.run("recv", f"{workdir}/folder").text.startswith("folder: 1 file") is False
    assert person.run("recv", f"{workdir}/folder", "back").exit_status == 0
    assert sorted(path.name for path in (here / "back").iterdir()) == ["empty", "inside"]
    assert person.run("recv", "-z", f"{workdir}/file", "back").exit_status == 0
    assert (here / "back" / "file").read_bytes() == (here / "file").read_bytes()
    assert sorted(path.name for path in workdir.iterdir()) == ["file", "folder", "renamed"]


def test_a_file_of_proc_is_received_and_not_proven(person: Person) -> None:
    done = person.run("recv", "/proc/version")
    assert done.exit_status == 0, done.stderr
    size = len(Path("/proc/version").read_bytes())
    reason = "1 file of proc, whose content the kernel makes as it is read"
    assert done.text == f"version: 1 file, {size} B, not proven: {reason}\n"
    assert (person.folder / "version").read_bytes() == Path("/proc/version").read_bytes()
    done = person.run("recv", "--json", "/proc/version", "again")
    assert json.loads(done.stdout) == {
        "path": "again",
        "files": 1,
        "size_bytes": size,
        "proven": False,
        "reason": reason,
        "left_out": [],
    }
    done = person.run("send", "--json", "again", person.board.workdir)
    assert json.loads(done.stdout)["proven"] is True


def test_a_parameter_of_the_board_forbids_transfers(owner: Person) -> None:
    (owner.folder / "file").write_text("x")
    Path(owner.board.workdir, "there").write_text("x")
    name = "persist.hdc.control.file"
    assert owner.run("shell", "param", "get", name).text == (
        f'Get parameter "{name}" fail! errNum is:106!\n'
    )
    assert owner.run("shell", "param", "set", name, "false").text == (
        f"Set parameter {name} false success\n"
    )
    assert owner.run("shell", "param", "get", name).text == "false \n"
    for words in (("send", "file", owner.board.workdir), ("recv", f"{owner.board.workdir}/there")):
        done = owner.run(*words)
        assert done.exit_status == 3
        assert b"debugging is not allowed" in done.stderr
    owner.run("shell", "param", "set", name, "true")
    assert owner.run("send", "file", owner.board.workdir).exit_status == 0


@pytest.mark.parametrize(
    ("words", "status", "because"),
    [
        (("send", "none", "/tmp/x"), 2, "cannot read none"),
        (("send", "file", "relative"), 2, "not absolute"),
        (("send", "file", "/tmp/100%"), 2, "unsafe path"),
        (("send", "file", "/no-such-folder/x"), 2, "no directory on the board: /no-such-folder"),
        (("send", "file", "/no-such-folder/"), 2, "no directory on the board"),
        (("send", "file", "/dev/null"), 2, "not a regular file"),
        (("send", ".", "/dev/null"), 2, "one is a directory"),
        (("send", "file", "/sys/x"), 3, "refuses access"),
        (("recv", "/no-such-file"), 2, "no such file or directory on the board"),
        (("recv", "/dev/null"), 2, "not a regular file"),
        (("forward", "x", "80"), 2, "x"),
        (("reboot", "sideways"), 2, "sideways"),
        (("hilogg",), 2, "did you mean 'hilog'"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    person: Person, words: tuple[str, ...], status: int, because: str
) -> None:
    (person.folder / "file").write_text("x")
    done = person.run(*words)
    said = done.stderr.decode()
    assert (done.exit_status, because in said) == (status, True), said
    assert "Traceback" not in said
    assert [path.name for path in person.folder.iterdir()] == ["file"]


def test_a_transfer_that_is_cut_off_leaves_nothing(person: Person) -> None:
    workdir = Path(person.board.workdir) / "cut"
    workdir.mkdir()
    (person.folder / "big").write_bytes(os.urandom(64 << 20))
    (workdir / "big").write_text("as it was")
    board = Control(person.board.directory)
    board.add(f.Slow(on="send", rate=2_000_000, times=None))
    sending = person.start("send", "big", f"{workdir}/big")
    assert wait_until(
        lambda: any(path.name.startswith("big.labctl-") for path in workdir.iterdir()),
        timeout=120,
        interval=0.02,
    )
    sending.send_signal(signal.SIGINT)
    _, said = sending.communicate(timeout=120)
    board.clear()
    assert sending.returncode == 130, said
    assert [path.name for path in workdir.iterdir()] == ["big"]
    assert (workdir / "big").read_text() == "as it was"


def test_a_denial_on_the_board_ends_the_wait(tmp_path: Path, private_state: Path) -> None:
    """Another request would show the dialog again, every few seconds."""
    (tmp_path / "here").mkdir()
    with virtual_board_process(tmp_path / "board", "--auth", "pending") as board:
        running = Person(tmp_path / "here", board).start("--wait-authorised", "shell", "true")
        assert running.stderr is not None
        assert running.stderr.readline().startswith(b"waiting: ")
        denied = Control(board.directory).decide(allow=False)
        _, said = running.communicate(timeout=120)
        assert len(denied) == 1
        assert running.returncode == 255
        assert b"somebody denied access" in said
        assert b"waiting" not in said
        assert Control(board.directory).decide(allow=False) == []


def test_ports_are_carried_until_interrupted(person: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]

        def answer() -> None:
            for _ in range(2):
                connection, _ = service.accept()
                with connection:
                    connection.sendall(connection.recv(100).upper())

        answering = threading.Thread(target=answer)
        answering.start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            free_port = free.getsockname()[1]
        for words in (("0", str(port)), ("--reverse", str(port), str(free_port))):
            running = person.start("forward", *words)
            assert running.stdout is not None
            match = re.match(rb"tcp:(\d+) of this host|tcp:(\d+)", running.stdout.readline())
            assert match is not None
            where = ("127.0.0.1", int(match[1] or match[2]))
            with socket.create_connection(where, timeout=30) as client:
                client.sendall(b"hello")
                assert client.recv(100) == b"HELLO"
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=120)
            assert running.returncode == 130, said
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(where, timeout=30)
        answering.join()


def test_ready_is_a_line_with_the_port(owner: Person) -> None:
    """For scripts: as soon as the line is there, the port answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for words, listen in (
        (("0", "localabstract:nobody"), None),
        (("localabstract:labctl-ready", "22"), "localabstract:labctl-ready"),
        (("--reverse", "22", str(port)), f"tcp:{port}"),
    ):
        running = owner.start("forward", "--json", *words)
        assert running.stdout is not None
        said = json.loads(running.stdout.readline())
        assert said["listen"] == (listen or f"tcp:{said['port']}")
        assert said["reverse"] == ("--reverse" in words)
        if said["port"] is not None:
            with suppress(ConnectionResetError):  # by the board, where nobody listens
                socket.create_connection(("127.0.0.1", said["port"]), timeout=30).close()
        running.send_signal(signal.SIGINT)
        _, printed = running.communicate(timeout=120)
        assert running.returncode == 130, printed
    assert said["connect"] == "tcp:22"
    assert said["port"] == port


def test_a_carried_port_ends_with_the_board(owner: Person) -> None:
    running = owner.start("forward", "0", "22")
    assert running.stdout is not None
    running.stdout.readline()
    process.stop(owner.board.process)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 3
    assert b"error (infra)" in said


def test_a_board_restarts_and_is_waited_for(owner: Person) -> None:
    done = owner.run("reboot", "--wait")
    assert done.exit_status == 0, done.stderr
    match = re.search(r"boot (\w+)$", done.text.strip())
    assert match is not None
    assert match[1] != owner.board.boot_id
    assert owner.run("shell", "echo $LABCTL_SANDBOX").text.strip() == match[1]


def test_the_log_of_a_board_is_captured(owner: Person) -> None:
    programs = owner.board.directory / "system/bin"
    if not (programs / "cat").exists():
        pytest.skip("mksh and toybox are not installed: the board has no programs of its own")
    (programs / "hilog").write_text('#!/bin/sh\necho "log $*"\n')
    (programs / "hilog").chmod(0o755)
    done = owner.run("hilog", "--output", "log", "--", "-x")
    assert done.exit_status == 0, done.stderr
    assert (owner.folder / "log").read_text() == "log -x\n"


def test_a_board_without_a_log_is_no_empty_log(person: Person) -> None:
    done = person.run("hilog", "--timeout", "5")
    assert done.exit_status == 1, done.text
    assert b"status 127" in done.stderr


def test_boards_are_listed(owner: Person) -> None:
    done = owner.run("list", "--json")
    (listed,) = json.loads(done.stdout)
    assert (done.exit_status, listed["state"]) == (0, "connected")
    process.stop(owner.board.process)
    done = owner.run("list", "--json")
    (listed,) = json.loads(done.stdout)
    assert (done.exit_status, listed["state"]) == (3, "offline")
    assert "no board answers" in listed["detail"]


class Keyboard:
    """A pseudo-terminal with ``labctl hdc shell`` on it."""

    def __init__(self, person: Person):
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.seen = b""
        self.process = process.start(
            person.argv("shell"),
            cwd=person.folder,
            env=os.environ,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
        )

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def wait_for(self, pattern: bytes, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.ours], [], [], max(deadline - time.monotonic(), 0))
            assert ready, self.seen
            self.seen += os.read(self.ours, 4096)

    def finish(self) -> int:
        status = self.process.wait(timeout=120)
        assert termios.tcgetattr(self.theirs) == self.before
        return status

    def close(self) -> None:
        process.stop(self.process)
        os.close(self.ours)
        os.close(self.theirs)


@contextmanager
def at_work(person: Person) -> Iterator[Keyboard]:
    keyboard = Keyboard(person)
    try:
        keyboard.wait_for(rb"Ctrl-] leaves")
        keyboard.wait_for(rb"[#$] ")
        keyboard.type(b"echo rea''dy\n")
        keyboard.wait_for(rb"ready")
        yield keyboard
    finally:
        keyboard.close()


@pytest.fixture
def keyboard(person: Person) -> Iterator[Keyboard]:
    with at_work(person) as keyboard:
        yield keyboard


def test_a_shell_to_work_in(keyboard: Keyboard) -> None:
    keyboard.type(b"tty; echo $((6 * 7))\n")
    keyboard.wait_for(rb"/dev/pts/\d+\r*\n")
    # A shell that has not set its terminal up for the next line drops what marks the end.
    keyboard.wait_for(rb"\n42\r*\n[^\n]*[#$] ")
    keyboard.type(b"\x04")
    assert keyboard.finish() == 0


def test_a_shell_gives_its_exit_status_and_shows_nothing_of_how(keyboard: Keyboard) -> None:
    keyboard.type(b"exit 5\n")
    assert keyboard.finish() == 5
    assert b"trap" not in keyboard.seen
    assert b"labctl-" not in keyboard.seen


def test_a_shell_without_a_terminal_gives_its_exit_status(person: Person) -> None:
    running = process.start(
        person.argv("shell"), cwd=person.folder, env=os.environ, stdin=subprocess.PIPE
    )
    shown, said = running.communicate(b"echo $((6 * 7))\nexit 6\n", timeout=30)
    assert running.returncode == 6, said
    assert b"\n42\r\n" in shown
    assert b"trap" not in shown


def test_a_shell_that_was_killed_has_no_exit_status(keyboard: Keyboard) -> None:
    keyboard.type(b"kill -9 $$\n")
    assert keyboard.finish() == 255


def test_ctrl_c_reaches_the_board_and_not_us(keyboard: Keyboard, person: Person) -> None:
    keyboard.type(b"sleep 300\n")
    # Its echo comes before the program: Ctrl-C must not meet a shell that has not started it.
    assert wait_until(lambda: "sleep 300" in processes(person), timeout=120, interval=0.05)
    keyboard.type(b"\x03")
    keyboard.wait_for(rb"sleep 300\r*\n[^#$]*[#$] ")  # what is typed before it may be lost
    assert "sleep 300" not in processes(person)
    keyboard.type(b"echo st''ill here\n")
    keyboard.wait_for(rb"\nstill here")
    keyboard.type(b"exit\n")
    assert keyboard.finish() == 0


def test_a_shell_can_always_be_left(keyboard: Keyboard, person: Person) -> None:
    keyboard.type(b"sleep 301\n")
    keyboard.wait_for(rb"sleep 301\r*\n")
    keyboard.type(b"\x1d")
    assert keyboard.finish() == 255
    assert wait_until(lambda: "sleep 301" not in processes(person), timeout=120, interval=0.1)


def test_the_terminal_is_restored_when_the_board_is_lost(owner: Person) -> None:
    with at_work(owner) as keyboard:
        process.stop(owner.board.process)
        keyboard.wait_for(rb"error.* \(infra\)")
        assert keyboard.finish() == 255


def test_the_terminal_is_restored_when_we_are_told_to_end(keyboard: Keyboard) -> None:
    keyboard.process.terminate()
    assert keyboard.finish() == 130


def test_what_is_piped_in_is_what_is_typed(person: Person) -> None:
    done = process.run(
        person.argv("shell"),
        timeout=60,
        cwd=person.folder,
        env=os.environ,
        input_bytes=b"echo $((40 + 2))\n",
    )
    assert done.exit_status == 0, done.stderr
    assert re.search(rb"\n?42\r*\n", done.stdout)
