"""This host as its own board, for native runs."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

from labctl import process
from labctl.config.transport import TransportConfig
from labctl.errors import (
    FULL_NUMBERS,
    REFUSED_NUMBERS,
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    DeviceLost,
    HostTimeout,
    LinkRefused,
)
from labctl.files import has_inodes
from labctl.interrupts import finishing
from labctl.transport.base import (
    CommandResult,
    OpenOptions,
    TransferOptions,
    Transport,
    Write,
    brief,
    check_command,
    remote_words,
    rules,
)
from labctl.transport.file_transfer import FileTransfer, Take, open_source, set_aside
from labctl.transport.linked import Stream

_USUAL = OpenOptions()
_BLOCK_BYTES = 1 << 20
#: Linux takes words of 131,071 bytes (MAX_ARG_STRLEN); some are needed around the command.
_WORD_BYTES = 120_000


class LocalTransport(Transport):
    """Runs commands in this host's ``sh`` and copies files; same contract as for a board."""

    def __init__(self) -> None:
        self.label = "this host"

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Run a shell command; see :class:`Transport`. A time-out kills all its processes."""
        self._permit()
        with (
            finishing(),
            _shell(command, merged=not separate_stderr) as argv,
            _as_a_boards(command, timeout),
        ):
            done = process.run(argv, timeout=timeout)
        return CommandResult(
            command,
            _status(done.exit_status, command),
            done.stdout,
            done.duration_ns,
            done.stderr if separate_stderr else None,
        )

    def stream(self, command: str, *, timeout: float, write: Write) -> int:
        """Run a shell command with live output; see :class:`Transport`."""
        self._permit()
        with finishing(), _shell(command, merged=True) as argv, _as_a_boards(command, timeout):
            status = process.run_live(argv, timeout=timeout, write=write)
        return _status(status, command)

    def file_transfer(self, options: TransferOptions) -> "LocalFileTransfer":
        """Return the transfer; a local copy always makes progress."""
        self._permit()
        return LocalFileTransfer(self, options)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator[Stream]:
        """Connect to a port of this host."""
        self._permit()
        try:
            connected = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        except OSError as error:
            raise LinkRefused(
                f"{self.label}: cannot connect to port {port}: {error.strerror or error}"
            ) from error
        with connected:
            yield Stream(self.label, connected, timeout=timeout)

    def is_alive(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


@contextmanager
def _shell(command: str, *, merged: bool) -> Iterator[list[str]]:
    """Yield the words that run a command; a command too long for a word is run from a file."""
    raw = check_command(command)
    # The shell itself merges the streams, which keeps the order of the output.
    merge = "exec 2>&1\n" if merged else ""
    if len(raw) <= _WORD_BYTES:
        yield ["/bin/sh", "-c", f"{merge}(\n{command}\n)"]
        return
    with set_aside(raw + b"\n") as script:
        yield ["/bin/sh", "-c", f"{merge}( . {remote_words(str(script))}\n)"]


@contextmanager
def _as_a_boards(command: str, timeout: float) -> Iterator[None]:
    """Report a time-out of this host as a time-out of a board."""
    try:
        yield
    except HostTimeout as error:
        raise CommandTimeout(
            f"no end within {timeout:g} s of: {brief(command)}",
            hint="set a longer time-out, or check what it waits for",
            details=error.details,
        ) from error


def _status(status: int, command: str) -> int:
    if status < 0:
        raise DeviceLost(f"no exit status came for: {brief(command)}", hint="its shell was killed")
    return status


class LocalFileTransfer(FileTransfer):
    """Copies within this host."""

    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Copy a file; see :class:`FileTransfer`."""
        with open_source(local) as source, _board_file(remote, "wb") as target:
            while block := source.read(_BLOCK_BYTES):
                target.write(block)
                sent(block)

    def collect(self, remote: str, came: Take) -> None:
        """Read a file; see :class:`FileTransfer`."""
        with _board_file(remote, "rb") as source:
            while block := source.read(_BLOCK_BYTES):
                came(block)


@contextmanager
def _board_file(path: str, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """Open a file on the board's side; report its failures as the board's."""
    try:
        with Path(path).open(mode) as file:
            yield file
    except OSError as error:
        text = f"{(error.strerror or str(error)).lower()}, path:{path}"
        if error.errno in FULL_NUMBERS:
            of_files = "" if has_inodes(Path(path)) else ": no inodes are left"
            raise BoardNoSpace(f"the board's storage is full: {text}{of_files}") from error
        if error.errno in REFUSED_NUMBERS:
            raise BoardPermission(f"the board refuses access: {text}") from error
        raise BoardError(f"the board answers: {text}") from error


@dataclass(frozen=True, kw_only=True)
class LocalConfig(TransportConfig):
    """This host itself, as if it were a board."""

    __pydantic_config__: ClassVar[dict[str, Any]] = rules()
    needs_workdir: ClassVar[bool] = True

    kind: Literal["local"] = "local"
    """Way to reach the board."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""
        return self.kind

    @property
    def is_this_host(self) -> bool:
        """Return True."""
        return True

    def open(self, options: OpenOptions = _USUAL) -> LocalTransport:
        """Return the transport to this host."""
        del options
        return LocalTransport()
