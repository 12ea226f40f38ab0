"""This host as its own board, for native runs."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from labctl import process
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    DeviceLost,
    HostTimeout,
)
from labctl.transport.base import (
    CommandResult,
    Copied,
    Progress,
    Transport,
    Write,
    brief,
    check_command,
    remote_words,
)
from labctl.transport.digests import BoardHash, Digest, running_total
from labctl.transport.directories import Seen, pull_tree, push_tree
from labctl.transport.local_files import appearing, new_file, open_source, set_aside
from labctl.transport.paths import check_remote_path

_BLOCK_BYTES = 1 << 20
#: Linux takes words of 131,071 bytes (MAX_ARG_STRLEN); what is around the command needs some.
_WORD_BYTES = 120_000


class LocalTransport(Transport):
    """Commands run in this host's ``sh``, files are copied; the contract is that of any board."""

    def __init__(self) -> None:
        self.label = "this host"

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Run a shell command; see :class:`Transport`. On a time-out its whole tree is killed."""
        with _shell(command, merged=not separate_stderr) as argv, _as_a_boards(command, timeout):
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
        with _shell(command, merged=True) as argv, _as_a_boards(command, timeout):
            status = process.run_live(argv, timeout=timeout, write=write)
        return _status(status, command)

    def push(
        self,
        local: Path,
        remote: str,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> None:
        """Copy a file and read the copy back; a local copy always makes progress."""
        del timeout, compress
        digest = _Copier().send(local, check_remote_path(remote), running_total(progress))
        _hash(remote).require(digest, f"{local} pushed to {remote}")

    def pull(
        self,
        remote: str,
        local: Path,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> None:
        """Copy a file; ``local`` appears only once it is whole."""
        del timeout, compress
        check_remote_path(remote)
        with appearing(local) as target:
            digest = _fetch(remote, target, running_total(progress))
            _hash(remote).require(digest, f"{remote} pulled to {local}")

    def push_directory(
        self,
        local: Path,
        remote: str,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> Copied:
        """Copy a directory; see :class:`Transport`."""
        del compress
        return push_tree(self, _Copier(), local, remote, timeout=timeout, progress=progress)

    def pull_directory(
        self,
        remote: str,
        local: Path,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> Copied:
        """Copy a directory; see :class:`Transport`."""
        del compress
        return pull_tree(self, _Copier(), remote, local, timeout=timeout, progress=progress)

    @contextmanager
    def forward(self, remote_port: int) -> Iterator[int]:
        """The port itself: it is on this host already."""
        yield remote_port

    def is_alive(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Nothing to give back."""


@contextmanager
def _shell(command: str, *, merged: bool) -> Iterator[list[str]]:
    """The words that run a command; one too long for a word is run from a file."""
    raw = check_command(command)
    # The shell itself merges the streams, and the order of what was written is kept.
    merge = "exec 2>&1\n" if merged else ""
    if len(raw) <= _WORD_BYTES:
        yield ["/bin/sh", "-c", f"{merge}(\n{command}\n)"]
        return
    with set_aside(raw + b"\n") as script:
        yield ["/bin/sh", "-c", f"{merge}( . {remote_words(str(script))}\n)"]


@contextmanager
def _as_a_boards(command: str, timeout: float) -> Iterator[None]:
    """A time-out of this host as that of a board."""
    try:
        yield
    except HostTimeout as error:
        raise CommandTimeout(
            f"no end within {timeout:g} s of: {brief(command)}",
            hint="give it more time, or ask what it waits for",
            details=error.details,
        ) from error


def _status(status: int, command: str) -> int:
    if status < 0:
        raise DeviceLost(f"no exit status came for: {brief(command)}", hint="its shell was killed")
    return status


class _Copier:
    """Single files, for whole directories."""

    board_hash = BoardHash("sha256", ("sha256sum",))

    def send(self, local: Path, remote: str, seen: Seen) -> Digest:
        digest = Digest("sha256")
        with open_source(local) as source, _board_file(remote, "wb") as target:
            while block := source.read(_BLOCK_BYTES):
                target.write(block)
                digest.update(block)
                seen(len(block))
        return digest

    def send_all(
        self, local: Path, names: Iterable[str], folder: str, seen: Seen
    ) -> dict[str, Digest]:
        return {name: self.send(local / name, f"{folder}/{name}", seen) for name in names}

    def receive(self, remote: str, local: Path, seen: Seen) -> Digest:
        with new_file(local) as target:
            return _fetch(remote, target, seen)


def _fetch(remote: str, target: BinaryIO, seen: Seen) -> Digest:
    digest = Digest("sha256")
    with _board_file(remote, "rb") as source:
        while block := source.read(_BLOCK_BYTES):
            target.write(block)
            digest.update(block)
            seen(len(block))
    return digest


def _hash(path: str) -> Digest:
    digest = Digest("sha256")
    with _board_file(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest


@contextmanager
def _board_file(path: str, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """An open file on the board's side; its failures are the board's."""
    try:
        with Path(path).open(mode) as file:
            yield file
    except OSError as error:
        text = f"{(error.strerror or str(error)).lower()}, path:{path}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BoardNoSpace(f"the board's storage is full: {text}") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise BoardPermission(f"the board refuses access: {text}") from error
        raise BoardError(f"the board answers: {text}") from error
