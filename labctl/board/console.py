"""A board's serial console, read while a run uses the board.

A console only explains: its errors are remarks, it is opened again when it was lost, and one
process of this host reads it.
"""

import hashlib
import os
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from labctl import interrupts
from labctl.board.kernel_messages import BOOT, KernelMessage, KernelReader
from labctl.config.console import Console
from labctl.config.lab import Board
from labctl.distribution import install_extra
from labctl.errors import HostError, LabctlError, ToolMissing, printable_line
from labctl.files import host_writes
from labctl.folders import state_dir
from labctl.locks import locked
from labctl.records.trial import Failure

if TYPE_CHECKING:
    import serial

#: The log in a run's directory; each line begins with this host's time.
CONSOLE = "console.log"
#: Maximum size of a log, and the part of it that messages of the kernel and boots do not need.
MAX_BYTES, _ORDINARY_SHARE = 16_000_000, 0.9
#: A longer line is cut into several.
_LONGEST_LINE = 4096
#: Longest wait (s) for the first contact, for the end of the thread, and for bytes.
_CONTACT_SECONDS, _END_SECONDS, _READ_SECONDS = 5.0, 5.0, 0.2
_RECONNECT_SECONDS = 1.0
#: Bytes taken at once.
_MOST_BYTES = 1 << 16
#: Lines before and after a message of the kernel that are kept with it.
_BEFORE, _AFTER = 5, 25
#: Messages of which a log keeps the lines.
_MOST_MESSAGES = 200
#: Messages that a run tells while it runs; the log has all.
_MOST_NOTES = 20
_LONGEST_NOTE = 300
#: Messages that a failure keeps.
_MOST_EVIDENCE = 8


@contextmanager
def open_console(config: Console, *, note: str = "") -> Iterator["serial.SerialBase"]:
    """Open a board's console, alone on this host.

    ``note`` tells others what its reader does. Raises HostError: it cannot be opened, or was lost;
    HostTimeout: another process reads it; ToolMissing: pyserial is missing.
    """
    try:
        import serial
    except ImportError as error:
        raise ToolMissing(
            "a console needs pyserial", hint=install_extra("console"), program="pyserial"
        ) from error
    key = hashlib.sha256(config.device.encode()).hexdigest()[:16]
    lock = state_dir() / "locks" / f"console-{key}"
    alone = {} if "://" in config.device else {"exclusive": True, "write_timeout": 5}
    with locked(lock, timeout=0, holder="another reader of the console", note=note):
        try:
            port = serial.serial_for_url(
                config.device, baudrate=config.baud, timeout=_READ_SECONDS, **alone
            )
            with closing(port):
                yield port
        except (OSError, ValueError, termios.error) as error:
            raise HostError(
                f"the console {config.device} cannot be used: {_reason(error)}",
                hint="is its cable or terminal server there, and may this user open it?",
            ) from error


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) else printable_line(str(error))


def read_waiting(port: "serial.SerialBase") -> bytes:
    """Return the bytes that have arrived, without waiting. Raises OSError if it was lost."""
    waiting: int = port.in_waiting
    if waiting and str(port.port).startswith("socket:"):  # it tells only that there are some
        port.timeout = 0
        try:
            return bytes(port.read(_MOST_BYTES))
        finally:
            port.timeout = _READ_SECONDS
    return bytes(port.read(min(waiting, _MOST_BYTES))) if waiting else b""


@dataclass
class Seen:
    """A message of the kernel, with this host's monotonic time and the lines around it."""

    message: KernelMessage
    mono: float
    lines: list[str] = field(default_factory=list)


class ConsoleLog:
    """Reads a console in a thread, and appends its lines to a file; a context manager.

    No error is raised. ``tell`` gets remarks for people, in the thread.
    """

    def __init__(
        self,
        config: Console,
        path: Path,
        tell: Callable[[str], None],
        *,
        max_bytes: int = MAX_BYTES,
    ):
        self._config, self._path, self._tell = config, path, tell
        self._max_bytes, self._size = max_bytes, 0
        self._is_full = False
        self._kernel = KernelReader()
        self._latest = deque[str](maxlen=_BEFORE)
        self._seen: list[Seen] = []
        self._notes = 0
        self._trouble: str | None = None
        self._tried, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="console", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        interrupts.wait(self._tried, _CONTACT_SECONDS)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ending.set()
        interrupts.join(self._thread, _END_SECONDS)

    def since(self, mono: float) -> tuple[Seen, ...]:
        """Return the messages since a moment of this host's monotonic clock, in order."""
        return tuple(seen for seen in tuple(self._seen) if seen.mono >= mono)

    def explain(self, failure: Failure, mono: float) -> Failure:
        """Return a failure with what the kernel told since a moment; blame stays as it is."""
        seen = self.since(mono)
        if not seen:
            return failure
        kinds = ", ".join(dict.fromkeys(one.message.kind for one in seen))
        causes = [one for one in seen if one.message.kind != BOOT] or list(seen)
        return failure.model_copy(
            update={
                "message": f"{failure.message}; console: {kinds}",
                "console": tuple(causes[0].lines),
                "console_messages": tuple(one.message.line for one in causes[:_MOST_EVIDENCE]),
            }
        )

    def _follow(self) -> None:
        while not self._ending.is_set():
            try:
                self._read()
            except LabctlError as error:
                self._remark(error.message + (f"; {error.hint}" if error.hint else ""))
            except Exception as error:  # even a bug must not cost a run its trials
                self._remark(f"bug in labctl: {type(error).__name__}: {error}")
            self._tried.set()
            self._ending.wait(_RECONNECT_SECONDS)

    def _remark(self, trouble: str) -> None:
        """Tell why the console is not read, once until it is read again."""
        if trouble != self._trouble and not self._ending.is_set():
            self._tell(f"note: the console is not read: {trouble}")
        self._trouble = trouble

    def _read(self) -> None:
        note = f"{os.getpid()}, whose log is {self._path}"
        with open_console(self._config, note=note) as port:
            with host_writes(self._path):
                file = self._path.open("ab", buffering=0)
            with file:
                self._size = file.tell()
                if self._trouble is not None:
                    self._tell("note: the console is read again")
                self._trouble = None
                self._tried.set()
                self._take_lines(port, file)

    def _take_lines(self, port: "serial.SerialBase", file: BinaryIO) -> None:
        pending = bytearray()
        try:
            while not self._ending.is_set():
                pending += port.read(1)
                pending += read_waiting(port)
                *whole, pending = pending.split(b"\n")
                if len(pending) > _LONGEST_LINE:
                    whole.append(pending)
                    pending = bytearray()
                for line in whole:
                    self._take_pieces(line, file)
        finally:
            if pending:
                self._take_pieces(pending, file)

    def _take_pieces(self, line: bytearray, file: BinaryIO) -> None:
        for start in range(0, max(len(line), 1), _LONGEST_LINE):
            self._take(bytes(line[start : start + _LONGEST_LINE]), file)

    def _take(self, raw: bytes, file: BinaryIO) -> None:
        line = printable_line(raw.decode(errors="backslashreplace").strip("\r"))
        message = self._kernel.read(line)
        for seen in self._seen[-_AFTER:]:
            if len(seen.lines) < _BEFORE + 1 + _AFTER:
                seen.lines.append(line)
        if message is not None and len(self._seen) < _MOST_MESSAGES:
            self._seen.append(Seen(message, time.monotonic(), [*self._latest, line]))
        self._latest.append(line)
        if message is not None and message.kind == BOOT:
            self._write(file, "--- the board booted ---", is_ordinary=False)
        self._write(file, line, is_ordinary=message is None)
        if message is not None:
            self._report(message)

    def _report(self, message: KernelMessage) -> None:
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            self._tell(f"note: console: {message.kind}: {message.line[:_LONGEST_NOTE]}")
        elif self._notes == _MOST_NOTES + 1:
            self._tell(f"note: console: more messages are in {self._path.name}")

    def _write(self, file: BinaryIO, line: str, *, is_ordinary: bool) -> None:
        data = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {line}\n".encode()
        share = _ORDINARY_SHARE if is_ordinary else 1.0
        if self._size + len(data) > self._max_bytes * share:
            if not self._is_full:
                self._is_full = True
                self._tell(f"note: {self._path.name} is full: later lines are left out")
            return
        with host_writes(self._path):
            file.write(data)
        self._size += len(data)


def console_of(board: Board, folder: Path, tell: Callable[[str], None]) -> ConsoleLog | None:
    """Return the log of a board's console, to be kept in ``folder``; None without a console."""
    return ConsoleLog(board.console, folder / CONSOLE, tell) if board.console else None
