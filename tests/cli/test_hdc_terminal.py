"""A shell on a terminal that is slow, or ends without telling how."""

import os
import pty
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from labctl.cli.hdc import terminal

UNTOLD = "the shell ended without reporting its status\n"


class SlowShell:
    """A shell of this host on a pseudo-terminal; nothing is heard of it before the third line."""

    def __init__(self) -> None:
        self.lines = 0
        self.heard = threading.Event()
        self.pid, self.ours = pty.fork()
        if self.pid == 0:
            os.execvpe("sh", ["sh"], {"PATH": os.environ["PATH"], "PS1": "$ "})

    def send(self, data: bytes) -> None:
        os.write(self.ours, data)
        self.lines += 1
        if self.lines > 2:
            self.heard.set()

    def receive(self, timeout: float) -> bytes | None:
        if not self.heard.wait(timeout) or not select.select([self.ours], [], [], timeout)[0]:
            return b""
        try:
            return os.read(self.ours, 4096) or None
        except OSError:  # EIO: the shell has gone
            return None


@pytest.fixture
def slow() -> Iterator[SlowShell]:
    shell = SlowShell()
    yield shell
    os.close(shell.ours)
    os.waitpid(shell.pid, 0)


@pytest.mark.parametrize(
    ("typed", "ended"),
    [
        ("echo $((6 * 7)); exit 5\n", (5, "")),
        ("echo $((6 * 7)); trap - EXIT; exit 5\n", (255, UNTOLD)),
        ("echo $((6 * 7)); exec true\n", (255, UNTOLD)),
    ],
)
def test_a_slow_shell_shows_nothing_of_how_its_status_comes(
    slow: SlowShell,
    typed: str,
    ended: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    status, told = ended
    reading, writing = os.pipe()
    os.write(writing, typed.encode())
    with os.fdopen(reading) as keys:
        monkeypatch.setattr(sys, "stdin", keys)
        assert terminal.converse(slow, repeat_seconds=0.2) == status
    os.close(writing)
    shown, said = capfdbinary.readouterr()
    assert b"42" in shown
    assert b"labctl-" not in shown
    assert said.decode() == told


class InterruptingShell(SlowShell):
    """Ctrl-C comes once, at a moment at which it does not end the wait for keys."""

    sent = False

    def receive(self, timeout: float) -> bytes | None:
        piece = super().receive(timeout)
        if piece == b"" and self.heard.is_set() and not self.sent:
            self.sent = True
            time.sleep(0.2)  # by then the keys are waited for
            # As if it came just before the wait: another thread gets it, no system call ends.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return piece


@pytest.mark.timeout(60)
def test_an_interrupt_just_before_the_wait_for_keys_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = InterruptingShell()
    reading, writing = os.pipe()
    with os.fdopen(reading) as keys:
        monkeypatch.setattr(sys, "stdin", keys)
        with pytest.raises(KeyboardInterrupt):
            terminal.converse(shell, repeat_seconds=0.2)
    os.close(writing)
    os.close(shell.ours)
    os.waitpid(shell.pid, 0)
