from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labctl.transport.base import CommandResult, Reboot, TransferOptions, Transport, Write
from labctl.transport.file_transfer import BoardHash, FileTransfer
from labctl.transport.hdc import HdcTransport
from labctl.transport.linked import Stream


class WrappedTransport(Transport):
    """Wraps another transport, so that a test can observe or change some of its operations."""

    def __init__(self, inner: Transport):
        self.inner = inner
        self.label = inner.label

    @contextmanager
    def only_while(self, permit: Callable[[], None]) -> Iterator[None]:
        """Call the wrapped transport."""
        with self.inner.only_while(permit):
            yield

    def use_hash(self, board_hash: BoardHash | None) -> None:
        """Call the wrapped transport."""
        self.inner.use_hash(board_hash)

    def files_hash(self, timeout: float) -> BoardHash:
        """Call the wrapped transport."""
        return self.inner.files_hash(timeout)

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Call the wrapped transport."""
        return self.inner.run(command, timeout=timeout, separate_stderr=separate_stderr)

    def stream(self, command: str, *, timeout: float, write: Write) -> int:
        """Call the wrapped transport."""
        return self.inner.stream(command, timeout=timeout, write=write)

    def file_transfer(self, options: TransferOptions) -> FileTransfer:
        """Call the wrapped transport."""
        return self.inner.file_transfer(options)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator[Stream]:
        """Call the wrapped transport."""
        with self.inner.connect(port, timeout=timeout) as stream:
            yield stream

    def over_hdc(self, purpose: str) -> HdcTransport:
        """Call the wrapped transport."""
        return self.inner.over_hdc(purpose)

    def request_reboot(self, how: Reboot = "", *, timeout: float) -> None:
        """Call the wrapped transport."""
        self.inner.request_reboot(how, timeout=timeout)

    def close(self) -> None:
        """Leave the wrapped transport open: its maker closes it."""
