"""Transports that open a link when needed, and reopen a lost link; and streams over it."""

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from labctl import interrupts
from labctl.errors import BoardError, CommandTimeout, ConfigError, DeviceLost, InfraError, LinkError
from labctl.interrupts import finishing
from labctl.retry import retry_infra
from labctl.transport.base import (
    CommandResult,
    TransferOptions,
    Transport,
    Write,
    brief,
    check_command,
    check_remote_path,
    remote_words,
)
from labctl.transport.sentinel import ASIDE_SECONDS, NOT_UNDERSTOOD_HINT, SCRATCH, Framed, execute

if TYPE_CHECKING:
    from labctl.hdc.host.link import PortConnection

#: Time for retries of a link that breaks during opening, and the first pause.
_OPENING_SECONDS = 2.0
_OPENING_INTERVAL_SECONDS = 0.1


class Link(Protocol):
    """An open link to a board. ``failure`` is set when it has ended."""

    @property
    def failure(self) -> LinkError | None:
        """The reason why the link accepts no more requests; None if no reason is known."""

    def close(self) -> None:
        """End the link and all its conversations. Idempotent."""


L = TypeVar("L", bound=Link)


class LinkedTransport(Transport, Generic[L]):
    """Runs commands in frames over a link that reports no exit status, or no reliable status.

    The first operation calls ``open_link``, and so does the first operation after a loss of the
    link; an operation during the loss raises. ``scratch`` is the board's folder for temporary files
    if its ``TMPDIR`` is not set.
    """

    scratch = SCRATCH
    #: Longer commands are run from a file. hdc's command line takes 61,439 bytes.
    max_command_bytes = 60_000
    #: A command with more output is stopped: output is held in memory. Larger data is pulled.
    max_output_bytes = 64 << 20

    def __init__(self, label: str, open_link: Callable[[], L]):
        self.label = label
        self._open_link = open_link
        self._link: L | None = None
        #: Held while the link or the number changes, never during a wait.
        self._changing = threading.Lock()
        self._closings = 0
        #: Held by the only thread that opens the link.
        self._opening = threading.Lock()
        self._refusal: LinkError | None = None
        self._refused = 0.0  # time on the monotonic clock (s)

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Run a shell command; see :class:`Transport`. A time-out kills all its processes."""
        most = self.max_output_bytes
        output, errors = _Limited(command, most), _Limited(command, most)
        began = time.monotonic_ns()
        status = self._execute(command, timeout, output, errors if separate_stderr else None)
        return CommandResult(
            command,
            status,
            bytes(output.kept),
            time.monotonic_ns() - began,
            bytes(errors.kept) if separate_stderr else None,
        )

    def stream(self, command: str, *, timeout: float, write: Write) -> int:
        """Run a shell command with live output; see :class:`Transport`."""
        return self._execute(command, timeout, write)

    @abstractmethod
    def shell(self, link: L, script: str, *, timeout: float) -> Generator[bytes, None, None]:
        """Run a script over a link; see :class:`labctl.transport.sentinel.Shell`."""

    def sent_line(self, script: str) -> str:
        """Return the text sent to run a script; the length of this text is limited."""
        return script

    def close(self) -> None:
        """End the link, if there is one; does not wait for a link that is being opened.

        A thread that is opening a link then gets DeviceLost when the opening finishes.
        """
        with interrupts.holding(self._changing):
            link, self._link = self._link, None
            self._closings += 1
        if link is not None:
            link.close()

    def connected(self) -> L:
        """Return the link, opened if needed. Every operation calls this.

        Raises LinkError, ConfigError, and what the check of :meth:`only_while` raises.
        """
        self._permit()
        asked, closings = time.monotonic(), self._closings
        with interrupts.holding(self._opening):
            if (link := self._whole_link()) is not None:
                return link
            # A thread that waited for another thread's attempt gets its result, not its own
            # time-out.
            if self._refusal is not None and self._refused >= asked:
                raise self._refusal.again()
            if self._closings == closings:
                link = self._open()
                with interrupts.holding(self._changing):
                    if self._closings == closings:
                        self._link = link
                        return link
                link.close()
        raise DeviceLost(f"{self.label}: the link was closed while it was opened")

    def _whole_link(self) -> L | None:
        """Return the link; None if there is none, or if it has ended."""
        with interrupts.holding(self._changing):
            link = self._link
            if link is None or link.failure is None:
                return link
            self._link = None
        link.close()
        return None

    def _open(self) -> L:
        try:
            # A restarting daemon accepts and drops connections; no request was sent yet.
            return retry_infra(
                self._open_link,
                on=(DeviceLost,),
                timeout=_OPENING_SECONDS,
                interval=_OPENING_INTERVAL_SECONDS,
                on_retry=self._tell_retry,
            )
        except LinkError as error:
            self._refusal, self._refused = error, time.monotonic()
            raise

    def _tell_retry(self, error: InfraError) -> None:
        import logging  # slow to import and seldom needed

        logging.getLogger("labctl.transport").warning("%s: opening it again: %s", self.label, error)

    def _execute(
        self, command: str, timeout: float, write: Write, write_error: Write | None = None
    ) -> int:
        framed = self._framed(command, write_error)
        if len(check_command(self.sent_line(framed.script))) <= self.max_command_bytes:
            return self._execute_framed(framed, timeout, write, write_error)
        with self._as_script(command, timeout) as script:
            framed = self._framed(script, write_error)
            return self._execute_framed(framed, timeout, write, write_error)

    def _framed(self, command: str, write_error: Write | None) -> Framed:
        return Framed.around(command, separate_stderr=write_error is not None, scratch=self.scratch)

    def _execute_framed(
        self, framed: Framed, timeout: float, write: Write, write_error: Write | None
    ) -> int:
        return execute(
            _Shell(self, self.connected()),
            framed,
            label=self.label,
            timeout=timeout,
            write=write,
            write_error=write_error,
        )

    @contextmanager
    def _as_script(self, command: str, timeout: float) -> Iterator[str]:
        """Yield a command that runs a text too long for the link, from a file on the board."""
        from labctl.transport.file_transfer import set_aside

        scratch = self.run(f'echo "${{TMPDIR:-{self.scratch}}}"', timeout=timeout).check().text
        path = check_remote_path(f"{scratch.strip()}/labctl-{os.urandom(16).hex()}.sh")
        words = remote_words(path)
        with finishing() as signals:
            try:
                with set_aside(check_command(command) + b"\n") as script:
                    self.push(script, path, TransferOptions(timeout=timeout))
                checked = self.run(f"sh -n {words}", timeout=timeout)
                if checked.exit_status != 0:
                    raise ConfigError(
                        f"the board's shell does not understand: {brief(command)}",
                        hint=NOT_UNDERSTOOD_HINT,
                        details=checked.text or None,
                    )
                yield f". {words}"
            finally:
                signals.hold()
                with suppress(LinkError, BoardError):
                    self.run(f"rm -f {words}", timeout=ASIDE_SECONDS)


@dataclass(frozen=True)
class _Shell(Generic[L]):
    """The shell of a board over one link."""

    transport: LinkedTransport[L]
    link: L

    @property
    def failure(self) -> LinkError | None:
        """The reason why nothing more can be run."""
        return self.link.failure

    def __call__(self, script: str, *, timeout: float) -> Generator[bytes, None, None]:
        """Run a script."""
        return self.transport.shell(self.link, script, timeout=timeout)


class _Limited:
    """Keeps output up to the limit for memory."""

    def __init__(self, command: str, most_bytes: int):
        self.kept = bytearray()
        self._command = command
        self._most_bytes = most_bytes

    def __call__(self, piece: bytes) -> None:
        self.kept += piece
        if len(self.kept) > self._most_bytes:
            raise ConfigError(
                f"the command printed more than {self._most_bytes} bytes: {brief(self._command)}",
                hint="let it write a file, and pull that",
            )


class Stream:
    """A connection to a port on a board. ``label`` names the board in messages.

    ``timeout`` (s) limits each wait for the board to receive or send. ``connected``: a socket, an
    ssh channel, an hdc channel; its waits end with TimeoutError or CommandTimeout, and a broken
    link raises OSError, EOFError or another LinkError.
    """

    def __init__(self, label: str, connected: "PortConnection", *, timeout: float):
        self.label = label
        self._connected = connected
        self.timeout = timeout

    def send(self, data: bytes | memoryview) -> None:
        """Send all data. Raises CommandTimeout, DeviceLost."""
        self._connected.settimeout(self.timeout)
        try:
            self._connected.sendall(data)
        except TimeoutError as error:
            raise self._silent() from error
        except (OSError, EOFError) as error:
            raise self._broken(error) from error

    def receive(self, count: int) -> bytes:
        """Return the next bytes, at most ``count``; empty at the end.

        Raises CommandTimeout, DeviceLost.
        """
        self._connected.settimeout(self.timeout)
        try:
            return self._connected.recv(count)
        except TimeoutError as error:
            raise self._silent() from error
        except (OSError, EOFError) as error:
            raise self._broken(error) from error

    def _silent(self) -> CommandTimeout:
        return CommandTimeout(
            f"{self.label}: no progress for {self.timeout:g} s",
            hint="the board may be frozen, or its storage stuck",
        )

    def _broken(self, error: OSError | EOFError) -> DeviceLost:
        reason = getattr(error, "strerror", None) or str(error) or "it was closed"
        return DeviceLost(f"{self.label}: the connection broke: {reason}")
