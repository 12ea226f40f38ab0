"""Boards that die, freeze and lie while labctl uses them; each is a process of its own."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jobs import is_alive
from virtual_process import BoardProcess, virtual_board_process

from labctl.errors import (
    CommandTimeout,
    ConfigError,
    DeviceLost,
    IntegrityError,
    LinkError,
    LinkRefused,
)
from labctl.file_hashes import sha256_file
from labctl.retry import wait_until
from labctl.transport.base import OpenOptions, TransferOptions
from labctl.transport.hdc import HdcTcpConfig, HdcTransport

OPTIONS = TransferOptions(timeout=60)

pytestmark = pytest.mark.e2e


@pytest.fixture
def board(tmp_path: Path) -> Iterator[BoardProcess]:
    with virtual_board_process(tmp_path / "board") as running:
        yield running


@pytest.fixture
def link(board: BoardProcess) -> Iterator[HdcTransport]:
    transport = HdcTcpConfig(address=board.address).open(OpenOptions(timeout=30))
    assert isinstance(transport, HdcTransport)
    with transport:
        yield transport


def big_file(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            file.write(block)
    return path


def kill(board: BoardProcess) -> None:
    os.kill(board.process.pid, signal.SIGKILL)
    board.process.wait()


def test_a_board_killed_in_mid_command_is_lost(board: BoardProcess, link: HdcTransport) -> None:
    begun = Path(board.workdir) / "begun"

    def kill_in_mid_command() -> None:
        if wait_until(begun.exists, timeout=120, interval=0.02):
            kill(board)

    killer = threading.Thread(target=kill_in_mid_command)
    killer.start()
    began = time.monotonic()
    with pytest.raises(DeviceLost):
        link.run(f"touch {begun}; sleep 300", timeout=300)
    assert time.monotonic() - began < 60
    killer.join()
    assert not link.is_alive()
    with pytest.raises(LinkRefused):
        link.run("true", timeout=30)


def test_a_board_that_comes_back_is_used_again(tmp_path: Path) -> None:
    with virtual_board_process(tmp_path / "board") as first:
        port = first.address.rpartition(":")[2]
        with HdcTcpConfig(address=first.address).open(OpenOptions(timeout=30)) as link:
            boot = link.run("echo $LABCTL_SANDBOX", timeout=30).text.strip()
            orphan = int(
                link.run("sleep 600 </dev/null >/dev/null 2>&1 & echo $!", timeout=30).text
            )
            kill(first)
            with pytest.raises(LinkError):
                link.run("true", timeout=30)
            assert is_alive(orphan)  # kill -9 left it behind
            with virtual_board_process(tmp_path / "board", "--port", port):
                again = link.run("echo $LABCTL_SANDBOX", timeout=30).text.strip()
            assert again != boot
            assert wait_until(lambda: not is_alive(orphan), timeout=120, interval=0.02)


def test_a_board_killed_in_mid_push_leaves_no_success(
    board: BoardProcess, link: HdcTransport, tmp_path: Path
) -> None:
    source = big_file(tmp_path / "big", 100 << 20)
    link.run("true", timeout=30)

    def progress(sent: int) -> None:
        if sent > 10 << 20 and board.process.poll() is None:
            kill(board)

    with pytest.raises(DeviceLost):
        link.push(source, f"{board.workdir}/big", TransferOptions(timeout=30, progress=progress))


def test_a_board_killed_in_mid_pull_leaves_no_file(
    board: BoardProcess, link: HdcTransport, tmp_path: Path
) -> None:
    big_file(Path(board.workdir) / "big", 100 << 20)
    link.use_hash(None)
    link.run("true", timeout=30)
    target = tmp_path / "out" / "big"

    def progress(got: int) -> None:
        if got > 1 << 20 and board.process.poll() is None:
            kill(board)

    with pytest.raises(DeviceLost):
        link.pull(f"{board.workdir}/big", target, TransferOptions(timeout=30, progress=progress))
    assert list(target.parent.iterdir()) == []


def test_a_frozen_board_times_out_and_thaws(board: BoardProcess, link: HdcTransport) -> None:
    link.run("true", timeout=30)
    os.kill(board.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        link.run("echo hi", timeout=0.5)
    assert time.monotonic() - began < 30
    assert "may still run" in (caught.value.hint or "")
    os.kill(board.process.pid, signal.SIGCONT)
    assert link.run("echo thawed", timeout=30).output == b"thawed\n"


def test_a_board_frozen_in_mid_push_times_out(
    board: BoardProcess, link: HdcTransport, tmp_path: Path
) -> None:
    source = big_file(tmp_path / "big", 64 << 20)
    frozen = False

    def progress(sent: int) -> None:
        nonlocal frozen
        if sent > 10 << 20 and not frozen:
            frozen = True
            os.kill(board.process.pid, signal.SIGSTOP)

    link.run("true", timeout=30)
    began = time.monotonic()
    with pytest.raises(CommandTimeout):
        link.push(source, f"{board.workdir}/big", TransferOptions(timeout=1, progress=progress))
    assert time.monotonic() - began < 30
    os.kill(board.process.pid, signal.SIGCONT)
    assert link.run("echo again", timeout=30).output == b"again\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stopping_a_board_kills_everything_on_it(tmp_path: Path, number: int) -> None:
    with virtual_board_process(tmp_path / "board") as board:
        with HdcTcpConfig(address=board.address).open() as link:
            link.run("setsid sleep 600 </dev/null >/dev/null 2>&1 &", timeout=30)
            assert board.marked()
            board.process.send_signal(number)
            assert board.process.wait(60) == 0
        assert board.marked() == []


def test_a_timed_out_command_leaves_nothing_on_the_board(
    board: BoardProcess, link: HdcTransport
) -> None:
    with pytest.raises(CommandTimeout):
        link.run("(sleep 600 & sleep 600); sleep 600", timeout=1)
    assert wait_until(lambda: board.marked() == [], timeout=120, interval=0.02)


def test_an_interrupted_command_leaves_nothing_on_the_board(board: BoardProcess) -> None:
    code = (
        "import sys\n"
        "from labctl.transport.hdc import HdcTcpConfig\n"
        "HdcTcpConfig(address=sys.argv[1]).open().run('sleep 600', timeout=600)\n"
    )
    user = subprocess.Popen([sys.executable, "-c", code, board.address], stderr=subprocess.DEVNULL)
    assert wait_until(lambda: len(board.marked()) >= 2, timeout=120, interval=0.02)
    user.send_signal(signal.SIGINT)
    assert user.wait(60) != 0
    assert wait_until(lambda: board.marked() == [], timeout=120, interval=0.02)


def test_text_that_is_no_command_is_the_users_error(link: HdcTransport) -> None:
    for text in ("if", "echo 'open", "(", "done"):
        with pytest.raises(ConfigError, match="does not understand"):
            link.run(text, timeout=30)


def test_commands_of_any_length_run(link: HdcTransport) -> None:
    for length in (59_000, 200_000):
        word = "x" * length
        assert link.run(f"echo {word}", timeout=30).output == f"{word}\n".encode()


def test_output_without_an_end_is_bounded(board: BoardProcess, link: HdcTransport) -> None:
    link.max_output_bytes = 5_000_000
    with pytest.raises(ConfigError, match="more than 5000000 bytes"):
        link.run("yes", timeout=30)
    assert wait_until(lambda: board.marked() == [], timeout=120, interval=0.02)


def test_a_background_child_prints_into_the_output_not_into_the_status(link: HdcTransport) -> None:
    result = link.run("(sleep 0.3; echo late) & echo early; exit 5", timeout=30)
    assert (result.exit_status, result.output) == (5, b"early\nlate\n")


def test_many_channels_at_once(board: BoardProcess, link: HdcTransport, tmp_path: Path) -> None:
    source = big_file(tmp_path / "big", 4 << 20)

    def work(number: int) -> bool:
        if number % 10 == 0:
            link.push(source, f"{board.workdir}/{number}", OPTIONS)
            link.pull(f"{board.workdir}/{number}", tmp_path / f"back{number}", OPTIONS)
            return (tmp_path / f"back{number}").read_bytes() == source.read_bytes()
        said = link.run(f"echo {number}; seq 1 {number}; exit {number}", timeout=60)
        lines = said.text.split()
        return said.exit_status == number and lines[0] == str(number) and len(lines) == number + 1

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(40)))


def peak_kib(board: BoardProcess) -> int:
    """The most memory that the board's process had."""
    status = Path(f"/proc/{board.process.pid}/status").read_text()
    (peak,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1])


def test_a_large_file_goes_there_and_back_in_little_memory(
    board: BoardProcess, link: HdcTransport, tmp_path: Path
) -> None:
    source = big_file(tmp_path / "big", 60 << 20)
    link.run("true", timeout=30)
    before, before_there = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, peak_kib(board)
    link.push(source, f"{board.workdir}/big", OPTIONS)
    link.pull(f"{board.workdir}/big", tmp_path / "back", OPTIONS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10
    assert peak_kib(board) - before_there < 30 << 10
    assert sha256_file(tmp_path / "back") == sha256_file(source)


@pytest.mark.parametrize(
    "missing", [("sha256sum",), ("sha256sum", "sha512sum", "sha1sum", "md5sum")]
)
def test_boards_with_fewer_hash_tools_still_prove_transfers(
    board: BoardProcess, link: HdcTransport, tmp_path: Path, missing: tuple[str, ...]
) -> None:
    for tool in missing:
        (board.directory / "system/bin" / tool).unlink()
    source = big_file(tmp_path / "f", 1 << 20)
    link.push(source, f"{board.workdir}/f", TransferOptions(timeout=30))
    link.pull(f"{board.workdir}/f", tmp_path / "back", TransferOptions(timeout=30))
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert link.files_hash(30).algorithm == ("sha512" if len(missing) == 1 else "sha256")


def test_a_file_that_arrives_changed_is_no_success(
    board: BoardProcess, link: HdcTransport, tmp_path: Path
) -> None:
    source = tmp_path / "f"
    source.write_bytes(b"content")
    liar = board.directory / "system/bin/sha256sum"
    liar.unlink()
    liar.write_text("#!/bin/sh\necho " + "0" * 64 + "\n")
    liar.chmod(0o755)
    with pytest.raises(IntegrityError, match="the bytes differ"):
        link.push(source, f"{board.workdir}/f", TransferOptions(timeout=30))
    with pytest.raises(IntegrityError, match="the bytes differ"):
        link.pull(f"{board.workdir}/f", tmp_path / "back", TransferOptions(timeout=30))
    assert not (tmp_path / "back").exists()
