"""This host as its own board, for native runs."""

import errno
from collections.abc import Iterator
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
from labctl.transport.base import CommandResult, Progress, Transport, brief, check_command
from labctl.transport.digests import Digest
from labctl.transport.local_files import appearing, open_source
from labctl.transport.paths import check_remote_path

_BLOCK_BYTES = 1 << 20


class LocalTransport(Transport):
    """Commands run in this host's ``sh``, files are copied; the contract is that of any board."""

    def __init__(self) -> None:
        self.label = "this host"

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """Run a shell command; see :class:`Transport`. On a time-out its whole tree is killed."""
        check_command(command)
        # The shell itself merges the streams, and the order of what was written is kept.
        script = f"exec 2>&1\n(\n{command}\n)"
        try:
            done = process.run(["/bin/sh", "-c", script], timeout=timeout)
        except HostTimeout as error:
            raise CommandTimeout(
                f"no end within {timeout:g} s of: {brief(command)}", details=error.details
            ) from error
        if done.exit_status < 0:
            raise DeviceLost(
                f"no exit status came for: {brief(command)}", hint="its shell was killed"
            )
        return CommandResult(command, done.exit_status, done.stdout, done.duration_ns)

    def push(
        self, local: Path, remote: str, *, timeout: float, progress: Progress | None = None
    ) -> None:
        """Copy a file and read the copy back; a local copy always makes progress."""
        del timeout
        digest = Digest("sha256")
        with open_source(local) as source, _board_file(check_remote_path(remote), "wb") as target:
            while block := source.read(_BLOCK_BYTES):
                target.write(block)
                digest.update(block)
                if progress:
                    progress(digest.size_bytes)
            target.flush()
        _hash(remote).require(digest, f"{local} pushed to {remote}")

    def pull(self, remote: str, local: Path, *, timeout: float) -> None:
        """Copy a file; ``local`` appears only once it is whole."""
        del timeout
        digest = Digest("sha256")
        with _board_file(check_remote_path(remote), "rb") as source, appearing(local) as target:
            while block := source.read(_BLOCK_BYTES):
                target.write(block)
                digest.update(block)
            _hash(remote).require(digest, f"{remote} pulled to {local}")

    @contextmanager
    def forward(self, remote_port: int) -> Iterator[int]:
        """The port itself: it is on this host already."""
        yield remote_port

    def is_alive(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Nothing to give back."""


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
