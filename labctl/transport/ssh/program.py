"""Programs on a host: one ssh channel each, with a time-out, ended with the link.

A host's output is data: limited in size, and never trusted to be the expected reply.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from paramiko.ssh_exception import SSHException

from labctl import interrupts
from labctl.errors import CommandTimeout, DeviceLost, ProtocolError
from labctl.transport.base import remote_words
from labctl.transport.ssh.link import SshLink

#: Interval (s) at which a wait checks the host and the time-out.
TICK_SECONDS = 0.5
PIECE_BYTES = 1 << 16
#: Maximum size of a short reply.
ANSWER_BYTES = 1 << 20
#: Maximum part of standard error kept for messages.
ERRORS_BYTES = 1 << 14

#: Runs before every script: the script's own output begins after a secret word. A shell's start-up
#: files may print anything before.
_PROLOGUE = "printf '%s\\n' \"$1\"; shift\n"
#: dropbear starts a command in its own process group. A shell that leads no group keeps its id with
#: `setsid`, which forks only for leaders.
_AS_LEADER = (
    "if ! kill -0 -$$ 2>/dev/null && command -v setsid >/dev/null; "
    'then exec setsid "$@"; else exec "$@"; fi'
)
_RUNS_NOTHING_HINT = "the user there needs a POSIX shell that ssh may start programs with"

NONCE_BYTES = 16

Take = Callable[[bytes], object]


def command_line(script: str, nonce: str, *words: str) -> str:
    """Return the line sent to a host to run a script."""
    # `exec`: the shell then leads the session, and can be killed with all its child processes.
    return "exec " + remote_words(
        *("/bin/sh", "-c", _AS_LEADER, "labctl"),
        *("/bin/sh", "-c", _PROLOGUE + script, "labctl", nonce, *words),
    )


@dataclass(frozen=True)
class Answer:
    """Output of a short script."""

    exit_status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode(errors="replace")


class SshProgram:
    """A running script on a host. It is stopped at the end of the context."""

    def __init__(self, link: SshLink, script: str, *words: str, timeout: float):
        self._link = link
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._nonce = secrets.token_hex(NONCE_BYTES).encode()
        self._errors = b""
        self._before = b""
        self._began = False
        self._channel = link.session()
        try:
            self._channel.exec_command(command_line(script, self._nonce.decode(), *words))
        except (OSError, EOFError, SSHException) as error:
            self._channel.close()
            link.check()
            raise DeviceLost(f"{link.name} starts no program: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._channel.close()

    @property
    def errors(self) -> str:
        """Standard error of the script itself."""
        return self._errors.decode(errors="replace").strip()

    def limit(self, timeout: float) -> None:
        """Set a new time-out in s, from now on."""
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout

    def send(self, block: bytes) -> bool:
        """Send to standard input; return False if the script no longer reads."""
        while block:
            self._channel.settimeout(self._wait_seconds)
            try:
                sent = self._channel.send(block)
            except TimeoutError:
                self._tick()
                continue
            except (OSError, EOFError):
                return False
            if not sent:
                return False
            block = block[sent:]
        return True

    def end_input(self) -> None:
        """Close the script's standard input."""
        with suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def read(self) -> bytes:
        """Return the next piece of output; empty at its end. Raises LinkError."""
        return next(filter(None, self.pieces()), b"")

    def pieces(self) -> Iterator[bytes]:
        """Yield output until its end, and an empty piece at each check of the host.

        Raises LinkError.
        """
        while True:
            self._channel.settimeout(self._wait_seconds)
            try:
                piece = self._channel.recv(PIECE_BYTES)
            except TimeoutError:
                self._tick()
                yield b""
                continue
            self._keep_errors()
            if time.monotonic() > self._deadline and (self._began or not piece):
                self._tick()
            if not piece:
                return
            yield piece if self._began else self._begin(piece)

    def _begin(self, piece: bytes) -> bytes:
        """Skip output before the script's own."""
        self._before += piece
        before, mark, rest = self._before.partition(self._nonce + b"\n")
        if mark:
            self._began = True
            self._before = b""
            return rest
        if len(before) > ANSWER_BYTES:
            raise ProtocolError(
                f"{self._link.name} runs no scripts, but prints much output",
                hint=_RUNS_NOTHING_HINT,
            )
        return b""

    def finish(self) -> int:
        """Return the exit status of a script whose output has ended. Raises LinkError."""
        status = self.status()
        if status is None:
            raise DeviceLost(
                f"{self._link.name} ended a command without its exit status",
                hint="something on the host killed it: out of memory?",
                details=self.errors or None,
            )
        return status

    def status(self) -> int | None:
        """Return as :meth:`finish`, but None if a signal ended the script."""
        while not interrupts.wait(self._channel.status_event, self._wait_seconds):
            self._tick()
        self._keep_errors()
        status = self._channel.recv_exit_status()
        if status < 0:
            self._link.check_after_break()
            return None
        if not self._began:
            raise ProtocolError(
                f"{self._link.name} does not run commands: its shell ended with status {status}",
                hint=_RUNS_NOTHING_HINT,
                details=(self.errors or self._before.decode(errors="replace"))[-2000:] or None,
            )
        return status

    @property
    def _wait_seconds(self) -> float:
        """The time (s) until the next check of the host and the time-out."""
        return min(max(self._deadline - time.monotonic(), 0.01), TICK_SECONDS)

    def _keep_errors(self) -> None:
        while self._channel.recv_stderr_ready():
            self._errors = (self._errors + self._channel.recv_stderr(PIECE_BYTES))[-ERRORS_BYTES:]

    def _tick(self) -> None:
        interrupts.check()
        self._keep_errors()
        self._link.check()
        if time.monotonic() > self._deadline:
            raise CommandTimeout(
                f"a step on {self._link.name} did not end within {self._timeout:g} s",
                details=self.errors or None,
            )


def call(
    link: SshLink,
    script: str,
    *words: str,
    timeout: float,
    input_blocks: Iterable[bytes] = (),
    take: Take | None = None,
) -> Answer:
    """Run a short script to its end. If given, ``take`` gets its output instead of the answer.

    Raises LinkError.
    """
    output = bytearray()
    with SshProgram(link, script, *words, timeout=timeout) as program:
        for block in input_blocks:
            if not program.send(block):
                break
        program.end_input()
        while piece := program.read():
            if take is not None:
                take(piece)
                continue
            output += piece
            if len(output) > ANSWER_BYTES:
                raise ProtocolError(
                    f"{link.name} answers without end", hint="check the programs of that host"
                )
        return Answer(program.finish(), bytes(output), program.errors)
