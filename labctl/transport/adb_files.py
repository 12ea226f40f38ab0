"""File transfers by adb's own service."""

from pathlib import Path

from labctl.adb.server_client.files import opened_sync
from labctl.transport.adb import AdbTransport
from labctl.transport.file_transfer import FileTransfer, Take, open_source


class AdbFileTransfer(FileTransfer):
    """Moves files over adb's own service, which proves nothing: the hashes do."""

    transport: AdbTransport

    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Send a file; see :class:`FileTransfer`."""
        with (
            open_source(local) as source,
            opened_sync(self.transport.connected(), timeout=self.options.timeout) as sync,
        ):
            sync.send(source, remote, sent)

    def collect(self, remote: str, came: Take) -> None:
        """Receive a file; see :class:`FileTransfer`."""
        with opened_sync(self.transport.connected(), timeout=self.options.timeout) as sync:
            sync.receive(remote, came)
