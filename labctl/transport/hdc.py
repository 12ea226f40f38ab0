"""A board over hdc: real exit statuses, proven transfers, a new link when one died."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl import hdc
from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    InfraError,
    LinkError,
)
from labctl.hdc import HostLink
from labctl.retry import retry_infra
from labctl.transport.base import (
    Carried,
    CommandResult,
    Reboot,
    Terminal,
    Transport,
    Write,
    brief,
    check_command,
    remote_words,
)
from labctl.transport.hdc_exec import ASIDE_SECONDS, NOT_UNDERSTOOD_HINT, execute
from labctl.transport.paths import check_remote_path
from labctl.transport.sentinel import Framed

if TYPE_CHECKING:  # a command does not wait for the import of what moves files
    from labctl.transport.hdc_files import HdcCopier
    from labctl.transport.stream import Stream

#: hdc's command line takes 61,439 bytes; the same bound here keeps every link equal.
MAX_COMMAND_BYTES = 60_000
#: Patience for the start of what then goes on: a forwarded port, a terminal.
START_SECONDS = 10.0
#: How long a link that breaks in its opening is opened again, and after which pause first.
_OPENING_SECONDS = 2.0
_OPENING_INTERVAL_SECONDS = 0.1
#: A command that prints more is stopped: output is held in memory. Larger things are pulled.
MAX_OUTPUT_BYTES = 64 << 20


class HdcTransport(Transport):
    """A board over hdc, straight to its hdcd or through an hdc server.

    ``open_link`` is called by the first operation, and again after the link was lost; the operation
    under way when it is lost raises.
    """

    def __init__(self, label: str, open_link: Callable[[], HostLink]):
        self.label = label
        self._open_link = open_link
        self._link: HostLink | None = None
        self._opening = threading.Lock()
        self._refusal: LinkError | None = None
        self._refused = 0.0  # when, on the monotonic clock (s)

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Run a shell command; see :class:`Transport`. On a time-out its whole tree is killed."""
        output, errors = _Limited(command), _Limited(command)
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

    def copier(self, *, timeout: float, compress: bool = False) -> "HdcCopier":
        """What moves files; see :class:`Transport`."""
        from labctl.transport.hdc_files import HdcCopier

        return HdcCopier(self, timeout, connected=self._connected, compress=compress)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator["Stream"]:
        """Connect to a port of the board; see :class:`Transport`.

        Straight to the board, a channel of the session is the connection. Through a server, it
        goes by a port that the server listens at.
        """
        from labctl.transport.stream import Stream

        with self._connected().connect_port(port, timeout=timeout) as connected:
            yield Stream(self.label, connected, timeout=timeout)

    def over_hdc(self, purpose: str) -> "HdcTransport":
        """This transport itself."""
        del purpose
        return self

    @contextmanager
    def carry(self, listen: str, connect: str, *, reverse: bool = False) -> Iterator[Carried]:
        """Carry connections; see :class:`Transport`."""
        link = self._connected()
        start = link.reverse if reverse else link.forward
        with start(listen, connect, timeout=START_SECONDS) as forwarding:
            yield _Carried(forwarding.listen, link)

    def request_reboot(self, how: Reboot = "", *, timeout: float) -> None:
        """Tell the board to restart; the link is given up, as the board will."""
        hdc.reboot(self._connected(), how, timeout=timeout)
        self.close()

    def remount(self, *, timeout: float) -> str:
        """Make the board's system partitions writable; see :class:`Transport`."""
        return hdc.remount(self._connected(), timeout=timeout)

    def hilog(self, *words: str, timeout: float, write: Write) -> None:
        """The board's log; see :class:`Transport`. hdc's own request for it has no exit status."""
        command = remote_words("hilog", *words)
        with suppress(CommandTimeout):
            status = self.stream(command, timeout=timeout, write=write)
            CommandResult(command, status, b"", 0).check()

    @contextmanager
    def interact(self, *, timeout: float) -> Iterator[Terminal]:
        """An interactive shell; see :class:`Transport`."""
        with hdc.interactive_shell(self._connected(), timeout=timeout) as terminal:
            yield terminal

    def close(self) -> None:
        """End the link, if there is one."""
        with self._opening:
            link, self._link = self._link, None
        if link is not None:
            link.close()

    def _connected(self) -> HostLink:
        asked = time.monotonic()
        with self._opening:
            if self._link is not None and self._link.failure is not None:
                self._link.close()
                self._link = None
            if self._link is None:
                # Whoever waited for another's attempt has its answer: not a time-out for each.
                if self._refusal is not None and self._refused >= asked:
                    raise self._refusal.again()
                self._link = self._open()
            return self._link

    def _open(self) -> HostLink:
        try:
            # A daemon that just starts again accepts and drops; nothing was asked of it yet.
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
        import logging  # a command that needs no second attempt does not wait for it

        logging.getLogger("labctl.transport").warning("%s: opening it again: %s", self.label, error)

    def _execute(
        self, command: str, timeout: float, write: Write, write_error: Write | None = None
    ) -> int:
        framed = Framed.around(command, separate_stderr=write_error is not None)
        if len(check_command(framed.script)) <= MAX_COMMAND_BYTES:
            return self._execute_framed(framed, timeout, write, write_error)
        with self._as_script(command, timeout) as script:
            framed = Framed.around(script, separate_stderr=write_error is not None)
            return self._execute_framed(framed, timeout, write, write_error)

    def _execute_framed(
        self, framed: Framed, timeout: float, write: Write, write_error: Write | None
    ) -> int:
        return execute(
            self._connected(),
            framed,
            label=self.label,
            timeout=timeout,
            write=write,
            write_error=write_error,
        )

    @contextmanager
    def _as_script(self, command: str, timeout: float) -> Iterator[str]:
        """A command that runs what is too long for a link, from a file on the board."""
        from labctl.transport.local_files import set_aside

        scratch = self.run('echo "${TMPDIR:-/data/local/tmp}"', timeout=timeout).check().text
        path = check_remote_path(f"{scratch.strip()}/labctl-{os.urandom(16).hex()}.sh")
        words = remote_words(path)
        try:
            with set_aside(check_command(command) + b"\n") as script:
                self.push(script, path, timeout=timeout)
            checked = self.run(f"sh -n {words}", timeout=timeout)
            if checked.exit_status != 0:
                raise ConfigError(
                    f"the board's shell does not understand: {brief(command)}",
                    hint=NOT_UNDERSTOOD_HINT,
                    details=checked.text or None,
                )
            yield f". {words}"
        finally:
            with suppress(LinkError, BoardError):
                self.run(f"rm -f {words}", timeout=ASIDE_SECONDS)


@dataclass(frozen=True)
class _Carried:
    """Connections carried over one link: they do not survive it."""

    listen: str
    link: HostLink

    @property
    def failure(self) -> LinkError | None:
        """Why nothing is carried any more."""
        return self.link.failure


class _Limited:
    """Keeps an output, as long as it is no longer than what may be held in memory."""

    def __init__(self, command: str):
        self.kept = bytearray()
        self._command = command

    def __call__(self, piece: bytes) -> None:
        self.kept += piece
        if len(self.kept) > MAX_OUTPUT_BYTES:
            raise ConfigError(
                f"the command printed more than {MAX_OUTPUT_BYTES} bytes: {brief(self._command)}",
                hint="let it write a file, and pull that",
            )
