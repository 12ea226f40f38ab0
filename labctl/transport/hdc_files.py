"""File transfers by hdc's own protocol."""

from collections.abc import Callable, Iterable
from pathlib import Path

from labctl.hdc.host.files import Sending, receive_file, send_file
from labctl.hdc.host.link import HostLink
from labctl.progress import BytesDone
from labctl.transport.base import TransferOptions, Transport
from labctl.transport.file_transfer import Digest, FileTransfer, Take, both, named, open_source


class HdcFileTransfer(FileTransfer):
    """Moves files over hdc."""

    def __init__(
        self,
        transport: Transport,
        options: TransferOptions,
        *,
        connected: Callable[[], HostLink],
    ):
        super().__init__(transport, options)
        self._connected = connected

    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Send a file; see :class:`FileTransfer`."""
        with open_source(local) as source:
            send_file(
                self._connected(),
                source,
                remote,
                timeout=self.options.timeout,
                on_chunk=sent,
                compress=self.options.compress,
            )

    def collect(self, remote: str, came: Take) -> None:
        """Receive a file; see :class:`FileTransfer`."""
        receive_file(
            self._connected(),
            remote,
            timeout=self.options.timeout,
            write=came,
            compress=self.options.compress,
        )

    def send_all(
        self, local: Path, names: Iterable[str], folder: str, seen: BytesDone
    ) -> dict[str, Digest]:
        """Send files of a directory over one channel into the directory ``folder`` on the board."""
        parent, slash, top = folder.rpartition("/")
        parent += slash  # hdcd follows a link to a directory only with a trailing slash
        link = self._connected()
        digests: dict[str, Digest] = {}
        with (
            named(f"sending {local} to {folder}"),
            link.open_send(parent, timeout=self.options.timeout) as channel,
        ):
            sending = Sending(channel, parent, compress=self.options.compress and link.can_compress)
            for name in names:
                digests[name] = self.board_hash.digest()
                with open_source(local / name) as source:
                    sending.send(source, f"{top}/{name}", both(digests[name], seen))
            sending.finish()
        return digests
