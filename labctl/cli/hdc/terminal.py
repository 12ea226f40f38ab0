"""A person's terminal, connected to a shell on a board.

On a terminal, every key goes to the board unchanged (the board's terminal makes Ctrl-C an
interrupt), and the settings are always restored. Other input is sent as it comes, and its end ends
the shell.

hdc does not transfer the exit status. The first line typed to the shell makes it print a mark with
its status when it exits. This line and the marks are not shown.
"""

import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from labctl import interrupts
from labctl.cli.output import note, write_output
from labctl.errors import CommandTimeout, ExitStatus, LabctlError
from labctl.hdc.host.link import InteractiveShell
from labctl.retry import wait_until

#: Ctrl-], as in telnet: the only key that does not reach the board.
LEAVE = b"\x1d"
#: Ctrl-D: the end of a terminal's input.
_END = b"\x04"
_PIECE_BYTES = 4096
#: Longest wait (s) for keys or output before checking if the shell should end.
_LOOK_SECONDS = 0.5
#: Time (s) for the board's shell to answer the first line, and interval of repeating this line: a
#: shell that is setting up its terminal drops input.
_START_SECONDS = 20.0
_REPEAT_SECONDS = 2.0


@dataclass
class _Marks:
    """Removes the first line (it makes the shell print its status) and the marks from the output.

    A mark begins with ASCII's record separator. The typed line has only the separator's number, so
    its echo is not a mark.
    """

    nonce: str = field(default_factory=lambda: f"labctl-{os.urandom(8).hex()}")
    #: Number of first lines sent; each line contains its number.
    sent: int = 0
    started: threading.Event = field(default_factory=threading.Event)
    #: Set when the shell has printed something: it reads input from then on.
    prompted: threading.Event = field(default_factory=threading.Event)
    exit_status: int | None = None
    _pending: bytes = b""

    def next_line(self) -> bytes:
        """Return the first line with the next number; output before its own mark is hidden.

        A slow shell echoes each repeated line after the marks of the earlier lines.
        """
        self.sent += 1
        mark = f"printf '\\036{self.nonce}:%s\\n'"
        return f'trap "{mark} \\$?" EXIT; {mark} start{self.sent}\n'.encode()

    def feed(self, piece: bytes) -> bytes:
        """Take output; return the part to show."""
        self.prompted.set()
        self._pending += piece
        shown = b""
        mark = rb"\x1e" + self.nonce.encode() + rb":(start\d+|\d{1,3})\r*\n"
        while match := re.search(mark, self._pending):
            shown += self._before(match.start())
            self._pending = self._pending[match.end() :]
            if match[1] == b"start%d" % self.sent:
                self.started.set()
            elif not match[1].startswith(b"start"):
                self.exit_status = int(match[1])
        cut = self._pending.rfind(b"\x1e")
        whole = f"\x1e{self.nonce}:start{self.sent}\r\n".encode()
        may_become = cut >= 0 and len(self._pending) - cut < len(whole)
        cut = cut if may_become else len(self._pending)
        shown += self._before(cut)
        self._pending = self._pending[cut:]
        return shown

    def _before(self, end: int) -> bytes:
        return self._pending[:end] if self.started.is_set() else b""


def converse(remote: InteractiveShell, *, repeat_seconds: float = _REPEAT_SECONDS) -> int:
    """Pass keys and output until the shell ends or the user leaves it; return the exit status.

    It is 255 if the user left the shell, or the shell ended without a status. The first line is
    repeated every ``repeat_seconds`` until it is answered. Raises LinkError.
    """
    keys, marks = sys.stdin.fileno(), _Marks()
    with _raw(keys) as is_terminal, _printing(remote, marks) as ended:
        if is_terminal:
            note("Ctrl-] leaves\r")
        _start(remote, marks, ended, repeat_seconds)
        while True:
            # A signal just before the wait does not end the wait: it needs a limit.
            with interrupts.waiting():
                ready, _, _ = select.select([keys, ended], [], [], _LOOK_SECONDS)
            if ended in ready:
                break
            if keys not in ready:
                continue
            typed = os.read(keys, _PIECE_BYTES)
            if is_terminal and LEAVE in typed:
                remote.send(typed[: typed.index(LEAVE)])
                return ExitStatus.SHELL_FAILURE
            if not typed:
                _end(remote, ended)
                break
            remote.send(typed)
    if marks.exit_status is None:
        note("the shell ended without reporting its status")
        return ExitStatus.SHELL_FAILURE
    return marks.exit_status


def _start(remote: InteractiveShell, marks: _Marks, ended: int, repeat_seconds: float) -> None:
    """Make the shell print its status at its end. Raises CommandTimeout."""
    interrupts.wait(marks.prompted, repeat_seconds)

    def is_started() -> bool:
        if select.select([ended], [], [], 0)[0]:
            return True
        remote.send(marks.next_line())
        return interrupts.wait(marks.started, repeat_seconds)

    if not wait_until(is_started, timeout=_START_SECONDS, interval=0):
        raise CommandTimeout(f"the board's shell did not start within {_START_SECONDS:g} s")


def _end(remote: InteractiveShell, ended: int) -> None:
    """Send the end of the input to the shell until it ends.

    A single end mark can be lost: a shell that is setting up its terminal drops it.
    """
    while True:
        remote.send(_END)
        with interrupts.waiting():
            has_ended = bool(select.select([ended], [], [], _LOOK_SECONDS)[0])
        if has_ended:
            return


@contextmanager
def _raw(descriptor: int) -> Iterator[bool]:
    """Make a terminal pass every key while the context is open. Yield True for a terminal."""
    if not os.isatty(descriptor):
        yield False
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _printing(remote: InteractiveShell, marks: _Marks) -> Iterator[int]:
    """Print output in a thread; the descriptor becomes readable when no more output comes.

    Raises at the end of the context if the link was lost meanwhile.
    """
    wanted = threading.Event()
    wanted.set()
    failures: list[BaseException] = []
    reading, writing = os.pipe()

    def pump() -> None:
        try:
            while wanted.is_set():
                piece = remote.receive(_LOOK_SECONDS)
                if piece is None:
                    return
                if piece and (shown := marks.feed(piece)):
                    write_output(shown)
        except (LabctlError, OSError) as error:
            failures.append(error)
        finally:
            os.close(writing)

    printer = threading.Thread(target=pump, name="hdc shell output")
    printer.start()
    try:
        yield reading
    finally:
        wanted.clear()
        printer.join()
        os.close(reading)
    for failure in failures:
        raise failure
