"""A board's console: read in drops, floods and garbage, and lost, without harm to a run."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import serial
from ptys import Pty
from serial.rfc2217 import PortManager

from labctl.board.console import CONSOLE, ConsoleLog, open_console
from labctl.config.console import Console
from labctl.errors import BoardRebooted, HostError, HostTimeout
from labctl.records.trial import Failure
from labctl.retry import wait_until

pytestmark = pytest.mark.usefixtures("private_state")

PANIC = b"[   12.345678] Kernel panic - not syncing: sysrq triggered crash\r\n"


@pytest.fixture
def pty(tmp_path: Path) -> Iterator[Pty]:
    made = Pty(tmp_path / "tty")
    yield made
    made.unplug()


def reading(device: str, folder: Path, told: list[str] | None = None, **more: int) -> ConsoleLog:
    config = Console.model_construct(device=device, baud=115200)
    return ConsoleLog(config, folder / CONSOLE, (told if told is not None else []).append, **more)


def has(folder: Path, *texts: str) -> Callable[[], bool]:
    return lambda: all(text in (folder / CONSOLE).read_text() for text in texts)


def soon(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, timeout=20, interval=0.02)


def test_lines_are_kept_with_their_times_and_escaped(tmp_path: Path, pty: Pty) -> None:
    with reading(str(tmp_path / "tty"), tmp_path):
        for byte in b"dro\xffps\x1b[2J\r\n":  # one at a time
            pty.send(bytes([byte]))
        pty.send("板 is up\r\n".encode())
        soon(has(tmp_path, "is up"))
    first, second = (tmp_path / CONSOLE).read_text().splitlines()
    assert first.partition(" ")[2].startswith(r"dro\xffps")
    assert "\x1b" not in first
    assert second.partition(" ")[2] == "板 is up"


def test_a_huge_line_is_cut_and_the_rest_is_read(tmp_path: Path, pty: Pty) -> None:
    with reading(str(tmp_path / "tty"), tmp_path) as log:
        pty.send(b"x" * 200_000 + b"\r\n" + PANIC)
        soon(lambda: bool(log.since(0)))
    assert max(map(len, (tmp_path / CONSOLE).read_text().splitlines())) < 5000


def test_a_flood_fills_its_share_and_a_panic_is_kept(tmp_path: Path, pty: Pty) -> None:
    told: list[str] = []
    with reading(str(tmp_path / "tty"), tmp_path, told, max_bytes=100_000) as log:
        pty.send(b"flood\n" * 50_000 + PANIC)
        soon(lambda: bool(log.since(0)))
        soon(has(tmp_path, "Kernel panic"))
    assert (tmp_path / CONSOLE).stat().st_size <= 100_000
    assert sum("is full" in line for line in told) == 1


def test_a_console_that_was_lost_is_opened_again(tmp_path: Path, pty: Pty) -> None:
    told: list[str] = []
    with reading(str(tmp_path / "tty"), tmp_path, told) as log:
        pty.send(b"before\n")
        soon(has(tmp_path, "before"))
        pty.unplug()
        soon(lambda: any("is not read" in line for line in told))
        pty.plug()
        soon(lambda: told[-1] == "note: the console is read again")
        pty.send(PANIC)
        soon(lambda: bool(log.since(0)))
    assert has(tmp_path, "before", "Kernel panic")()


def test_a_second_labctl_is_refused(tmp_path: Path, pty: Pty) -> None:
    config = Console.model_construct(device=str(tmp_path / "tty"), baud=115200)
    with (
        open_console(config),
        pytest.raises(HostTimeout, match="another reader of the console"),
        open_console(config),
    ):
        pass


def test_another_program_that_holds_the_device_is_told(tmp_path: Path, pty: Pty) -> None:
    device = str(tmp_path / "tty")
    with (
        serial.Serial(device, exclusive=True),
        pytest.raises(HostError, match="cannot be used"),
        open_console(Console.model_construct(device=device, baud=115200)),
    ):
        pass


def test_a_missing_device_costs_a_run_one_remark(tmp_path: Path) -> None:
    told: list[str] = []
    with reading(str(tmp_path / "none"), tmp_path, told):
        soon(lambda: bool(told))
    assert len(told) == 1
    assert "No such file or directory" in told[0]


def test_a_failure_has_the_lines_as_evidence_and_keeps_its_blame(tmp_path: Path, pty: Pty) -> None:
    failure = Failure.of(BoardRebooted("the board restarted"))
    with reading(str(tmp_path / "tty"), tmp_path) as log:
        assert log.explain(failure, 0) == failure
        pty.send(b"one\n" + PANIC + b"Call trace:\n[    0.000000] Linux version 6.1.0\n")
        soon(lambda: len(log.since(0)) == 2)
        told = log.explain(failure, 0)
        later = log.explain(failure, log.since(0)[-1].mono + 1)
    assert told.message == "the board restarted; console: kernel panic, boot"
    assert told.blame == failure.blame
    assert told.console_messages == (PANIC.decode().strip(),)
    assert told.console[:3] == ("one", PANIC.decode().strip(), "Call trace:")
    assert later == failure


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Let ``serve`` have the first connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with listening.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(20)
        assert not thread.is_alive()


def test_a_terminal_server_with_bytes_as_they_come(tmp_path: Path) -> None:
    is_open = threading.Event()

    def serve(connection: socket.socket) -> None:
        assert is_open.wait(20)
        connection.sendall(PANIC)
        connection.recv(1)  # the reader's end

    with server(serve) as port, reading(f"socket://127.0.0.1:{port}", tmp_path) as log:
        is_open.set()
        soon(lambda: bool(log.since(0)))


@pytest.mark.filterwarnings("ignore:set(Daemon|Name)")  # of pyserial 3.5
def test_a_terminal_server_with_rfc2217(tmp_path: Path) -> None:
    port = serial.serial_for_url("loop://", timeout=0)

    def serve(connection: socket.socket) -> None:
        class Out:
            write = staticmethod(connection.sendall)

        manager = PortManager(port, Out())
        connection.settimeout(0.05)
        while True:
            try:
                data = connection.recv(1024)
                if not data:
                    return
                port.write(b"".join(manager.filter(data)))
            except TimeoutError:
                pass
            if waiting := port.read(1024):
                connection.sendall(b"".join(manager.escape(waiting)))

    told: list[str] = []
    with server(serve) as number:
        with reading(f"rfc2217://127.0.0.1:{number}", tmp_path, told) as log:
            assert not told
            port.write(PANIC)
            soon(lambda: bool(log.since(0)))
        assert port.baudrate == 115200
